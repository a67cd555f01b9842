"""`qkv serve --cluster`: the app of a replica, and what is refused. On Ray Serve: stories/test_serve_cluster.py."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from qkv.cli.main import main
from qkv.serve.cluster import Replica, build_replica_app, located
from qkv.serve.settings import ServeSettings
from qkv.train.cluster import Order, own_version
from tests.support.folders import make_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replicas") / "bert"
    make_folder(folder)
    return folder


def test_a_replica_answers_as_the_server_does(folder: Path) -> None:
    settings = ServeSettings(token="a-token-of-mine", threads=1, access_log=False)
    Replica(Order(own_version()), [f"words={folder}"], settings, "qkv-8080")
    client = TestClient(build_replica_app(), base_url="http://cluster.example")
    assert client.get("/readyz").json() == {"status": "ready"}
    assert client.post("/models/words", json={"inputs": "the [MASK] sat"}).status_code == 401
    mine = {"Authorization": "Bearer a-token-of-mine"}
    answer = client.post("/models/words", json={"inputs": "the [MASK] sat"}, headers=mine)
    assert answer.status_code == 200 and answer.json()[0]["sequence"]
    assert client.get("/", headers=mine).status_code == 200
    assert client.get("/look/", headers=mine).status_code == 404


def test_models_are_named_by_whole_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert located(["bert", "qkv-mini"]) == [f"bert={folder}", "qkv-mini=qkv-mini"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--replicas", "2"], "--replicas is for --cluster."),
        (["--cluster", "local", "--replicas", "3:1"], "--replicas is a number, or MIN:MAX such as 1:8, not '3:1'."),
        (["--cluster", "local", "--port", "0"], "--port 0 cannot be used with --cluster"),
        (["--cluster", "local", "--drain-delay", "3"], "--drain-delay is not for --cluster"),
        (["--cluster", "lokal"], "Did you mean 'local'?"),
    ],
)
def test_refusals(words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(folder), "--port", "0", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_model_is_said_before_anything_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["serve", str(tmp_path / "nowhere"), "--cluster", "local", "--port", "8123"]) == 2
    assert "nowhere" in capsys.readouterr().err
