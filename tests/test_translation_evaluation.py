"""The same questions every time, and what the best weights are chosen by."""

from typing import Any

import pytest
import torch

from qkv.data.pair_files import Pair
from qkv.data.pair_languages import Languages
from qkv.data.subwords import train_subwords
from qkv.errors import InputError
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.run.translation_evaluation import SELECTION, TranslationEvaluation, can_select

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
    assert found[SELECTION] == (-found["loss"] if select == "loss" else found[select])
    with torch.inference_mode():
        assert evaluate(network) == found


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
    assert can_select("bleu")
    monkeypatch.setattr("qkv.metrics.translation.is_available", lambda: False)
    assert can_select("loss") and not can_select("bleu")
