"""Evaluation: the same questions every time, honest counts, blanks that a person can read."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.models.bert.network import BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, PretrainingBatches
from qkv.models.bert.pretrain import Evaluation, blanked_sentences
from tests.support.small_run import make_config, make_shards, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shards(tmp_path_factory.mktemp("corpus"), hold_out=0.1)


def make(shards: Path, *changes: str) -> tuple[Evaluation, BertWithHeads]:
    config = make_config(shards, *changes)
    corpus, held_out = Shards.open(shards), Shards.open(shards, "valid")
    tokenizer = corpus.tokenizer()
    paired = config.pairs.negatives != "none"
    batches = PretrainingBatches(corpus, tokenizer, config.pairs, config.masking, rows=config.rows)
    heads = ["masked", "next_sentence"] if paired else ["masked"]
    torch.manual_seed(1)
    model = BertWithHeads(config.model.config(tokenizer.size, config.pairs.max_length), heads).eval()
    return Evaluation(held_out, tokenizer, batches, MaskedAndNextSentence(paired), config.evaluation_rows), model


def test_the_same_questions_every_time(shards: Path) -> None:
    one, model = make(shards)
    other, _ = make(shards, "train.seed=3")
    with torch.inference_mode():
        assert one(model) == one(model) == other(model), "whatever the run's seed"


def test_counts_are_those_of_the_rows(shards: Path) -> None:
    evaluation, model = make(shards, "evaluation_rows=20")
    assert sum(batch.n_rows for batch in evaluation.batches) == 20
    with torch.inference_mode():
        result = evaluation(model)
    assert result["next_sentence_count"] == 20
    assert result["masked_count"] == sum(len(batch.labels["masked"]) for batch in evaluation.batches)
    for name in ("masked", "next_sentence"):
        assert result[f"{name}_accuracy"] == result[f"{name}_correct"] / result[f"{name}_count"]
    assert result["masked_perplexity"] == pytest.approx(math.exp(result["masked_loss"]))
    assert result["masked_loss"] == pytest.approx(math.log(model.config.vocabulary_size), rel=0.1), "it knows nothing"


def test_rows_come_from_held_out_documents(shards: Path) -> None:
    evaluation, _ = make(shards)
    held_out = Shards.open(shards, "valid")
    everything = held_out.tokens(np.array([0]), np.array([held_out.n_tokens])).tolist()
    text = " ".join(map(str, everything))
    for batch in evaluation.batches:
        original = batch.ids.clone()
        original[batch.labels["masked_at"]] = batch.labels["masked"]
        for row in batch.rows(original):
            first = row[1 : row.tolist().index(evaluation.tokenizer.sep_id)]
            assert " ".join(map(str, first.tolist())) in text


def test_all_rows_when_there_are_fewer_than_asked_for(shards: Path) -> None:
    evaluation, _ = make(shards, "evaluation_rows=100000")
    rows = sum(batch.n_rows for batch in evaluation.batches)
    assert 10 < rows < 1000
    assert all(batch.n_rows < 16 for batch in evaluation.batches), "batches stay near the size of training's"


def test_without_pairs(shards: Path) -> None:
    evaluation, model = make(shards, "pairs.negatives=none")
    with torch.inference_mode():
        result = evaluation(model)
    assert "masked_loss" in result and "next_sentence_loss" not in result


def test_one_held_out_document_borrows_from_itself(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, count=5)
    assert Shards.open(shards, "valid").n_documents == 1
    evaluation, model = make(shards, "rows=1")
    with torch.inference_mode():
        assert evaluation(model)["next_sentence_count"] > 0


def test_held_out_text_too_short_for_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("我爱北京。你好。\n\n猫吃鱼。狗走了。\n\n好\n\n天气很好。是。", encoding="utf-8")
    prepare_corpus(tmp_path / "a.txt", make_tokenizer(), tmp_path / "shards", segmenter="none")
    held_out = Shards.open(tmp_path / "shards", "valid")
    assert (held_out.n_documents, held_out.n_tokens) == (1, 1)
    evaluation, _ = make(tmp_path / "shards", "rows=1")
    assert evaluation.batches == [] and evaluation.blanks == []


def test_blanks_hide_one_word_of_a_held_out_sentence(shards: Path) -> None:
    evaluation, model = make(shards)
    held_out, tokenizer = Shards.open(shards, "valid"), evaluation.tokenizer
    offsets = held_out.sentence_offsets
    sentences = {
        tuple(held_out.tokens(offsets[n : n + 1], np.diff(offsets[n : n + 2])).tolist())
        for n in range(held_out.n_sentences)
    }
    assert len(evaluation.blanks) == 6
    for blank in evaluation.blanks:
        ids = blank.batch.ids.tolist()
        assert ids[blank.place] == tokenizer.mask_id and ids.count(tokenizer.mask_id) == 1
        assert blank.text.count("[MASK]") == 1 and blank.answer.isalpha()
        ids[blank.place] = tokenizer.vocabulary[blank.answer]
        assert tuple(ids[1:-1]) in sentences
        assert blank.batch.longest <= 32, "no longer than what is trained on"
        with torch.inference_mode():
            filled = blank.filled(model, tokenizer, k=3)
        assert (filled["text"], filled["answer"], len(filled["candidates"])) == (blank.text, blank.answer, 3)
        shares = [share for _, share in filled["candidates"]]
        assert shares == sorted(shares, reverse=True)


def test_no_blank_without_a_suitable_sentence(shards: Path) -> None:
    held_out = Shards.open(shards, "valid")
    assert blanked_sentences(held_out, held_out.tokenizer(), np.random.default_rng(0), count=3, longest=4) == []
