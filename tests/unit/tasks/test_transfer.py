"""How much of an encoder moves."""

import pytest

from qkv.errors import InputError
from qkv.models.plain.network import ReaderConfig, ReaderWithHeads
from qkv.tasks.transfer import TaskModel, Transfer, freeze_parts, layer_scale, parse_scratch_transfer, parse_transfer
from tests.support.folders import make_model


def held(name: str) -> tuple[TaskModel, set[str]]:
    model = TaskModel(make_model("BertForSequenceClassification"), "sequence")
    freeze_parts(model, parse_transfer(name, 2))
    moving = {n.removeprefix("network.") for n, parameter in model.named_parameters() if parameter.requires_grad}
    return model, {".".join(name.split(".")[:3]) if "blocks" in name else name.split(".")[1] for name in moving}


@pytest.mark.parametrize(
    ("name", "moving"),
    [
        ("full", {"embedding", "encoder.blocks.0", "encoder.blocks.1", "pooler", "sequence"}),
        ("top:1", {"encoder.blocks.1", "pooler", "sequence"}),
        ("freeze", {"pooler", "sequence"}),
        ("features", {"pooler", "sequence"}),
    ],
)
def test_what_moves(name: str, moving: set[str]) -> None:
    assert held(name)[1] == moving


def test_what_stays_is_run_without_dropout() -> None:
    model, _ = held("top:1")
    model.train()
    blocks = list(model.network.encoder.blocks)
    assert not any(module.training for module in blocks[0].modules())
    assert all(module.training for module in blocks[1].modules())
    model.eval()
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["ful", "top", "top:0", "top:3", "top:x", ""])
def test_unknown_ways(name: str) -> None:
    with pytest.raises(InputError, match="transfer"):
        parse_transfer(name, 2)


def test_no_decay_moves_all_layers_alike() -> None:
    scale = layer_scale(1.0, 12)
    assert {scale(f"network.encoder.blocks.{layer}.x") for layer in range(12)} == {1.0}
    assert scale("extra.crf_start") > 1


def test_from_nothing_only_word_vectors_can_stay() -> None:
    assert parse_scratch_transfer("full", 2, None) == Transfer("full", 2, True)
    # a table of vectors is the features written down
    assert parse_scratch_transfer("freeze", 2, "words") == Transfer("freeze", 2, False)
    assert parse_scratch_transfer("features", 2, "words") == Transfer("features", 2, False)
    assert parse_scratch_transfer("features", 0, "words").cached
    for name, message in (("freeze", "--embeddings"), ("top:1", "all have to move"), ("ful", "Did you mean 'full'")):
        with pytest.raises(InputError, match=message):
            parse_scratch_transfer(name, 2, None)


@pytest.mark.parametrize(
    ("layers", "below", "message"),
    [
        (2, None, "begins from nothing all have to move. Possible here: full.$"),
        (2, "elmo", "layers above elmo are new, and all have to move. Possible here: full .*, freeze and features"),
        (0, "elmo", r"elmo has no layers above it. Possible here: full \(elmo learns too\), freeze and features"),
    ],
)
def test_who_asks_for_top_layers_that_are_not_there_is_told_what_is(
    layers: int, below: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        parse_scratch_transfer("top:1", layers, below)


@pytest.mark.parametrize(("kind", "layers"), [("lstm", 2), ("cnn", 2), ("lookup", 0)])
def test_a_reader_is_held_whole_or_in_its_vectors(kind: str, layers: int) -> None:
    def moving(transfer: Transfer) -> tuple[set[str], bool]:
        shape = ReaderConfig(kind, vocabulary_size=9, embedding_width=4, inner_width=3, layers=layers)
        model = TaskModel(ReaderWithHeads(shape, ["sequence"]), "sequence")
        freeze_parts(model, transfer)
        model.train()
        found = {name.split(".")[2] for name, one in model.named_parameters() if one.requires_grad}
        dropout = model.network.encoder.get_submodule("dropout")
        return found & {"embedding", "blocks"}, dropout.training

    assert moving(parse_transfer("freeze", layers)) == (set(), False)
    blocks = {"blocks"} if layers else set()
    assert moving(parse_scratch_transfer("freeze", layers, "words")) == (blocks, bool(layers))
    assert moving(parse_scratch_transfer("full", layers, "words")) == ({"embedding"} | blocks, True)


def test_a_mix_is_learned_whatever_stays() -> None:
    """What comes out of it cannot be written down beforehand, so that features are as freeze there."""
    assert not parse_transfer("features", 2, mixes=True).cached and parse_transfer("features", 2).cached
    assert not parse_scratch_transfer("features", 0, "elmo", mixes=True).cached
    assert parse_scratch_transfer("features", 0, "words").cached
    assert layer_scale(0.5, 1)("network.encoder.mix.weights") == 1.0
    assert layer_scale(0.5, 3)("network.encoder.norm.weight") == 0.5  # goes with the last layer, below the head
