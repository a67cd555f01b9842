"""Vectors of pretrained language models below a reader: those of the model itself, whatever lies beside a row."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.elmo.network import Elmo, ElmoVectors, ScalarMix
from qkv.models.elmo.tokenizer import OpenTokenizer
from qkv.models.plain.network import ReaderConfig, ReaderWithHeads
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig, StateVectors
from qkv.tasks.transfer import TaskModel, freeze_parts, parse_scratch_transfer
from tests.support.below_readers import elmo_config, tokens_by_id, word_tokenizer

TEXTS = ["the cat sat on the mat", "paris is wide", "a", "he owes me money because it was too wide", "猫 吃 鱼"]


def vectors_of_elmo() -> tuple[Elmo, ElmoVectors, OpenTokenizer]:
    tokenizer = OpenTokenizer(word_tokenizer())
    config = elmo_config(tokenizer)
    torch.manual_seed(0)
    network = Elmo(config, tokens_by_id(tokenizer)).eval()
    with torch.device("meta"):
        vectors = ElmoVectors(config, tokenizer).eval()
    kept = {name: value for name, value in network.state_dict().items() if not name.startswith("scores.")}
    vectors.network.load_state_dict(kept, assign=True)
    return network, vectors, tokenizer


def batch_of(tokenizer: OpenTokenizer, texts: list[str]) -> Batch:
    return Batch.of([one.ids for one in tokenizer.encode_batch(texts)])


def run(vectors: nn.Module, batch: Batch) -> Tensor:
    found: Tensor = vectors(batch.ids, batch.lengths)
    return found


def test_words_of_the_vocabulary_have_the_vectors_of_the_model() -> None:
    network, vectors, tokenizer = vectors_of_elmo()
    batch = batch_of(tokenizer, ["the cat sat", "a mat"])
    torch.testing.assert_close(run(vectors, batch), network(batch.ids, batch.lengths))


def test_a_row_has_the_same_vectors_whatever_lies_beside_it() -> None:
    _, vectors, tokenizer = vectors_of_elmo()
    together = batch_of(tokenizer, TEXTS)
    rows = together.rows(run(vectors, together))
    backwards = batch_of(tokenizer, TEXTS[::-1])
    for row, other, text in zip(rows, backwards.rows(run(vectors, backwards))[::-1], TEXTS, strict=True):
        alone = run(vectors, batch_of(tokenizer, [text]))
        torch.testing.assert_close(row, alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(row, other, atol=1e-5, rtol=1e-5)


def test_an_unknown_word_is_read_by_its_letters() -> None:
    network, vectors, tokenizer = vectors_of_elmo()
    rows = batch_of(tokenizer, ["the Dogs sat", "the dogs sat", "the dots sat", "the [UNK] sat"])
    capital, small, other, unknown = rows.rows(run(vectors, rows))
    assert rows.ids.max() >= tokenizer.size
    torch.testing.assert_close(capital, small)
    assert not torch.allclose(small[2], other[2]) and not torch.allclose(small[2], unknown[2])
    # as if it had been in the vocabulary
    words = [*tokens_by_id(tokenizer)[:-1], "dogs"]
    known = Elmo(network.config, words).eval()
    known.load_state_dict(network.state_dict())
    ids = torch.tensor([2, words.index("the"), words.index("dogs"), words.index("sat"), 3])
    torch.testing.assert_close(known(ids, (5,)), small)
    long = batch_of(tokenizer, ["x" * 200, "x" * 201])  # cut where the model reads no further
    torch.testing.assert_close(*long.rows(run(vectors, long)))


def test_numbers_of_unknown_words_do_nothing() -> None:
    _, vectors, tokenizer = vectors_of_elmo()
    first = run(vectors, batch_of(tokenizer, ["the zebra saw the okapi"]))
    _, others, other = vectors_of_elmo()
    other.encode("okapi okay zebra")
    torch.testing.assert_close(first, run(others, batch_of(other, ["the zebra saw the okapi"])))


def test_the_mix_by_hand() -> None:
    mix = ScalarMix(3).double()
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, math.log(2), math.log(5)]))
        mix.gamma.fill_(2.0)
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [4.0, 2.0]]]).double()
    # shares 1/8, 2/8, 5/8: 2 (1/8 (1, 0) + 2/8 (0, 1) + 5/8 (4, 2))
    torch.testing.assert_close(mix(x), torch.tensor([[5.25, 3.0]]).double())


def reader_on_elmo(kind: str, layers: int) -> tuple[ReaderWithHeads, OpenTokenizer]:
    tokenizer = OpenTokenizer(word_tokenizer())
    features = elmo_config(tokenizer)
    shape = ReaderConfig(
        kind, tokenizer.size, embedding_width=10, inner_width=4, layers=layers, features=features, dropout=0.2
    )
    torch.manual_seed(0)
    return ReaderWithHeads(shape, ["token"], labels=3, words=tokenizer), tokenizer


@pytest.mark.parametrize(("kind", "layers"), [("lookup", 0), ("lstm", 1)])
def test_mix_and_head_learn_and_a_frozen_elmo_does_not(kind: str, layers: int) -> None:
    network, tokenizer = reader_on_elmo(kind, layers)
    model = TaskModel(network, "token")
    batch = batch_of(tokenizer, TEXTS)
    freeze_parts(model, parse_scratch_transfer("freeze", layers, "elmo", mixes=True))
    model.train()
    vectors = network.encoder.embedding
    assert not any(module.training for module in vectors.modules()) and network.heads["token"].training
    assert run(vectors, batch).equal(run(vectors, batch)), "no dropout in what stays"
    model.scores(batch).square().sum().backward()
    for name, parameter in model.named_parameters():
        still = name.startswith("network.encoder.embedding.")
        assert parameter.requires_grad != still, name
        assert still if parameter.grad is None else bool(parameter.grad.abs().sum() > 0), name


def test_a_tuned_elmo_learns() -> None:
    network, tokenizer = reader_on_elmo("lookup", 0)
    model = TaskModel(network, "token")
    freeze_parts(model, parse_scratch_transfer("full", 0, "elmo", mixes=True))
    model.scores(batch_of(tokenizer, TEXTS)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.abs().sum() > 0), name


def test_states_of_a_recurrent_language_model() -> None:
    tokenizer = word_tokenizer()
    config = RNNLMConfig(tokenizer.size, width=6, cell_width=8, tied=False)
    model, vectors = RNNLM(config).eval(), StateVectors(config).eval()
    kept = {name: value for name, value in copy.deepcopy(model.state_dict()).items() if not name.startswith("scores.")}
    vectors.network.load_state_dict(kept)
    batch = Batch.of([one.ids for one in tokenizer.encode_batch(TEXTS)])
    torch.testing.assert_close(run(vectors, batch), model(batch.ids, batch.lengths)[0])
    assert config.features_width == run(vectors, batch).shape[1] == 8


def test_widths_must_fit() -> None:
    with pytest.raises(
        InputError, match="embedding_width is 9, and the vectors of the language model below it have 10"
    ):
        ReaderConfig("lookup", layers=0, embedding_width=9, features=elmo_config(word_tokenizer()))
