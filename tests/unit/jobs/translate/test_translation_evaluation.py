"""The same questions every time, and what the best weights are chosen by."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from qkv.data.labelled.examples import Place
from qkv.data.pairs.batching import Languages
from qkv.data.pairs.files import Pair
from qkv.errors import InputError
from qkv.jobs.translate.training import (
    SELECTION,
    TranslationEvaluation,
    check_selection,
    find_unevaluated,
    find_untranslatable,
    pick_evenly,
    translate_pairs,
)
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.search.options import GenerateConfig
from qkv.text.subwords import train_subwords
from tests.support.near import assert_near

PAIRS = [Pair(f"{n} {n + 1}", f"{n + 1} {n}") for n in range(8)]


@pytest.mark.parametrize("select", ["loss", "bleu", "exact"])
def test_what_goes_into_the_log(select: str) -> None:
    tokenizer = train_subwords([text for pair in PAIRS for text in pair[:2]], 60)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "heads": 2, "inner_width": 8}
    network = Transformer(TransformerConfig(tokenizer.size, **shape)).eval()
    languages = Languages.of(tokenizer, tokenizer)
    evaluate = TranslationEvaluation(
        PAIRS, languages, "en", select=select, translate=4, max_length=12, tokens_per_batch=16
    )
    found = evaluate(network)
    assert found["next_count"] == 8 * 3 and found["translated"] == 4
    assert [one["source"] for one in found["samples"]] == [pair.source for pair in PAIRS[::2]]
    assert found[SELECTION] == pytest.approx(-found["loss"] if select == "loss" else found[select], abs=1e-7)
    with torch.inference_mode():
        assert_near(evaluate(network), found)


@pytest.mark.parametrize("select", ["bleu", "exact"])
def test_of_equal_translations_the_lower_loss_is_the_better(select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_subwords(["1 2"] * 2, 60)
    network = Transformer(TransformerConfig(tokenizer.size, None, 1, 1, 8, 2, 8)).eval()
    evaluate = TranslationEvaluation(
        PAIRS, Languages.of(tokenizer, tokenizer), "en", select=select, translate=4, max_length=12, tokens_per_batch=16
    )
    monkeypatch.setattr(evaluate, "_translations", lambda model: ["no"] * 4)
    found = {}
    for loss in (3.0, 2.0):
        monkeypatch.setattr("qkv.jobs.translate.training.evaluate_translation", lambda *_, loss=loss: (loss, 0, 24))
        found[loss] = evaluate(network)
    assert found[2.0][select] == found[3.0][select] and found[2.0][SELECTION] > found[3.0][SELECTION]
    if select == "exact":  # and no loss is worth one translation
        monkeypatch.setattr(evaluate, "_translations", lambda model: ["1 0", "no", "no", "no"])
        monkeypatch.setattr("qkv.jobs.translate.training.evaluate_translation", lambda *_: (50.0, 0, 24))
        assert evaluate(network)[SELECTION] > found[2.0][SELECTION]


def test_what_is_translated_lies_all_over_dev() -> None:
    places = pick_evenly(1_000, 600)
    assert len(set(places)) == 600 and places[0] == 0 and places[-1] == 998
    assert max(after - before for before, after in pairwise(places)) == 2
    assert pick_evenly(5, 0) == pick_evenly(0, 5) == []
    tokenizer = train_subwords([text for pair in PAIRS for text in pair[:2]], 60)
    how: dict[str, Any] = {"select": "loss", "max_length": 12, "tokens_per_batch": 16}
    evaluate = TranslationEvaluation(PAIRS, Languages.of(tokenizer, tokenizer), "en", translate=5, **how)
    assert [PAIRS.index(pair) for pair in evaluate.pairs] == [0, 1, 3, 4, 6]


def test_pairs_that_the_model_is_too_short_for_are_named() -> None:
    long = "1 " * 20
    pairs = [*(pair._replace(place=Place("dev.tsv", line)) for line, pair in enumerate(PAIRS, 1))]
    pairs += [Pair(long, "1", Place("dev.tsv", 9)), Pair("1", long, Place("dev.tsv", 10))]
    tokenizer = train_subwords([text for pair in PAIRS for text in pair[:2]], 60)
    languages = Languages.of(tokenizer, tokenizer)
    faults = find_unevaluated(pairs, languages, 12)
    assert [(fault.place.line, fault.kind, fault.action) for fault in faults] == [
        (9, "too long", "dropped"),
        (10, "too long", "dropped"),
    ]
    # a long reference is no matter to who translates
    faults = find_untranslatable("test", [*pairs, Pair(" ", "1", Place("dev.tsv", 11))], languages, 12)
    assert [(fault.place.line, fault.kind, fault.action) for fault in faults] == [
        (9, "too long", "noted"),
        (11, "empty text", "noted"),
    ]
    evaluate = TranslationEvaluation(
        pairs, languages, "en", select="loss", translate=99, max_length=12, tokens_per_batch=16
    )
    assert evaluate.pairs == pairs[:8]


def test_nothing_is_translated_where_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_subwords(["1 2"] * 2, 60)
    network = Transformer(TransformerConfig(tokenizer.size, None, 1, 1, 8, 2, 8)).eval()
    languages = Languages.of(tokenizer, tokenizer)
    evaluate = TranslationEvaluation(
        PAIRS[:1], languages, "en", select="loss", translate=0, max_length=12, tokens_per_batch=16
    )
    assert "samples" not in evaluate(network)
    with pytest.raises(InputError, match="Every pair of dev has a side of more than max_length = 2 tokens"):
        TranslationEvaluation(PAIRS, languages, "en", select="loss", translate=0, max_length=2, tokens_per_batch=16)


def test_all_pairs_are_judged() -> None:
    """Also one that is too long to be translated, and one of which no token comes: with nothing."""
    tokenizer = train_subwords([text for pair in PAIRS for text in pair[:2]], 60)
    languages = Languages.of(tokenizer, tokenizer)
    torch.manual_seed(0)
    network = Transformer(TransformerConfig(tokenizer.size, None, 1, 1, 8, 2, 8)).eval()
    pairs = [Pair("1 " * 20, "1"), PAIRS[1], Pair(" ", "1"), PAIRS[3]]
    decoding = GenerateConfig(max_length=4, min_length=3)
    found = translate_pairs(network, languages, pairs, decoding, 12)
    alone = [translate_pairs(network, languages, [pairs[place]], decoding, 12) for place in (1, 3)]
    assert found.texts == ["", *alone[0].texts, "", *alone[1].texts] and all(one.texts[0] for one in alone)
    assert found.finished == [True, *alone[0].finished, True, *alone[1].finished]


def test_what_cannot_be_counted_is_told_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    for select in ("loss", "bleu", "exact"):
        check_selection(select, told.append)
    assert not told
    monkeypatch.setattr("qkv.metrics.translation.is_available", lambda: False)
    with pytest.raises(InputError, match=r"select = bleu.*pip install 'qkv\[translate\]'.*--set select=loss"):
        check_selection("bleu", told.append)
    assert not told
    check_selection("loss", told.append)
    check_selection("exact", told.append)
    assert len(told) == 2 and all("pip install 'qkv[translate]'" in message for message in told)
    assert "the lowest loss" in told[0] and "the most exact" in told[1]
