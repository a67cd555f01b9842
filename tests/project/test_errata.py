"""Where the lecture notes slip, shown: one test an entry of docs/errata.md, which quotes the notes and names the test.

Each test holds what the notes say against what the code does, so that it would fail if the notes were right.
"""

import ast
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qkv.data.batch import Batch
from qkv.models.bert import folder as hf
from qkv.nn.attention import SelfAttention, attend, attention, dot_scores
from qkv.nn.block import FeedForward, PostNormBlock
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention, explicit
from qkv.nn.position import sinusoidal_table
from qkv.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def entropy(weights: Tensor) -> float:
    """Mean entropy of the rows, as a share of the largest there is: 0 one key takes all, 1 all keys take the same."""
    bits = torch.special.entr(weights).sum(-1).mean().item()
    return bits / math.log(weights.size(-1))


def test_feed_forward_weights_are_shared_by_all_positions() -> None:
    layer = FeedForward(8, 32)
    x = torch.randn(6, 8)
    order = torch.randperm(6)
    assert torch.allclose(layer(x[order]), layer(x)[order], atol=1e-6)
    for length in (1, 6, 500):  # 8·32 + 32 up, 32·8 + 8 down, however many positions there are
        assert layer(torch.randn(length, 8)).shape == (length, 8)
        assert size(layer) == 552

    # with weights of its own for every position, as the notes have it, the order would matter
    own = nn.ModuleList(FeedForward(8, 32) for _ in range(6))
    apart = torch.stack([network(x[t]) for t, network in enumerate(own)])
    moved = torch.stack([network(x[order][t]) for t, network in enumerate(own)])
    assert not torch.allclose(moved, apart[order], atol=1e-2)
    assert size(own) == 6 * 552

    # what does differ is the layers
    assert not torch.equal(layer.up.weight, FeedForward(8, 32).up.weight)


def test_lstm_weights_are_shared_by_all_time_steps() -> None:
    lstm = nn.LSTM(input_size=3, hidden_size=5)
    x = torch.randn(7, 3)
    outputs, _ = lstm(x)

    w_in, w_hidden, b_in, b_hidden = lstm.parameters()
    hidden, cell = torch.zeros(5), torch.zeros(5)
    for step in range(7):  # the same four matrices every time
        gates = w_in @ x[step] + b_in + w_hidden @ hidden + b_hidden
        take_in, forget, candidate, give_out = gates.chunk(4)
        cell = forget.sigmoid() * cell + take_in.sigmoid() * candidate.tanh()
        hidden = give_out.sigmoid() * cell.tanh()
        assert torch.allclose(outputs[step], hidden, atol=1e-6), step

    before = size(lstm)
    assert before == 4 * (5 * 3 + 5 * 5 + 2 * 5)
    assert lstm(torch.randn(500, 3))[0].shape == (500, 5)
    assert size(lstm) == before
    # what is not shared: each of the three gates and the candidate has weights of its own
    parts = w_hidden.chunk(4)
    assert not any(torch.equal(parts[i], parts[j]) for i in range(4) for j in range(i))


@pytest.mark.parametrize("width", [16, 64, 256])
def test_the_divisor_is_the_square_root_of_the_head_width(width: int) -> None:
    query, key = torch.randn(400, width), torch.randn(400, width)
    scores = dot_scores(query, key)
    assert scores.var().item() == pytest.approx(width, rel=0.1)
    assert (scores / math.sqrt(width)).var().item() == pytest.approx(1, rel=0.1)
    assert (scores / width).var().item() == pytest.approx(1 / width, rel=0.1)

    by_root, plain, by_width = (entropy(attention(query, key, key, scale=scale)[1]) for scale in (None, 1.0, 1 / width))
    assert by_root == pytest.approx(0.92, abs=0.02)  # the same for every width
    assert plain == pytest.approx({16: 0.36, 64: 0.13, 256: 0.06}[width], abs=0.02)  # ever fewer take nearly all
    assert by_width > 0.99  # all keys get the same, whatever they say


def test_wide_heads_without_the_root_lose_their_gradient() -> None:
    def gradient(scale: float | None) -> float:
        torch.manual_seed(1)
        query, key, value = torch.randn(3, 64, 512).unbind(0)
        scores = dot_scores(query, key, 1 / math.sqrt(512) if scale is None else scale).requires_grad_()
        (attend(scores, value)[0] * torch.randn(64, 512)).sum().backward()
        assert scores.grad is not None
        return scores.grad.abs().mean().item()

    assert gradient(1.0) < 0.2 * gradient(None)


