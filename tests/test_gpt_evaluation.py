import json
import math
from pathlib import Path

import pytest
import torch

from qkv.data.prepare import prepare
from qkv.data.shards import Shards
from qkv.models.gpt import GPT, GPTConfig
from qkv.run.gpt_evaluation import WRITTEN, GPTEvaluation
from qkv.tokenizer import Tokenizer
from tests.small_run import make_shards

pytestmark = pytest.mark.usefixtures("one_thread")

VERSE = "To be, or not to be:\nthat is the question.\n\n  Whether 'tis nobler…\n床前明月光，疑是地上霜。\n" * 3


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards.open(make_shards(tmp_path_factory.mktemp("evaluation"), hold_out=0.1), "valid")


def evaluation(held_out: Shards, length: int = 16, tokens: int = 10_000) -> GPTEvaluation:
    tokenizer = held_out.tokenizer()
    return GPTEvaluation(held_out, tokenizer, tokenizer.sep_id, length, 4, tokens)


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


def test_bits_of_a_character(held_out: Shards) -> None:
    """By hand: all that was lost, in bits, over the characters that the text has; ends of texts are none."""
    result, totals = evaluation(held_out)(network(held_out)), held_out.manifest["totals"]
    characters = held_out.n_tokens * totals["characters"] / totals["tokens"]
    bits = result["next_loss"] * result["next_count"] / math.log(2)
    assert result["bits_per_character"] == pytest.approx(bits / characters)


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
    prepare(file, tokenizer, tmp_path / "shards", hold_out=0.5, segmenter="none", workers=1)
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
