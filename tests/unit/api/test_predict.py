"""What a loaded model answers, against the network called by hand and against transformers."""

import json
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

import qkv
from qkv.api.model import Model
from qkv.data.batch import Batch
from qkv.data.windows import cut_windows
from qkv.errors import InputError
from qkv.models.bert import folder as hf
from qkv.models.bert.network import BertConfig
from tests.support.folders import make_folder

TEXTS = ["the animal was too tired", "他欠我100万", "猫", "5G 4g 😀 unhappiness", "今天天气很好。" * 5, "a the"]
LONG = "the cat sat on the mat because it was tired . 我 爱 吃 鱼 " * 12  # far beyond the tiny model's 64 tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("folders") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return qkv.load(folder)


def hidden_of(folder: Path, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return hf.load(folder).model.encoder(**Batch.of([ids]).inputs()).hidden


# fill


def test_fill_is_the_softmax_at_the_blank(model: Model, folder: Path) -> None:
    text = "他欠我[MASK]万, the [MASK] was tired"
    blanks = model.fill(text, k=3)
    assert [text[blank.start : blank.end] for blank in blanks] == ["[MASK]", "[MASK]"]
    assert [(blank.start, blank.end) for blank in blanks] == [(3, 9), (16, 22)]
    encoded = model.tokenizer.encode(text)
    network = hf.load(folder).model
    with torch.inference_mode():
        _, logits = network(**Batch.of([encoded.ids]).inputs())
    for blank, place in zip(blanks, [i for i, t in enumerate(encoded.tokens) if t == "[MASK]"], strict=True):
        expected = logits["masked"][place].softmax(-1).topk(3)
        assert [c.token for c in blank.candidates] == [model.tokenizer.token(i) for i in expected.indices.tolist()]
        assert [c.probability for c in blank.candidates] == pytest.approx(expected.values.tolist(), abs=1e-6)
        assert blank.best is blank.candidates[0]
        assert (blank.n_tokens, blank.n_windows) == (len(encoded.ids), 1)


def test_fill_gives_pieces_as_running_text(model: Model) -> None:
    for candidate in model.fill("the [MASK]", k=10_000)[0].candidates:
        assert candidate.text == candidate.token.removeprefix("##")


def test_fill_never_proposes_a_row_without_a_token(tmp_path: Path, model: Model) -> None:
    padded = qkv.load(make_folder(tmp_path / "padded", vocabulary_size=model.tokenizer.size + 40))
    found = padded.fill("the [MASK]", k=10_000)[0].candidates
    assert len(found) == len(padded.tokenizer.vocabulary)


@pytest.mark.parametrize("text", ["no blank", "a [mask]", "a <mask>", "巴黎是___国", "【MASK】"])
def test_fill_without_a_blank_shows_how_to_write_one(model: Model, text: str) -> None:
    with pytest.raises(InputError, match=r"巴黎是\[MASK\]国的首都"):
        model.fill(text)


def test_fill_says_what_is_wrong(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The text is empty"):
        model.fill("")
    with pytest.raises(InputError, match="k must be 1 or more, not 0"):
        model.fill("[MASK]", k=0)
    with pytest.raises(InputError, match=r"has \d\d+ tokens and this model reads 64 at once.*shorten"):
        model.fill(LONG + "[MASK]")
    plain = qkv.load(make_folder(tmp_path / "plain", "BertModel"))
    with pytest.raises(InputError, match="plain cannot fill a blank.*can embed texts.*, show attention.*MaskedLM"):
        plain.fill("[MASK]")


# embed


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embed_is_the_pooled_hidden_state(model: Model, folder: Path, pooling: str) -> None:
    found = model.embed(TEXTS, pooling=pooling, normalize=False)
    for text, vector, n_tokens in zip(TEXTS, found.vectors, found.n_tokens, strict=True):
        hidden = hidden_of(folder, model.tokenizer.encode(text).ids)
        expected = hidden.mean(0) if pooling == "mean" else hidden[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
        assert n_tokens == len(hidden)
    assert found.n_windows.tolist() == [1] * len(TEXTS)
    assert found.vectors.dtype == np.float32


def test_order_and_batches_do_not_matter(model: Model) -> None:
    whole = model.embed(TEXTS).vectors
    for budget in (1, 7, 40, 100_000):
        np.testing.assert_allclose(model.embed(TEXTS, tokens_per_batch=budget).vectors, whole, atol=2e-6)
    np.testing.assert_allclose(model.embed(TEXTS[::-1]).vectors, whole[::-1], atol=2e-6)
    for number, text in enumerate(TEXTS):
        np.testing.assert_allclose(model.embed(text).vectors[0], whole[number], atol=2e-6)


def test_normalize_scales_to_length_one(model: Model) -> None:
    assert np.linalg.norm(model.embed(TEXTS, normalize=True).vectors, axis=1) == pytest.approx(1.0)
    plain, unit = model.embed(TEXTS, normalize=False), model.embed(TEXTS, normalize=True)
    np.testing.assert_allclose(plain.similarity(), unit.similarity(), atol=1e-5)
    assert np.diag(unit.similarity()) == pytest.approx(1.0)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_long_text_is_read_in_windows(model: Model, folder: Path, pooling: str) -> None:
    ids = model.tokenizer.encode(LONG, special=False).ids
    cuts = cut_windows([len(ids)], 62, 15)
    cls, sep = model.tokenizer.cls_id, model.tokenizer.sep_id
    total, weights = torch.zeros(model.config.width), 0
    last = len(cuts.starts) - 1
    for window, (start, end) in enumerate(zip(cuts.starts.tolist(), cuts.ends.tolist(), strict=True)):
        hidden = hidden_of(folder, [cls, *ids[start:end], sep])
        begin = int(cuts.counted_starts[window]) - start + 1 - (window == 0)
        stop = int(cuts.counted_ends[window]) - start + 1 + (window == last)
        total += hidden[begin:stop].sum(0) if pooling == "mean" else hidden[0] * (stop - begin)
        weights += stop - begin
    found = model.embed(["猫", LONG, "a dog"], pooling=pooling, normalize=False)
    assert weights == len(ids) + 2 == found.n_tokens[1], "every token is counted once"
    assert found.n_windows.tolist() == [1, last + 1, 1]
    np.testing.assert_allclose(found.vectors[1], (total / weights).numpy(), atol=1e-5)
    np.testing.assert_allclose(found.vectors[0], model.embed("猫", pooling=pooling).vectors[0], atol=2e-6)


def test_streams_are_taken_in_parts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.embedder.TEXTS_PER_CHUNK", 3)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield TEXTS[taken % len(TEXTS)]

    stream = model.embed_stream(endless())
    assert taken == 0
    parts = [next(stream), next(stream)]
    assert [len(part) for part in parts] == [3, 3] and taken == 6
    whole = model.embed(TEXTS[1:] + TEXTS[:1]).vectors
    np.testing.assert_allclose(np.concatenate([part.vectors for part in parts]), whole, atol=2e-6)


def test_long_texts_make_small_parts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.api.embedder.CHARACTERS_PER_CHUNK", 1000)
    texts = [LONG, LONG, "猫", "a dog", LONG]
    assert len(LONG) > 500
    parts = list(model.embed_stream(iter(texts)))
    assert [len(part) for part in parts] == [2, 3]
    np.testing.assert_allclose(np.concatenate([part.vectors for part in parts]), model.embed(texts).vectors, atol=2e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_half_precision_gives_float32_vectors(model: Model, folder: Path, dtype: str, pooling: str) -> None:
    half = qkv.load(folder, dtype=dtype)
    found, expected = half.embed([*TEXTS, LONG], pooling), model.embed([*TEXTS, LONG], pooling)
    assert found.vectors.dtype == np.float32
    assert np.abs(found.vectors - expected.vectors).max() < 0.1 * np.abs(expected.vectors).max()
    assert half.attention(TEXTS[0]).attn.dtype == np.uint8
    assert half.fill("the [MASK]")[0].best.probability == pytest.approx(
        model.fill("the [MASK]")[0].best.probability, rel=0.1
    )


def pools_with(folder: Path, steps: list[str], mode: str) -> Path:
    """Say in sentence-transformers' files how a folder pools."""
    modules = [{"type": f"x.{kind}", "path": f"{n}_{kind}" if n else ""} for n, kind in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
    return folder


@pytest.mark.parametrize(
    ("steps", "mode", "named"),
    [
        (["Transformer", "Pooling"], "max", "max"),
        (["Transformer", "Pooling", "Dense"], "mean", "a step Dense"),
        (["Transformer", "Pooling", "Dense", "Normalize"], "mean", "a step Dense"),
    ],
)
def test_another_pooling_is_not_done_in_silence(tmp_path: Path, steps: list[str], mode: str, named: str) -> None:
    plain = qkv.load(make_folder(tmp_path / "plain"))
    model = qkv.load(pools_with(make_folder(tmp_path / "m"), steps, mode))
    assert len(model.notes) == 1 and plain.notes == ()
    message = rf"m pools with {named}, which qkv does not do: give pooling mean or cls \(--pooling\) to override"
    with pytest.raises(InputError, match=message):
        model.embed(TEXTS)
    with pytest.raises(InputError, match=message):
        model.embed_stream(iter(TEXTS))
    expected = plain.embed(TEXTS, "cls", normalize="Normalize" in steps).vectors
    np.testing.assert_allclose(model.embed(TEXTS, "cls").vectors, expected, atol=1e-6)
    model.save(tmp_path / "copy")
    with pytest.raises(InputError, match=f"copy pools with {named}"):
        qkv.load(tmp_path / "copy").embed(TEXTS)


def test_a_model_too_short_for_any_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 2 positions"):
        qkv.load(make_folder(tmp_path / "m", max_length=2)).embed("a")


def test_no_text_is_no_vector(model: Model) -> None:
    nothing = model.embed([])
    assert nothing.vectors.shape == (0, model.config.width) and len(nothing) == 0
    assert nothing.similarity().shape == (0, 0)


def test_embed_says_what_is_wrong(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Unknown pooling 'men'. Did you mean 'mean'"):
        model.embed("a", pooling="men")
    for empty in ("", "  ", "\t\u3000", "\x00"):
        with pytest.raises(InputError, match="Text 1 is empty"):
            model.embed(empty)
        assert np.isnan(model.embed(["a", empty])).all(1).tolist() == [False, True]
    with pytest.raises(InputError, match="Text 3 is missing"):
        list(model.embed_stream(["a", "b", cast(str, float("nan"))]))
    with pytest.raises(InputError, match="Text 3 is of type int"):
        model.embed(["a", "", cast(str, 3)])
    with pytest.raises(InputError, match="tokens_per_batch"):
        model.embed("a", tokens_per_batch=0)
    with pytest.raises(InputError, match="U\\+D83D"):
        model.embed(["\ud83d"])
    monkeypatch.setattr("qkv.api.embedder.TEXTS_PER_CHUNK", 2)
    with pytest.raises(InputError, match="Text 5 is empty"):
        list(model.embed_stream(["a", "a", "a", "a", ""]))


# attention and pairs


def test_attention_is_the_weights_of_the_network(model: Model, folder: Path) -> None:
    text, pair = "他欠我 😀", "the dog"
    found = model.attention(text, pair, layers=1, heads=[3, 0])
    assert found.name == "pair" and found.layers == (1,) and found.heads == (3, 0)
    encoded = model.tokenizer.encode(text, pair)
    with torch.inference_mode():
        batch = Batch.of([encoded.ids], segments=[encoded.segments])
        weights = hf.load(folder).model.encoder(**batch.inputs(), attention=[1]).attention[1][0]
    assert np.abs(found.attn[0] / 255 - weights[[3, 0]].numpy()).max() <= 0.5 / 255 + 1e-6
    for token, number, segment in zip(found.left, encoded.ids, encoded.segments, strict=True):
        assert token.segment == segment and token.token == model.tokenizer.token(number)
        assert token.text == (text, pair)[segment][token.start : token.end]
        assert token.special == (token.token in ("[CLS]", "[SEP]"))
    whole = model.attention(text)
    assert isinstance(model.config, BertConfig)
    assert whole.attn.shape[:2] == (model.config.layers, model.config.heads) and whole.name == "self"
    assert whole.n_tokens == whole.attn.shape[2] and whole.n_windows == 1


def test_attention_says_what_is_wrong(model: Model) -> None:
    with pytest.raises(InputError, match="no layer 2: this model has layers 0 … 1"):
        model.attention("a", layers=2)
    with pytest.raises(InputError, match="no head -1: this model has heads 0 … 3"):
        model.attention("a", heads=[0, -1])
    with pytest.raises(InputError, match="No layer was asked for"):
        model.attention("a", layers=[])
    with pytest.raises(InputError, match="The second text is empty"):
        model.attention("a", "")
    with pytest.raises(InputError, match="reads 64 at once"):
        model.attention(LONG)


def test_a_pair_needs_two_segments(tmp_path: Path) -> None:
    model = qkv.load(make_folder(tmp_path / "m", segments=1))
    assert model.attention("a").n_tokens == 3
    for ask in (model.attention, model.next_sentence):
        with pytest.raises(InputError, match=r"m reads single texts: it has one segment \(type_vocab_size 1\)"):
            ask("a", "b")


def test_next_sentence(model: Model, folder: Path, tmp_path: Path) -> None:
    found = model.next_sentence("the cat sat", "it was tired")
    encoded = model.tokenizer.encode("the cat sat", "it was tired")
    with torch.inference_mode():
        batch = Batch.of([encoded.ids], segments=[encoded.segments])
        _, logits = hf.load(folder).model(**batch.inputs())
    expected = logits["next_sentence"][0].softmax(-1).tolist()
    assert [found.is_next, found.not_next] == pytest.approx(expected, abs=1e-6)
    assert found.n_tokens == len(encoded.ids)
    with pytest.raises(InputError, match="masked cannot judge.*can fill a blank .*, embed texts .*, show attention"):
        qkv.load(make_folder(tmp_path / "masked", "BertForMaskedLM")).next_sentence("a", "b")
    with pytest.raises(InputError, match="The first text is empty"):
        model.next_sentence(" ", "b")


# all of it


def test_several_threads_get_the_same_answers(model: Model) -> None:
    blank = "the [MASK] was tired"
    vectors, blanks, weights = model.embed(TEXTS).vectors, model.fill(blank), model.attention(TEXTS[0]).attn

    def ask(number: int) -> bool:
        kind = number % 3
        if kind == 0:
            return bool(np.allclose(model.embed(TEXTS).vectors, vectors, atol=1e-6))
        if kind == 1:
            return [b.best.token for b in model.fill(blank)] == [b.best.token for b in blanks]
        return bool((np.abs(model.attention(TEXTS[0]).attn.astype(int) - weights) <= 1).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(40)))


def test_minilm_embeds_as_transformers_does(minilm: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModel, AutoTokenizer
    tokenizer, reference = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()
    texts = ["A cat.", "The animal didn't cross the street because it was too tired", "你好，世界 🙂", "word " * 400]
    expected = []
    for text in texts:
        with torch.inference_mode():
            states = reference(**tokenizer(text, return_tensors="pt", truncation=False)).last_hidden_state[0]
        expected.append(torch.nn.functional.normalize(states.mean(0), dim=0).numpy())
    found = qkv.load(minilm).embed(texts)
    assert np.abs(found.vectors - np.stack(expected)).max() <= 1e-5
    assert found.n_tokens.tolist()[-1] == 402, "the 128 tokens of the folder's tokenizer.json cut nothing"
