"""Tiny models behind the routes, once for all tests of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qkv.serve.served import Models
from tests.support.served_models import AppClient, make_served_folders, open_served


@pytest.fixture(scope="session")
def served_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_served_folders(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served_models(served_folders: dict[str, Path]) -> Iterator[Models]:
    with open_served(served_folders) as models:
        yield models


@pytest.fixture(scope="session")
def client(served_models: Models) -> AppClient:
    return AppClient(served_models)