def test_the_separator_is_sep() -> None:
    tokenizer = Tokenizer.from_vocabulary([*SPECIAL, "他", "欠", "我", "明", "天", "还", "[", "]", "<", ">", "seq"])
    encoded = tokenizer.encode("他欠我", "明天还")
    assert encoded.tokens == ["[CLS]", "他", "欠", "我", "[SEP]", "明", "天", "还", "[SEP]"]
    assert encoded.segments == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert tokenizer.encode("他欠我").tokens[-1] == "[SEP]"  # it closes a text too, not only parts two

    assert tokenizer.sep_id == tokenizer.id("[SEP]")
    assert {"[seq]", "<seq>", "<cls>"}.isdisjoint(tokenizer.vocabulary)
    assert tokenizer.encode("[seq]", special=False).tokens == ["[", "seq", "]"]  # plain text like any other
    assert tokenizer.encode("<seq>", special=False).tokens == ["<", "seq", ">"]


def test_softmax_gives_a_distribution_and_not_the_maximum() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.5]], requires_grad=True)
    value = torch.tensor([[1.0], [10.0], [100.0]])
    answer, weights = attend(scores, value)
    assert weights.sum().item() == pytest.approx(1)
    assert (weights > 0).all()
    assert answer.item() == pytest.approx((weights[0] @ value[:, 0]).item())
    assert answer.item() > 10  # the largest weight stands at the value 1, and two others count
    answer.sum().backward()
    assert scores.grad is not None
    assert (scores.grad != 0).all()  # so every score can be learned; an argmax would have no gradient


def test_encoder_reaches_decoder_through_cross_attention() -> None:
    across, within = MultiHeadCrossAttention(8, 2), MultiHeadSelfAttention(8, 2)
    within.load_state_dict(
        {
            "qkv.weight": torch.cat([across.query.weight, across.key_value.weight]),
            "qkv.bias": torch.cat([across.query.bias, across.key_value.bias]),
            "out.weight": across.out.weight,
            "out.bias": across.out.bias,
        }
    )
    target, source, other = torch.randn(1, 3, 8), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
    answer, weights = across(target, source, explicit)
    assert weights is not None
    assert weights.shape == (1, 2, 3, 5)  # 3 words of the target look at 5 of the source
    assert not torch.allclose(answer, across(target, other, explicit)[0], atol=1e-3)
    # self-attention is the case where both are one sequence, and then no source comes in at all
    assert torch.allclose(across(target, target, explicit)[0], within(target, explicit)[0], atol=1e-6)


