"""Served models against the Python API: the same results, whoever else is asking."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

import qkv
from qkv.api.generator import Generator
from qkv.api.translator import load_translator
from qkv.errors import InputError
from qkv.search.options import GenerateConfig
from qkv.serve.served import (
    Call,
    Models,
    OverloadedError,
    ServeSettings,
    UnavailableError,
    UnknownModelError,
)
from qkv.serve.served import default_models as list_defaults
from qkv.serve.settings import split_name
from tests.golden.golden import MODELS as GOLDEN
from tests.support.folders import make_folder
from tests.support.stand_in import make_zoo, use_zoo
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")
LONG = "the cat sat on the mat because it was too tired . " * 12  # more than two windows of 64
LONG_ZH = "我爱北京，他很好。今天天气不坏！" * 15
TEXTS = ["the cat sat on the mat .", "我爱北京。", LONG, LONG_ZH, "a", "unhappiness 5G 很好"]
KINDS = ("classify", "tag", "answer", "choice")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("served")
    found = {kind: task_folder(place / kind, kind) for kind in KINDS}
    found["pairs"] = task_folder(place / "pairs", "classify", paired=True)
    found["mini"] = make_folder(place / "mini")
    return found | {name: GOLDEN / name for name in ("gpt", "transformer", "word2vec")}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> Iterator[Models]:
    # batches so small that the windows of a text are in several
    opened = Models.open(
        [f"{name}={path}" for name, path in folders.items()], ServeSettings(threads=1, max_batch_tokens=200)
    )
    asyncio.run(opened.warm_up())
    assert opened.ready
    yield opened
    assert opened.close(20)


def inputs_of(kind: str) -> list[Any]:
    if kind == "pairs":
        return [("the cat", text) for text in TEXTS]
    if kind == "answer":
        return [{"question": "我爱什么？", "text": text} for text in TEXTS]
    if kind == "choice":
        return [{"text": text, "question": "where ?", "choices": ["mat", "北京"]} for text in TEXTS]
    return list(TEXTS)


def same(found: Any, expected: Any) -> bool:
    """Equal, with numbers close: a batch with other rows may round differently."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == (pytest.approx(expected, rel=1e-4, abs=1e-6) if type(expected) is float else expected))


@pytest.mark.parametrize("kind", [*KINDS, "pairs"])
def test_predictions_are_those_of_the_model(models: Models, folders: dict[str, Path], kind: str) -> None:
    inputs, call = inputs_of(kind), Call()
    found = asyncio.run(models[kind].predict(inputs, call))
    expected = qkv.load(folders[kind]).predict(inputs)
    assert [type(one) for one in found] == [type(one) for one in expected]
    assert same([one.to_dict() for one in found], [one.to_dict() for one in expected])
    assert any(one.n_windows > 1 for one in found)
    assert call.n_windows >= sum(one.n_windows for one in found) and call.n_tokens >= 200
    assert call.n_characters > 500 and call.inference_s > 0 and not call.truncated


def test_requests_at_the_same_time_get_their_own_results(models: Models, folders: dict[str, Path]) -> None:
    async def ask() -> list[Any]:
        mini = models["mini"]
        asked = [mini.embed([text], Call()) for text in TEXTS * 5]
        blanks = [mini.fill([f"我爱[MASK]京 {number}", "the [MASK] sat on [MASK]"], Call(), k=3) for number in range(9)]
        return await asyncio.gather(*asked, *blanks, models["classify"].predict(TEXTS, Call()))

    found = asyncio.run(ask())
    model = qkv.load(folders["mini"])
    vectors = model.embed(TEXTS)
    for number, one in enumerate(found[:30]):
        assert one.vectors[0] == pytest.approx(vectors.vectors[number % 6], abs=1e-5)
        assert (one.n_tokens[0], one.n_windows[0]) == (vectors.n_tokens[number % 6], vectors.n_windows[number % 6])
    for number, (one, two) in enumerate(found[30:39]):
        assert [blank.best.token for blank in one] == [model.fill(f"我爱[MASK]京 {number}", 3)[0].best.token]
        for blank, expected in zip(two, model.fill("the [MASK] sat on [MASK]", 3), strict=True):
            assert (blank.start, blank.end, blank.n_tokens) == (expected.start, expected.end, expected.n_tokens)
            assert [c.token for c in blank.candidates] == [c.token for c in expected.candidates]
            assert [c.probability for c in blank.candidates] == pytest.approx(
                [c.probability for c in expected.candidates], rel=1e-4
            )


