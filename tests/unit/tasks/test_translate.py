"""Translating in batches is translating one by one; spans of texts; scores by hand."""

from typing import Any

import pytest
import torch

from qkv.data.pairs.batching import Languages
from qkv.errors import InputError
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.search.options import GenerateConfig
from qkv.tasks.translate import (
    check_scores,
    score_translations,
    source_spans,
    summarize_scores,
    target_spans,
    translate_batch,
)
from qkv.text.subwords import train_subwords
from qkv.text.tokenizer import Tokenizer

TEXTS = ["He wears a T-shirt.", "汤姆追逐 Jerry。", "a", "Well-known, isn't it?"]


@pytest.fixture(scope="module")
def languages() -> Languages:
    tokenizer = train_subwords(TEXTS * 2, 200)
    return Languages.of(tokenizer, tokenizer)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_alone_or_together(languages: Languages, kind: str, beams: int) -> None:
    torch.manual_seed(0)
    size = languages.target.size
    network: Transformer | Seq2Seq
    if kind == "transformer":
        shape: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "heads": 2, "inner_width": 32}
        network = Transformer(TransformerConfig(size, **shape)).eval()
    else:
        network = Seq2Seq(Seq2SeqConfig(size, width=16, cell_width=16)).eval()
    config = GenerateConfig(beams=beams, max_length=9)
    sources = languages.read(TEXTS)
    seen: list[int] = []
    together = translate_batch(network, languages, sources, config, progress=seen.append)
    assert sum(seen) == len(TEXTS)
    for source, found in zip(sources, together, strict=True):
        alone = translate_batch(network, languages, [source], config)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in found]
        assert not set(found[0].tokens) & set(languages.never)
        assert found[0].attention is not None and found[0].attention.shape == (len(found[0].tokens), len(source))


def test_keys_tell_sources_apart_when_drawing(languages: Languages) -> None:
    torch.manual_seed(0)
    network = Seq2Seq(Seq2SeqConfig(languages.target.size, width=16, cell_width=16)).eval()
    config = GenerateConfig(sample=True, max_length=9)
    source = languages.read(TEXTS[:1]) * 3
    tokens = [found[0].tokens for found in translate_batch(network, languages, source, config, keys=[7, 1, 1])]
    assert tokens[1] == tokens[2] != tokens[0]
    assert [found[0].tokens for found in translate_batch(network, languages, source, config)][1] == tokens[1]


@pytest.mark.parametrize("text", TEXTS)
def test_spans_are_the_characters(languages: Languages, text: str) -> None:
    for spans in (
        source_spans(languages.source, text),
        target_spans(languages.target, languages.read([text])[0][:-1])[1],
    ):
        assert "".join(text[start:end] for start, end in spans) == text.replace(" ", "")
    assert target_spans(languages.target, languages.read([text])[0][:-1])[0] == text


def test_spans_with_a_tokenizer_that_forgets_spaces() -> None:
    tokenizer = Tokenizer.train(TEXTS * 2, vocabulary_size=120)
    ids = tokenizer.encode_ids(["he wears a T-shirt."])[0]
    text, spans = target_spans(tokenizer, [*ids, tokenizer.sep_id])
    assert "".join(text[start:end] for start, end in spans) == text.replace(" ", "")
    assert spans[-1][0] == spans[-1][1]  # an end has no characters


def test_scores_by_hand() -> None:
    sources = ["one two three", "一二三四五六"]
    found = score_translations(
        sources, ["the cat sat on the mat", "dog"], ["the cat sat on the mat", "the dog runs here"], "en"
    )
    assert found.exact == 0.5 and found.bleu is not None and 20 < found.bleu.value < 80
    assert [(one.first, one.last, one.pairs) for one in found.by_length] == [(1, 5, 1), (6, 10, 1)]
    assert found.by_length[0].bleu == pytest.approx(100)
    lines = list(summarize_scores(found.to_dict()))
    assert lines[0].startswith("BLEU ") and "tok:13a" in lines[0] and "50.0% of 2" in lines[-1]


def test_what_is_missing_for_a_language_is_told_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mecab(tokenize: str, effective_order: bool) -> None:
        raise RuntimeError(f"no {tokenize}")

    check_scores("en")
    check_scores("zh-CN")
    for language, message in (("english?", "is not a language code"), ("ja", r"pip install 'sacrebleu\[ja\]'")):
        with monkeypatch.context() as patch:
            if language == "ja":
                patch.setattr("sacrebleu.metrics.bleu.BLEU", without_mecab)
            with pytest.raises(InputError, match=message):
                check_scores(language)
            with pytest.raises(InputError, match=message):
                score_translations(["a"], ["b"], ["c"], language)


def test_without_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.metrics.translation.is_available", lambda: False)
    found = score_translations(["a"], ["b c"], ["b  c"], "en", unfinished=1)
    check_scores("english?")  # nothing will be counted
    assert found.exact == 1 and found.bleu is None and "bleu" not in found.to_dict()
    assert "not ended" in list(summarize_scores(found.to_dict()))[-1]
