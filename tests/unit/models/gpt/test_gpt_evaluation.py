import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.pretrain import WRITTEN, GPTEvaluation
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend
from tests.support.small_run import make_shards

pytestmark = pytest.mark.usefixtures("one_thread")

VERSE = "To be, or not to be:\nthat is the question.\n\n  Whether 'tis nobler…\n床前明月光，疑是地上霜。\n" * 3


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards.open(make_shards(tmp_path_factory.mktemp("evaluation"), hold_out=0.1), "valid")


def evaluation(held_out: Shards, length: int = 16, tokens: int = 10_000, rows: int = 4) -> GPTEvaluation:
    tokenizer = held_out.tokenizer()
    return GPTEvaluation(held_out, tokenizer, tokenizer.sep_id, length, rows, tokens)


def network(held_out: Shards, length: int = 16, spare: int = 0) -> GPT:
    torch.manual_seed(0)
    size = held_out.tokenizer().size + spare
    return GPT(GPTConfig(size, layers=1, width=8, heads=2, inner_width=16, max_length=length)).eval()


def test_the_same_every_time_and_of_every_token(held_out: Shards) -> None:
    model, evaluate = network(held_out), evaluation(held_out)
    result = evaluate(model)
    assert evaluate(model) == result == evaluation(held_out)(model)
    assert result["next_count"] == held_out.n_tokens + held_out.n_documents
    assert result["next_perplexity"] == pytest.approx(math.exp(result["next_loss"]))
    few = evaluation(held_out, tokens=64)(model)
    assert 40 < few["next_count"] < 100
    json.dumps(result)


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_size_of_a_batch_changes_nothing(held_out: Shards, rows: int) -> None:
    """Runs of other batches are compared by it, and so is one that had to make its batches smaller."""
    model = network(held_out)
    few, other = evaluation(held_out, tokens=100), evaluation(held_out, tokens=100, rows=rows)
    assert rows * 16 + 16 > max(batch.n_tokens for batch in other.batches)
    expected, found = few(model), other(model)
    assert found["next_loss"] == pytest.approx(expected["next_loss"], rel=1e-5)
    assert found["next_count"] == expected["next_count"] and 100 <= found["next_count"] < 116


def test_bits_of_a_character(held_out: Shards) -> None:
    """By hand: all that was lost, in bits, over the characters that the text has; ends of texts are none."""
    result, tokenizer = evaluation(held_out)(network(held_out)), held_out.tokenizer()

    def letters(part: Shards) -> int:
        ids = part.tokens(np.array([0]), np.array([part.n_tokens])).tolist()
        return sum(
            1 if number == tokenizer.unk_id else len(tokenizer.token(number).removeprefix("##")) for number in ids
        )

    share = letters(held_out) / (letters(held_out) + letters(Shards.open(held_out.folder)))
    bits = result["next_loss"] * result["next_count"] / math.log(2)
    assert result["bits_per_character"] == pytest.approx(bits / (share * held_out.manifest["totals"]["characters"]))


@pytest.mark.parametrize("size", [12, 400])
def test_bits_of_the_characters_that_were_read(tmp_path: Path, size: int) -> None:
    """Two languages, of which a token has few characters and many: what counts is which one was read."""
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    texts = ["the cat sat on the mat and the cat", "😀 naïve 北京是中国的首都，明月光"] * 8
    (tmp_path / "two.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    prepare_corpus(tmp_path / "two.jsonl", tokenizer, tmp_path / "shards", hold_out=0.5, segmenter="none", workers=1)
    held_out = Shards.open(tmp_path / "shards", "valid")
    evaluate = evaluation(held_out, length=200, tokens=size, rows=1)
    rows = [row.tolist() for batch in evaluate.batches for row in batch.rows(batch.labels["next"])]
    assert evaluate.characters == pytest.approx(sum(len(tokenizer.decode(row)) for row in rows))


def test_what_is_written(held_out: Shards) -> None:
    model, evaluate, tokenizer = network(held_out), evaluation(held_out), held_out.tokenizer()
    written = evaluate.written(model)
    assert [one["prompt"] == "" for one in written] == [True, False, False]
    for one, prompt in zip(written, evaluate.prompts, strict=True):
        assert prompt.ids[0] == tokenizer.sep_id, "these documents are short: a prompt is the beginning of one"
        assert one["prompt"] == tokenizer.decode(prompt.ids) and "[" not in one["text"]
    assert len(tokenizer.encode_ids([written[0]["text"]])[0]) <= min(WRITTEN, 16)
    other = GPT(model.config).eval()
    assert evaluate.written(other) != written


def test_a_table_with_rows_to_spare_and_weights_that_are_no_numbers(held_out: Shards) -> None:
    evaluate, model = evaluation(held_out), network(held_out, spare=1000)
    assert len(evaluate.written(model)) == 3
    torch.nn.init.constant_(model.embedding.weight, math.nan)
    result = evaluate(model)
    assert math.isnan(result["next_loss"]) and result["samples"] == []


def test_one_long_text_by_the_character(tmp_path: Path) -> None:
    """Prompts are from its middle, white space is part of the text, and a character costs what a token costs."""
    file = tmp_path / "verse.jsonl"
    file.write_text("".join(json.dumps({"text": VERSE}) + "\n" for _ in range(2)), encoding="utf-8")
    tokenizer = Tokenizer.train([VERSE], kind="character", lowercase=False, vocabulary_size=100)
    prepare_corpus(file, tokenizer, tmp_path / "shards", hold_out=0.5, segmenter="none", workers=1)
    held_out = Shards.open(tmp_path / "shards", "valid")
    assert held_out.n_documents == 1 and held_out.n_tokens == len(VERSE.strip())
    evaluate = evaluation(held_out, length=64)
    assert all(prompt.ids[0] != tokenizer.sep_id for prompt in evaluate.prompts[1:]) and len(evaluate.prompts) == 3
    result = evaluate(network(held_out, length=64))
    per_token = result["next_loss"] / math.log(2)
    assert result["bits_per_character"] == pytest.approx(per_token * result["next_count"] / held_out.n_tokens)
    assert all(len(one["text"]) <= WRITTEN for one in result["samples"])


def test_nothing_held_out(tmp_path: Path) -> None:
    shards = Shards.open(make_shards(tmp_path, count=10, hold_out=0.0), "valid")
    evaluate = evaluation(shards)
    assert not evaluate.batches and not evaluate.prompts
