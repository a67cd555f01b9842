"""Masks and pairs on real text, Chinese and English: from the corpus through the shards, at the rates of the paper."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.rows import IS_NEXT, PairConfig
from qkv.data.corpus.shards import Shards
from qkv.models.bert.objective import KEPT, MASK, RANDOM, MaskingConfig, PretrainingBatches
from qkv.text.tokenizer import Tokenizer


def near(successes: int, trials: int, share: float, spread: float = 1.0) -> bool:
    """Within five standard deviations; `spread` is how many tokens are drawn together."""
    return abs(successes - trials * share) < 5 * (trials * share * (1 - share) * spread) ** 0.5


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_rates_on_wikipedia(shared_data: Path, tmp_path: Path, language: str, whole_words: bool) -> None:
    with lzma.open(shared_data / f"{language}wiki_text" / "valid-00.txt.xz", "rt", encoding="utf-8") as lines:
        text = lines.read(300_000)
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    tokenizer = Tokenizer.train(text.split("\n"), vocabulary_size=4000)
    prepare_corpus(tmp_path / "corpus.txt", tokenizer, tmp_path / "shards", workers=1)
    shards = Shards.open(tmp_path / "shards")
    build = PretrainingBatches(
        shards, tokenizer, PairConfig("document", 128), MaskingConfig(whole_words=whole_words), rows=32
    )
    drawn, order = build.epoch(0)
    rows = drawn.take(order)
    batch, masked = build.packed(rows, np.random.default_rng(0))

    special = np.fromiter(tokenizer.special_ids, np.int64)
    original = batch.ids.numpy().copy()
    original[masked.chosen] = masked.targets
    ordinary = int((~np.isin(original, special)).sum())
    assert near(len(masked.chosen), ordinary, 0.15, spread=4.0 if whole_words else 1.0)
    assert not np.isin(masked.targets, special).any()
    for treatment, share in ((MASK, 0.8), (RANDOM, 0.1), (KEPT, 0.1)):
        assert near(int((masked.treatment == treatment).sum()), len(masked.chosen), share)
    changed = masked.ids[masked.chosen[masked.treatment == RANDOM]]
    assert (changed != masked.targets[masked.treatment == RANDOM]).all()
    assert near(int((rows.label == IS_NEXT).sum()), len(rows), 0.5)

    if whole_words:  # a token that goes on a word is chosen if and only if the token before it is
        chosen = np.zeros(len(original), bool)
        chosen[masked.chosen] = True
        begins = np.ones(len(original), bool)
        at, parts = 0, []
        for a, n, b, m in zip(rows.a_start, rows.a_length, rows.b_start, rows.b_length, strict=True):
            parts += [(at + 1, a, n), (at + 2 + n, b, m)]
            at += n + m + 3
        for place, start, length in parts:
            begins[place + 1 : place + length] = shards.word_starts(np.array([start]), np.array([length]))[1:]
        going_on = np.flatnonzero(~begins & ~np.isin(original, special))
        going_on = going_on[~np.isin(original[going_on - 1], special)]  # [UNK] may stand inside a word
        assert len(going_on) > 1000
        assert (chosen[going_on] == chosen[going_on - 1]).all()