def test_a_request_that_is_alone_has_the_very_numbers_of_the_model(folders: dict[str, Path]) -> None:
    models = Models.open([f"mini={folders['mini']}"], ServeSettings(threads=1))
    texts = TEXTS * 40  # several batches
    found = asyncio.run(models["mini"].embed(texts, Call()))
    models.close()
    expected = qkv.load(folders["mini"], threads=1).embed(texts)
    assert found.n_tokens.tolist() == expected.n_tokens.tolist() and found.model == expected.model
    assert found.vectors == pytest.approx(expected.vectors, abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, None])
def test_pooling_and_length_of_vectors(
    models: Models, folders: dict[str, Path], pooling: str, normalize: bool | None
) -> None:
    found = asyncio.run(models["mini"].embed(TEXTS, Call(), pooling=pooling, normalize=normalize))
    expected = qkv.load(folders["mini"]).embed(TEXTS, pooling, normalize)
    assert found.vectors == pytest.approx(expected.vectors, abs=1e-5)


def test_vectors_of_tokens(models: Models, folders: dict[str, Path]) -> None:
    found = asyncio.run(models["mini"].embed_tokens(TEXTS, Call()))
    for one, expected in zip(found, qkv.load(folders["mini"]).embed_tokens(TEXTS), strict=True):
        assert (one.tokens, one.offsets, one.n_windows) == (expected.tokens, expected.offsets, expected.n_windows)
        assert one.vectors == pytest.approx(expected.vectors, abs=1e-5)


def test_word_vectors_are_served_too(models: Models) -> None:
    words = qkv.load(GOLDEN / "word2vec")
    known = [token for token in words.tokenizer.vocabulary if token.isalpha()][:3]
    text = " ".join(known)
    found = asyncio.run(models["word2vec"].embed([text, known[0]], Call()))
    expected = words.embed([text, known[0]])
    assert found.vectors == pytest.approx(expected.vectors, abs=1e-6)
    assert found.n_without_vector is not None and expected.n_without_vector is not None
    assert found.n_without_vector.tolist() == expected.n_without_vector.tolist()


def test_token_ids_are_texts_with_or_without_their_marks(models: Models) -> None:
    mini = models["mini"]
    (encoded,), plain = mini.tokenize([TEXTS[0]], special=True), mini.tokenize([TEXTS[0]], special=False)[0]
    found = asyncio.run(mini.embed([encoded.ids, plain.ids], Call()))
    expected = asyncio.run(mini.embed([TEXTS[0]], Call()))
    for vector in found.vectors:
        assert vector == pytest.approx(expected.vectors[0], abs=1e-6)
    assert mini.decode([encoded.ids], skip_special=True) == ["the cat sat on the mat."]
    wrong: Any
    for wrong in ([[1, 100_000]], [[-1]], [["a"]], [[True]], [7]):
        with pytest.raises(InputError, match="Text 1"):
            asyncio.run(mini.embed(wrong, Call()))


def test_long_texts_are_cut_only_if_asked_for(models: Models) -> None:
    mini, call, cut = models["mini"], Call(), Call()
    asyncio.run(mini.embed([LONG], call))
    right = asyncio.run(mini.embed([LONG], cut, truncate=True))
    assert (call.truncated, cut.truncated) == (False, True) and call.n_windows > 1 == cut.n_windows
    left = asyncio.run(mini.embed([LONG], Call(), truncate=True, truncation_direction="left"))
    assert not np.allclose(right.vectors, left.vectors)
    ids = mini.tokenize([LONG], special=False)[0]
    first = asyncio.run(mini.embed([LONG[: ids.offsets[61][1]]], Call()))
    assert right.vectors == pytest.approx(first.vectors, abs=1e-6)
    (tokens,) = asyncio.run(mini.embed_tokens([LONG], cut, truncate=True))
    assert len(tokens) == 62


@pytest.mark.parametrize("kind", [*KINDS, "pairs"])
def test_cut_predictions_fit_one_window(models: Models, kind: str) -> None:
    call = Call()
    found = asyncio.run(models[kind].predict(inputs_of(kind), call, truncate=True))
    assert {one.n_windows for one in found} == {1} and call.truncated
    short = Call()
    asyncio.run(models[kind].predict(inputs_of(kind)[:2], short, truncate=True))
    assert not short.truncated


def test_raw_scores(models: Models) -> None:
    scores = asyncio.run(models["classify"].scores(TEXTS, Call()))
    results = asyncio.run(models["classify"].predict(TEXTS, Call()))
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    for row, one in zip(shares, results, strict=True):
        assert one.probabilities == pytest.approx(dict(zip(("animal", "place"), row, strict=True)), abs=1e-5)
    with pytest.raises(InputError, match="raw scores"):
        asyncio.run(models["tag"].scores(TEXTS, Call()))


