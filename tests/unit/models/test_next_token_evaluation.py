from pathlib import Path

import pytest
import torch

from qkv.data.corpus.rows import TextConfig
from qkv.data.corpus.shards import Shards
from qkv.models.nnlm.network import NNLM, NNLMConfig
from qkv.models.nnlm.pretrain import Carrying, NextTokenEvaluation
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from tests.support.small_run import make_shards

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards.open(make_shards(tmp_path_factory.mktemp("evaluation"), hold_out=0.1), "valid")


def test_the_same_tokens_for_both_models_and_every_time(held_out: Shards) -> None:
    torch.manual_seed(0)
    tokenizer = held_out.tokenizer()
    window = NNLM(NNLMConfig(tokenizer.size, 3, 4, 5, dropout=0.0)).eval()
    recurrent = Carrying(RNNLM(RNNLMConfig(tokenizer.size, width=4, dropout=0.0)), 7).eval()
    results = []
    for model, seen in ((window, 2), (recurrent, 0)):
        evaluate = NextTokenEvaluation(held_out, tokenizer, TextConfig(8), seen, 4, 10_000)
        results.append(evaluate(model))
        assert evaluate(model) == results[-1]
    assert results[0]["next_count"] == results[1]["next_count"] > 0.8 * held_out.n_tokens
    assert not any(bool(part.any()) for part in recurrent.carried), "the states of the training are not touched"
    few = NextTokenEvaluation(held_out, tokenizer, TextConfig(8), 0, 4, 40)
    assert few(recurrent)["next_count"] <= 40


def test_what_a_model_remembers_counts(held_out: Shards) -> None:
    """In pieces of 4 and of 64 tokens the same documents give the same perplexity, as far as the same is predicted."""
    torch.manual_seed(0)
    tokenizer = held_out.tokenizer()
    model = Carrying(RNNLM(RNNLMConfig(tokenizer.size, width=4, dropout=0.0)), 1).eval()
    for part in model.parameters():
        part.data.mul_(3)
    short, long = (NextTokenEvaluation(held_out, tokenizer, TextConfig(length), 0, 1, 64)(model) for length in (4, 64))
    assert short["next_count"] == long["next_count"]
    assert short["next_loss"] == pytest.approx(long["next_loss"], rel=1e-5)


def test_nothing_held_out(tmp_path: Path) -> None:
    shards = Shards.open(make_shards(tmp_path, count=10, hold_out=0.0), "valid")
    assert NextTokenEvaluation(shards, shards.tokenizer(), TextConfig(), 0, 4, 100).count == 0
