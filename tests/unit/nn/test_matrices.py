"""Which weights Muon takes: the blocks' matrices, and neither embeddings nor heads nor biases."""

from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.nn.block import find_matrices
from qkv.nn.multihead import MultiHeadCrossAttention


def test_the_blocks_of_bert() -> None:
    model = BertWithHeads(BertConfig(vocabulary_size=20, layers=2, width=8, heads=2, inner_width=16), ["masked"])
    parts = {"attention.qkv": 3, "attention.out": 1, "feed_forward.up": 1, "feed_forward.down": 1}
    expected = {f"encoder.blocks.{n}.{part}.weight": number for n in range(2) for part, number in parts.items()}
    assert find_matrices(model) == expected
    assert expected.keys() <= dict(model.named_parameters()).keys()


def test_cross_attention() -> None:
    assert find_matrices(MultiHeadCrossAttention(8, 2)) == {"query.weight": 1, "key_value.weight": 2, "out.weight": 1}