def test_blanks_of_some_words(models: Models) -> None:
    (blanks,) = asyncio.run(models["mini"].fill(["我爱[MASK]京"], Call(), k=5, targets=["北", "上", "北"]))
    assert {one.token for one in blanks[0].candidates} == {"北", "上"}
    with pytest.raises(InputError, match="'zebra' is not a token"):
        asyncio.run(models["mini"].fill(["我爱[MASK]京"], Call(), k=5, targets=["zebra"]))


def test_only_the_candidates_of_blanks_are_kept(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    served, kept = models["mini"], list[Any]()
    compute = served._compute

    async def watch(*given: Any) -> Any:
        kept.append(await compute(*given))
        return kept[-1]

    monkeypatch.setattr(served, "_compute", watch)
    both = asyncio.run(served.fill(["我爱[MASK][MASK]", "[MASK]"], Call(), k=3))
    assert [len(blanks) for blanks in both] == [2, 1]
    assert [tuple(one.tokens.shape) for one in map(kept[0].get, range(2))] == [(2, 3), (1, 3)]
    sizes = [part.untyped_storage().nbytes() for one in kept[0].values() for part in one]
    assert max(sizes) <= 2 * 3 * 8, "not a view of the scores of the vocabulary"


def test_translations(models: Models) -> None:
    texts = ["1 2 3 4", "7 7", "5 6 1", ""]
    found = asyncio.run(models["transformer"].translate(texts, Call(), split=False))
    expected = load_translator(GOLDEN / "transformer").translate(texts)
    assert same([one.to_dict() for one in found], [one.to_dict() for one in expected])
    several = asyncio.run(models["transformer"].translate(texts[:2], Call(), n_best=3))
    assert [len(one.candidates) for one in several] == [3, 3]
    with pytest.raises(InputError, match="Did you mean 'beams'"):
        asyncio.run(models["transformer"].translate(texts, Call(), num_beams=3))


def test_generated_texts_and_streams(models: Models) -> None:
    options: dict[str, Any] = {"sample": True, "top_k": 5, "max_length": 12, "seed": 3}
    prompts = ["the cat", "我", "the cat"]
    found = asyncio.run(models["gpt"].generate(prompts, Call(), **options))
    generator = Generator(GOLDEN / "gpt")
    config = GenerateConfig.of(options)
    assert [[one.text for one in texts] for texts in found] == [
        [one.text for one in texts] for texts in generator.generate(prompts, config, fit=True)
    ]

    async def read() -> list[Any]:
        return [piece async for piece in models["gpt"].stream("the cat", Call(), **options)]

    pieces = asyncio.run(read())
    assert "".join(piece.text for piece in pieces) == "".join(generator.stream("the cat", config, fit=True))
    assert pieces[-1].n_tokens == found[0][0].n_tokens and pieces[-1].finished == found[0][0].finished


def test_a_stream_ends_when_nobody_reads(models: Models) -> None:
    async def leave() -> None:
        pieces = models["gpt"].stream("the cat", Call(), max_length=12, min_length=10)
        assert (await anext(pieces)).text
        await pieces.aclose()
        assert (await models["gpt"].generate(["我"], Call(), max_length=2))[0]

    asyncio.run(leave())


def test_a_client_that_leaves_is_dropped(models: Models) -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def stays() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    async def story() -> None:
        with pytest.raises(ClientDisconnect):
            await models["mini"].embed(TEXTS * 10, Call(gone))
        assert len(await models["mini"].embed(["a"], Call(stays))) == 1
        assert models["mini"].queued_tokens == 0

    asyncio.run(story())


def test_bad_inputs(models: Models) -> None:
    for ask, match in (
        (models["mini"].embed(["a", "  "], Call()), "Text 2 is empty"),
        (models["mini"].embed(["a"], Call(), pooling="maen"), "Did you mean 'mean'"),
        (models["mini"].embed(["a"], Call(), truncation_direction="up"), "left or right"),
        (models["mini"].fill(["no blank"], Call(), k=1), "no blank to fill"),
        (models["mini"].fill(["[MASK]"], Call(), k=0), "k must be 1"),
        (models["classify"].predict(["a", ""], Call()), "Input 2: the text is empty"),
        (models["classify"].predict([("a", "b")], Call()), "the model reads one text"),
        (models["answer"].predict(["a"], Call()), "this model reads a pair"),
        (models["mini"].predict(["a"], Call()), "cannot predict"),
        (models["transformer"].embed(["a"], Call()), "cannot embed"),
        (models["classify"].generate(["a"], Call()), "cannot write on"),
        (models["mini"].translate(["a"], Call()), "cannot translate"),
    ):
        with pytest.raises(InputError, match=match):
            asyncio.run(ask)
    assert asyncio.run(models["mini"].embed([], Call())).shape == (0, 32)
    assert asyncio.run(models["classify"].predict([], Call())) == []


def test_what_a_model_says_of_itself(models: Models) -> None:
    tasks = {served.name: served.tasks for served in models}
    assert tasks["mini"] == ("fill-mask", "feature-extraction", "sentence-similarity")
    assert tasks["classify"] == ("text-classification", "feature-extraction", "sentence-similarity")
    assert tasks["answer"][0] == "question-answering" and tasks["tag"][0] == "token-classification"
    assert tasks["choice"][0] == "multiple-choice" and tasks["transformer"] == ("translation",)
    assert tasks["gpt"][0] == "text-generation"
    assert [served.name for served in models if served.is_reranker] == ["pairs"]
    assert models.default("fill-mask").name == "mini" and models.default("text-classification").name == "classify"
    info = models["classify"].info
    assert info["labels"] == ["animal", "place"] and info["max_input_length"] == 64 and info["calibrated"] is False
    with pytest.raises(InputError, match="Did you mean 'fill-mask'"):
        models.default("fill-masks")
    with pytest.raises(UnknownModelError, match="no model 'mimi' here. Did you mean 'mini'"):
        models["mimi"]
    shown = models.metrics.text().decode()
    assert 'qkv_model_info{model="mini"' in shown and "qkv_batch_tokens_bucket" in shown


def test_an_overload_refuses_and_recovers(folders: dict[str, Path]) -> None:
    models = Models.open(
        [f"mini={folders['mini']}"], ServeSettings(threads=1, max_batch_tokens=300, max_queue_tokens=3000)
    )
    mini, refused, right = models["mini"], 0, 0
    expected = asyncio.run(mini.embed([LONG], Call())).vectors[0]

    async def ask() -> None:
        nonlocal refused, right
        try:
            found = await mini.embed([LONG], Call())
        except OverloadedError as error:
            refused += error.retry_after >= 1
        else:
            right += int(found.vectors[0] == pytest.approx(expected, abs=1e-5))

    async def flood() -> None:
        await asyncio.gather(*(ask() for _ in range(300)))

    asyncio.run(flood())
    assert right + refused == 300 and refused > 100 and right > 20
    assert mini.queued_tokens == 0
    models.close()
    with pytest.raises(UnavailableError):
        asyncio.run(mini.embed(["a"], Call()))


def test_names(folders: dict[str, Path], tmp_path: Path) -> None:
    assert split_name("hf:owner/name@main")[0] == "owner/name"
    assert split_name("名=x")[0] == "名"
    for wrong in ("a b=x", "a?=x", "=x", "../x=y"):
        with pytest.raises(InputError, match="cannot be the name of a model in URLs"):
            split_name(wrong)
    with pytest.raises(InputError, match="Two models are called 'mini'"):
        Models.open([str(folders["mini"]), f"mini={folders['tag']}"])
    with pytest.raises(InputError, match="There is no folder"):
        Models.open([str(tmp_path / "nothing")])


def test_default_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_zoo(make_zoo(tmp_path), monkeypatch)
    assert list_defaults() == ["qkv-sentences", "qkv-mini", "qkv-gpt", "qkv-en-zh", "qkv-zh-en"]


def test_settings() -> None:
    assert ServeSettings().batch_tokens == 2048 and ServeSettings().queue_tokens == 131_072
    several: list[dict[str, Any]] = [{"threads": 0}, {"max_body": 0}, {"max_batch_tokens": -1}, {"drain_seconds": -1}]
    for wrong in several:
        with pytest.raises(InputError, match="must be"):
            ServeSettings(**wrong)
    with pytest.raises(InputError, match="less than one batch"):
        ServeSettings(max_queue_tokens=100)


def test_a_temperature_in_the_weights_is_a_calibration(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["classify"], tmp_path / "run")
    content = json.loads((tmp_path / "run" / "qkv.json").read_text(encoding="utf-8"))
    content.get("record", content)["folded_temperature"] = 0.65
    (tmp_path / "run" / "qkv.json").write_text(json.dumps(content), encoding="utf-8")
    opened = Models.open([f"run={tmp_path / 'run'}"], ServeSettings(threads=1))
    assert opened["run"].info["calibrated"] is True
    assert opened.close(20)
