"""Texts of several requests that are tokenized together: each gets its own, and its own errors."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import qkv
from qkv.api.embedder import Embeddings
from qkv.data.windows import Rows
from qkv.errors import InputError
from qkv.serve.gathering import CHARACTERS_AT_ONCE, Gathering, SharedRows
from qkv.serve.served import Call, Models

TEXTS = ["他在北京。", "A longer text in English.", "一" * 300, "short", "🙂 e\u0301"]


def test_texts_of_one_turn_are_prepared_in_one_call(served_models: Models, served_folders: dict[str, Path]) -> None:
    embedder = qkv.load(served_folders["sentences"]).embedder
    calls: list[int] = []

    def prepare(texts: Sequence[str]) -> Rows:
        calls.append(len(texts))
        return embedder.prepare(texts)

    async def ask() -> list[SharedRows]:
        gathering = Gathering(prepare)
        return await asyncio.gather(*map(gathering.prepare, TEXTS))

    places = asyncio.run(ask())
    assert calls == [len(TEXTS)] and [place.at for place in places] == list(range(len(TEXTS)))
    alone = [embedder.prepare([text]) for text in TEXTS]
    for place, rows in zip(places, alone, strict=True):
        assert place.rows.lengths[place.units].tolist() == rows.lengths.tolist()
    assert len(places[2].units) > 1, "a long text has several windows"


def test_answers_are_those_of_python(served_models: Models, served_folders: dict[str, Path]) -> None:
    async def ask() -> list[Embeddings]:
        served = served_models["sentences"]
        return await asyncio.gather(*(served.embed([text], Call()) for text in TEXTS))

    found, model = asyncio.run(ask()), qkv.load(served_folders["sentences"])
    for text, one in zip(TEXTS, found, strict=True):
        wanted = model.embed([text])
        np.testing.assert_allclose(one.vectors, wanted.vectors, atol=1e-6)
        for name in ("n_tokens", "n_windows", "n_unknown"):
            assert getattr(one, name).tolist() == getattr(wanted, name).tolist()


def test_an_error_is_of_its_own_text(served_models: Models) -> None:
    async def ask() -> list[Embeddings | BaseException]:
        served = served_models["sentences"]
        texts = ["good", "\u200b", "also good"]
        return await asyncio.gather(*(served.embed([text], Call()) for text in texts), return_exceptions=True)

    first, wrong, last = asyncio.run(ask())
    assert isinstance(first, Embeddings) and isinstance(last, Embeddings)
    assert isinstance(wrong, InputError) and "Text 1 is empty" in str(wrong)


def test_a_turn_is_bounded_and_bugs_reach_every_request() -> None:
    calls: list[int] = []

    def fail(texts: Sequence[str]) -> Rows:
        calls.append(len(texts))
        raise RuntimeError("a bug")

    async def ask() -> list[SharedRows | BaseException]:
        gathering = Gathering(fail)
        leaving = asyncio.create_task(gathering.prepare("left"))
        asking = [gathering.prepare("x" * (CHARACTERS_AT_ONCE // 2)) for _ in range(5)]
        both = asyncio.gather(*asking, return_exceptions=True)
        await asyncio.sleep(0)
        leaving.cancel()
        return await both

    found = asyncio.run(ask())
    assert [str(one) for one in found] == ["a bug"] * 5 and max(calls) <= 2


def test_a_bug_that_one_text_meets_is_not_of_the_others(served_folders: dict[str, Path]) -> None:
    embedder = qkv.load(served_folders["sentences"]).embedder

    def prepare(texts: Sequence[str]) -> Rows:
        if "short" in texts:
            raise RuntimeError("a bug")
        return embedder.prepare(texts)

    async def ask() -> list[SharedRows | BaseException]:
        gathering = Gathering(prepare)
        return await asyncio.gather(*map(gathering.prepare, TEXTS), return_exceptions=True)

    found = asyncio.run(ask())
    assert [isinstance(one, RuntimeError) for one in found] == [text == "short" for text in TEXTS]


@pytest.mark.parametrize("text", ["他在北京。", "一" * 300])
def test_in_several_event_loops_one_after_the_other(served_models: Models, text: str) -> None:
    served = served_models["sentences"]
    first, second = (asyncio.run(served.embed([text], Call())).vectors for _ in range(2))
    assert np.array_equal(first, second)