@pytest.mark.parametrize(("width", "ratio"), [(4, 100.0), (64, 1.3335), (512, 1.0366)])
def test_wave_lengths_grow_by_a_factor_that_depends_on_the_width(width: int, ratio: float) -> None:
    angles = sinusoidal_table(2, width)[1, 0::2].double().asin()  # at position 1 the angle is 1 / denominator
    denominators = 1 / angles[1:]  # of the first pair the angle is 1, by any rule
    assert denominators[0].item() == pytest.approx(ratio, rel=1e-4)
    for pair in range(1, width // 2 - 1):
        assert (denominators[pair] / denominators[pair - 1]).item() == pytest.approx(ratio, rel=1e-3)


def test_layer_norm_looks_at_one_token_alone() -> None:
    block = PostNormBlock(MultiHeadSelfAttention(16, 2), FeedForward(16, 32), 16)
    long = 3 * torch.randn(9, 16) + 2
    normed = block.attention_norm(long)
    assert torch.allclose(normed.mean(-1), torch.zeros(9), atol=1e-6)
    assert torch.allclose(normed.var(-1, unbiased=False), torch.ones(9), atol=1e-4)
    # the length of the sequence plays no part: a token alone, or among fewer, comes out the same
    assert torch.allclose(block.attention_norm(long[4]), normed[4], atol=1e-6)
    assert torch.allclose(block.attention_norm(long[:5]), normed[:5], atol=1e-6)

    # normalised over the whole input, a token would change with its neighbours
    def whole(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, tuple(x.shape))

    assert not torch.allclose(whole(long)[:5], whole(long[:5]), atol=1e-2)


class Multiplications(TorchFunctionMode):
    """Counts them in every matrix product: (…, a, b) by (…, b, c) has … · a · b · c."""

    count = 0

    def __torch_function__(self, function: Callable[..., Any], _: Any, inputs: Any = (), options: Any = None) -> Any:
        result = function(*inputs, **(options or {}))
        if function in (nn.functional.linear, Tensor.matmul, Tensor.__matmul__):
            self.count += result.numel() * inputs[0].size(-1)
        return result


def test_narrow_heads_keep_the_cost_constant() -> None:
    x = torch.randn(1, 10, 64)

    def cost(heads: int, head_width: int | None = None) -> tuple[int, int]:
        layer = MultiHeadSelfAttention(64, heads, head_width)
        with Multiplications() as counter:
            layer(x, explicit)
        return counter.count, size(layer)

    # queries, keys, values and output: 4 · 10 · 64 · 64; scores and answers: 2 · 10 · 10 · 64
    assert cost(1) == cost(2) == cost(4) == cost(8) == (176_640, 16_640)
    assert cost(8, head_width=64)[0] == 8 * cost(1)[0]  # eight heads of full width


def test_every_head_reads_the_whole_vector() -> None:
    layer = MultiHeadSelfAttention(16, 4)
    x = torch.randn(1, 5, 16, requires_grad=True)
    _, weights = layer(x, explicit)
    assert weights is not None
    for head in range(4):
        (gradient,) = torch.autograd.grad(weights[0, head].square().sum(), x, retain_graph=True)
        assert (gradient.abs().sum((0, 1)) > 1e-6).all(), head  # all 16 numbers, not a quarter of them


def test_the_last_projection_of_multi_head_does_not_narrow() -> None:
    layer = MultiHeadSelfAttention(512, 8)
    assert layer.heads * layer.head_width == 512  # what the heads say, laid side by side, is as wide as the input
    assert layer.out.weight.shape == (512, 512)
    # and it mixes: a head's part of it reaches the whole width, where a maximum would keep one head and drop the rest
    assert (layer.out.weight.unflatten(1, (8, 64)).abs().sum(-1) > 0).all()


def looks(folder: hf.Folder, text: str) -> tuple[list[str], Tensor]:
    """The tokens of a text, and who looks at whom in every layer and head of real weights, (layers, H, T, T)."""
    encoded = folder.tokenizer.encode(text)
    with torch.inference_mode():
        encoding = folder.model.encoder(**Batch.of([encoded.ids]).inputs(), attention=range(folder.config.layers))
    return encoded.tokens, torch.stack([encoding.attention[n][0] for n in range(folder.config.layers)])


@pytest.fixture(scope="module")
def real(minilm: Path) -> hf.Folder:
    return hf.load(minilm)


def test_a_word_need_not_look_at_itself_most(real: hf.Folder) -> None:
    tokens, weights = looks(real, "The animal didn't cross the street because it was too tired")
    own = torch.arange(len(tokens))
    first = (weights.argmax(-1) == own)[:, :, 1:-1].float().mean().item()
    assert first == pytest.approx(0.02, abs=0.005)  # the words, in all 72 heads: mostly they look at [CLS] and [SEP]
    words = weights[:, :, 1:-1, 1:-1]
    among_words = (words.argmax(-1) == own[:-2]).float().mean().item()
    assert among_words == pytest.approx(0.17, abs=0.005)  # and with those two left out, mostly at another word

    # untrained, a word has no better chance with itself than with any other of the ten
    x = torch.randn(2000, 10, 16)
    _, weights = SelfAttention(16, 16)(x)
    assert (weights.argmax(-1) == torch.arange(10)).float().mean().item() < 0.3


def test_it_turns_from_the_animal_to_the_street(real: hf.Folder) -> None:
    share = {}
    for last in ("tired", "narrow"):
        tokens, weights = looks(real, f"The animal didn't cross the street because it was too {last}")
        it = weights[:, :, tokens.index("it")].mean((0, 1))  # (T,) over all layers and heads
        animal, street = it[tokens.index("animal")].item(), it[tokens.index("street")].item()
        share[last] = street / (animal + street)
    assert share == pytest.approx({"tired": 0.39, "narrow": 0.46}, abs=0.005)


def test_playing_is_one_piece_and_ing_carries_a_mark(real: hf.Folder) -> None:
    assert real.tokenizer.encode("playing", special=False).tokens == ["playing"]
    small = Tokenizer.from_vocabulary([*SPECIAL, "play", "##ing", "ing"])
    assert small.encode("playing", special=False).tokens == ["play", "##ing"]
    assert small.encode("play ing", special=False).tokens == ["play", "ing"]  # two words: another token
    assert small.id("ing") != small.id("##ing")


PASSAGE = (
    "In meteorology, precipitation is any product of the condensation of atmospheric water vapor that falls under "
    "gravity. The main forms of precipitation include drizzle, rain, sleet, snow, graupel and hail."
)
ASKED = {
    "What causes precipitation to fall?": "gravity",
    "What is another main form of precipitation besides drizzle, rain, snow, sleet and hail?": "graupel",
}


@pytest.mark.parametrize("question", ASKED)
def test_an_answer_is_a_span_of_the_passage(real: hf.Folder, question: str) -> None:
    answer = ASKED[question]
    encoded = real.tokenizer.encode(question, PASSAGE)
    spans = list(zip(encoded.segments, encoded.offsets, strict=True))
    starts = {start: place for place, (segment, (start, _)) in enumerate(spans) if segment == 1}
    ends = {end: place for place, (segment, (_, end)) in enumerate(spans) if segment == 1}
    at = PASSAGE.index(answer)
    s, e = starts[at], ends[at + len(answer)]  # the two places a span head is trained to point at
    assert encoded.segments[s : e + 1] == [1] * (e + 1 - s)
    assert PASSAGE[encoded.offsets[s][0] : encoded.offsets[e][1]] == answer
    assert answer not in question  # so q_s … q_e, a span of the question, cannot be it


def test_the_page_names_every_test_and_only_those() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", page))
    code = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    here = {node.name for node in code.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert named == here - {"test_the_page_names_every_test_and_only_those"}
