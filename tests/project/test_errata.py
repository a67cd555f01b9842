"""Where the lecture notes slip, shown: the tests that docs/errata.md names, which quotes the notes.

Each test compares what the notes say with what the code does, so that it would fail if the notes were right.
"""

import ast
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import qkv
from qkv.data.batch import Batch
from qkv.data.corpus.rows import IS_NEXT
from qkv.models.bert import folder as hf
from qkv.models.bert.config import BertConfig
from qkv.models.bert.network import BertWithHeads
from qkv.models.bert.objective import MaskedAndNextSentence, MaskingConfig, Vocabulary, mask_tokens
from qkv.models.elmo.network import Elmo, ElmoConfig
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.attention import SelfAttention, attend, attention, causal_mask, dot_scores, masked_softmax
from qkv.nn.block import FeedForward, PostNormBlock
from qkv.nn.multihead import MultiHeadCrossAttention, MultiHeadSelfAttention, explicit
from qkv.nn.position import sinusoidal_table
from qkv.nn.recurrent import LSTM
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
    # in other sizes it may narrow: eight heads that are each as wide as the input
    assert MultiHeadSelfAttention(64, 8, head_width=64).out.weight.shape == (64, 512)


def looks(folder: hf.Folder, *texts: str) -> list[tuple[list[str], Tensor]]:
    """The tokens of every text, and who looks at whom in each layer and head of real weights, (layers, H, T, T)."""
    encoded = [folder.tokenizer.encode(text) for text in texts]
    deep = range(folder.config.layers)
    with torch.inference_mode():
        encoding = folder.model.encoder(**Batch.of([one.ids for one in encoded]).inputs(), attention=deep)
    found = torch.stack([encoding.attention[n] for n in deep], dim=1)  # (R, layers, H, T, T)
    return [(one.tokens, found[row, ..., : len(one.ids), : len(one.ids)]) for row, one in enumerate(encoded)]


@pytest.fixture(scope="module")
def real(minilm: Path) -> hf.Folder:
    return hf.load(minilm)


@pytest.fixture(scope="module")
def mini() -> hf.Folder:
    """The BERT of the package."""
    return hf.load(Path(qkv.__file__).parent / "zoo" / "qkv-mini")


def first_at_itself(weights: Tensor) -> Tensor:
    """(layers, H, T, T) → (layers, H, T), whether a token looks at itself most."""
    return weights.argmax(-1) == torch.arange(weights.size(-1))


@pytest.mark.parametrize(
    ("name", "heads", "share", "marks", "among_words", "thinking"),
    [("real", 72, 0.02, 0.77, 0.17, 3), ("mini", 48, 0.21, 0.40, 0.33, 8)],
)
def test_a_word_need_not_look_at_itself_most(
    request: pytest.FixtureRequest, name: str, heads: int, share: float, marks: float, among_words: float, thinking: int
) -> None:
    example = "The animal didn't cross the street because it was too tired"
    (_, weights), (_, of_notes) = looks(request.getfixturevalue(name), example, "Thinking Machines")
    assert weights.size(0) * weights.size(1) == heads
    # the words, in all heads: mostly they look at another token, often [CLS] or [SEP]
    most = weights.argmax(-1)[:, :, 1:-1]
    assert ((most == 0) | (most == weights.size(-1) - 1)).float().mean().item() == pytest.approx(marks, abs=0.005)
    assert first_at_itself(weights)[:, :, 1:-1].float().mean().item() == pytest.approx(share, abs=0.005)
    # and with those two left out, mostly at another word
    words = weights[:, :, 1:-1, 1:-1]
    assert first_at_itself(words).float().mean().item() == pytest.approx(among_words, abs=0.005)
    assert first_at_itself(of_notes)[:, :, 1].sum().item() == thinking  # the example of the notes


def test_an_untrained_word_has_no_better_chance_with_itself() -> None:
    _, weights = SelfAttention(16, 16)(torch.randn(2000, 10, 16))
    assert first_at_itself(weights).float().mean().item() < 0.3


# two nouns, and the last words with which "it" is the first or the second; written before any model had seen them
MEANT = [
    ("The animal didn't cross the street because it was too {}.", "animal", "street", "tired", "narrow"),
    ("The trophy didn't fit in the suitcase because it was too {}.", "trophy", "suitcase", "big", "small"),
    ("The dog didn't drink the water because it was too {}.", "dog", "water", "scared", "dirty"),
    ("The cat didn't eat the fish because it was too {}.", "cat", "fish", "full", "salty"),
    ("The truck didn't cross the bridge because it was too {}.", "truck", "bridge", "heavy", "weak"),
    ("The boat didn't enter the river because it was too {}.", "boat", "river", "damaged", "shallow"),
    ("The horse didn't climb the hill because it was too {}.", "horse", "hill", "old", "steep"),
    ("The bird didn't leave the cage because it was too {}.", "bird", "cage", "weak", "safe"),
    ("The car didn't take the road because it was too {}.", "car", "road", "slow", "icy"),
    ("The plane didn't land on the field because it was too {}.", "plane", "field", "fast", "muddy"),
    ("The letter didn't go into the envelope because it was too {}.", "letter", "envelope", "long", "small"),
    ("The sofa didn't go through the door because it was too {}.", "sofa", "door", "wide", "narrow"),
    ("The fish didn't take the bait because it was too {}.", "fish", "bait", "clever", "old"),
    ("The mouse didn't reach the cheese because it was too {}.", "mouse", "cheese", "small", "far"),
    ("The elephant didn't enter the room because it was too {}.", "elephant", "room", "big", "small"),
    ("The robot didn't lift the box because it was too {}.", "robot", "box", "weak", "heavy"),
]


def second_shares(folder: hf.Folder) -> Tensor:
    """(pairs, 2): of what "it" gives to the two nouns, averaged over all layers and heads, the share of the second;
    with the last word that means the first, and with the one that means the second."""
    texts = [frame.format(last) for frame, _, _, *lasts in MEANT for last in lasts]
    nouns = [pair[1:3] for pair in MEANT for _ in range(2)]
    shares = []
    for text, pair, (_, weights) in zip(texts, nouns, looks(folder, *texts), strict=True):
        places = [places_of(folder, text, word) for word in ("it", *pair)]
        it = weights[:, :, places[0][0]].mean((0, 1))  # (T,)
        first, second = (it[inside].sum().item() for inside in places[1:])
        shares.append(second / (first + second))
    return torch.tensor(shares).view(-1, 2)


def places_of(folder: hf.Folder, text: str, word: str) -> list[int]:
    """The tokens of a word that stands once in a text, between blanks."""
    begin = text.index(f" {word} ") + 1
    offsets = folder.tokenizer.encode(text).offsets
    return [place for place, (a, b) in enumerate(offsets) if begin <= a < b <= begin + len(word)]


@pytest.mark.parametrize(
    ("name", "tired", "narrow", "mean", "number"), [("real", 0.39, 0.46, 0.013, 10), ("mini", 0.49, 0.54, 0.0, 7)]
)
def test_it_moves_towards_the_street_in_this_pair_and_not_in_every(
    request: pytest.FixtureRequest, name: str, tired: float, narrow: float, mean: float, number: int
) -> None:
    shares = second_shares(request.getfixturevalue(name))
    assert shares[0].tolist() == pytest.approx([tired, narrow], abs=0.005)
    moved = shares[:, 1] - shares[:, 0]
    assert moved.mean().item() == pytest.approx(mean, abs=0.002)
    towards = int((moved > 0).sum())
    assert abs(towards - number) <= 1  # some move by less than a thousandth
    # of 16 coins 4 to 12 show heads in 97.9 % of cases: no more than chance
    assert 4 <= towards <= 12


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


def small_bert(*heads: str) -> BertWithHeads:
    config = BertConfig(
        vocabulary_size=40, layers=2, width=16, heads=2, inner_width=32, max_length=256, initial_std=0.2
    )
    return BertWithHeads(config, heads).eval()


def test_segments_alone_do_not_hide_a_word_from_itself() -> None:
    model = small_bert("masked", "next_sentence")

    def said(word: int) -> Tensor:
        pair = Batch.of([[2, 7, word, 9, 3, 11, 12, 3]], segments=[[0] * 5 + [1] * 3])
        return model.predict("masked", model.encoder(**pair.inputs()).hidden)

    with torch.no_grad():
        seen, other = said(8), said(10)
    assert not torch.allclose(seen[2], other[2], atol=1e-3)  # at the word itself
    assert not torch.allclose(seen[5], other[5], atol=1e-4)  # and, through the layers, everywhere
    # so a word that is to be predicted has to go: with [MASK] in its place both inputs are one


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "he", "got", "bit", "by", "python", "is", "a", "language"]


def small_elmo() -> Elmo:
    torch.manual_seed(0)
    return Elmo(ElmoConfig(len(WORDS), filters=(4, 4, 4), width=6, cell_width=10, dropout=0.0), WORDS).eval()


def elmo_at(network: Elmo, ids: Sequence[int], place: int) -> tuple[Tensor, Tensor]:
    """log p of the word at a place: as the forward model says one token before, the backward one after (V,) each."""
    top = network(torch.tensor(ids), (len(ids),))[:, -1]  # (N, 2 P)
    forward, backward = top[place - 1].chunk(2)[0], top[place + 1].chunk(2)[1]
    return network.predict(forward).log_softmax(-1), network.predict(backward).log_softmax(-1)


def test_each_direction_of_elmo_predicts_from_its_own_side() -> None:
    network = small_elmo()
    with torch.no_grad():
        left, right = elmo_at(network, [2, 4, 5, 6, 7, 8, 3], 3)
        other_right = elmo_at(network, [2, 4, 5, 6, 9, 10, 3], 3)
        other_left = elmo_at(network, [2, 10, 9, 6, 7, 8, 3], 3)
    assert torch.equal(left, other_right[0])  # what follows the word plays no part
    assert torch.equal(right, other_left[1])  # nor what comes before it
    assert not torch.allclose(right, other_right[1], atol=1e-4)
    assert not torch.allclose(left, other_left[0], atol=1e-4)
    # their product alone, which training never forms, knows both: p(w | left) p(w | right), here without / p(w)
    for one, other in (other_right, other_left):
        assert not torch.allclose((left + right).softmax(-1), (one + other).softmax(-1), atol=1e-5)


def test_both_directions_of_elmo_train_what_they_share() -> None:
    network = small_elmo()
    ids = torch.tensor([2, 4, 5, 6, 7, 8, 3])
    forward, backward = network(ids, (7,))[:, -1].chunk(2, dim=-1)
    losses = {
        "forward": functional.cross_entropy(network.predict(forward[:-1]), ids[1:]),
        "backward": functional.cross_entropy(network.predict(backward[1:]), ids[:-1]),
    }
    names, parameters = zip(*network.named_parameters(), strict=True)
    reached = {}
    for way, loss in losses.items():
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        reached[way] = {
            name.split(".")[0]
            for name, found in zip(names, gradients, strict=True)
            if found is not None and found.any()
        }
    assert reached["forward"] & reached["backward"] == {"characters", "scores"}  # one model, trained in one go
    assert reached["forward"] ^ reached["backward"] == {"forward_stack", "backward_stack"}  # here the notes are right


def test_the_loss_is_at_the_chosen_places_alone() -> None:
    ids = np.random.default_rng(0).integers(5, 40, 200)
    vocabulary = Vocabulary(40, 4, frozenset(range(5)))
    masked = mask_tokens(ids, np.zeros(200, np.int64), None, vocabulary, MaskingConfig(), np.random.default_rng(1))
    assert len(masked.chosen) == pytest.approx(0.15 * 200, abs=1)

    labels = {"masked_at": torch.from_numpy(masked.chosen), "masked": torch.from_numpy(masked.targets)}
    batch, model = Batch.of([masked.ids.tolist()], labels=labels), small_bert("masked")
    with torch.no_grad():
        loss = MaskedAndNextSentence(next_sentence=False).terms(model, batch)["masked"].loss.item()
        logits = model.predict("masked", model.encoder(**batch.inputs()).hidden)  # of all 200 places
    each = functional.cross_entropy(logits, torch.from_numpy(ids), reduction="none")
    assert loss == pytest.approx(each[masked.chosen].sum().item(), rel=1e-5)
    assert loss < 0.3 * each.sum().item()


STORIES = [
    [
        "The heavy rain began on Monday evening and did not stop for two days.",
        "By Wednesday the river had left its bed and covered the fields.",
        "Farmers moved their animals to the hills before the bridge was closed.",
        "The water fell slowly, and the first families went home a week later.",
    ],
    [
        "She studied physics at the university and wrote her thesis on light.",
        "After her degree she worked in a small laboratory in Berlin.",
        "There she measured how fast electrons move through thin metal.",
        "Her results were published in 1931 and won a prize.",
    ],
    [
        "The museum was built in the old railway station.",
        "It shows paintings from the nineteenth century on three floors.",
        "The largest hall holds the works of the impressionists.",
        "Visitors may enter free on the first Sunday of the month.",
    ],
    [
        "The team lost its first three games of the season.",
        "The coach then changed the whole defence.",
        "They won the next eight matches without a defeat.",
        "In May the players lifted the cup in front of their fans.",
    ],
    [
        "这座城市建于十二世纪，位于两条河流的交汇处。",
        "城墙在战争中被毁，后来又重新修建。",
        "今天，旧城区是游客最喜欢的地方。",
        "每年春天，人们在广场上举行音乐节。",
    ],
    [
        "他从小喜欢画画，十岁时得到第一盒颜料。",
        "中学毕业以后，他考入了美术学院。",
        "他的老师是一位著名的山水画家。",
        "四年后，他在上海举办了自己的第一次画展。",
    ],
]


def test_the_next_sentence_head_knows_the_topic_and_not_the_order(mini: hf.Folder) -> None:
    def next_of(pairs: Sequence[tuple[str, str]]) -> int:
        """How many of the pairs it calls IsNext."""
        encoded = [mini.tokenizer.encode(*pair) for pair in pairs]
        batch = Batch.of([one.ids for one in encoded], segments=[one.segments for one in encoded])
        with torch.inference_mode():
            logits = mini.model.predict("next_sentence", mini.model.encoder(**batch.inputs()).pooled)
        return int((logits.argmax(-1) == IS_NEXT).sum())

    following = [pair for story in STORIES for pair in pairwise(story)]
    assert len(following) == next_of(following) == 18
    assert next_of([(second, first) for first, second in following]) == 18  # turned round, not one is refused
    others = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 4)]  # another story in the same language
    strangers = [pair for a, b in others for pair in zip(STORIES[a], STORIES[b], strict=True)]
    assert len(strangers) == 24
    assert abs(next_of(strangers) - 7) <= 1  # what it does notice is another topic


def test_self_attention_does_not_wait_for_other_positions() -> None:
    layer, x = SelfAttention(8, 8), torch.randn(6, 8)
    together, _ = layer(x)
    for place in (5, 0, 3, 1, 4, 2):  # one at a time, in any order, none with the result of another
        alone, _ = attention(layer.query(x[place : place + 1]), layer.key(x), layer.value(x))
        assert torch.allclose(alone[0], together[place], atol=1e-6)
    assert not torch.allclose(layer(x[:3])[0][0], together[0], atol=1e-4)  # though it reads their inputs

    # a recurrent step does wait: without the state of the step before, it comes out differently
    rnn = nn.RNN(8, 8)
    assert not torch.allclose(rnn(x)[0][3], rnn(x[3:])[0][0], atol=1e-3)


def test_a_causal_decoder_keeps_some_order_without_positions() -> None:
    blocks = [PostNormBlock(MultiHeadSelfAttention(16, 2), FeedForward(16, 32), 16).eval() for _ in range(2)]
    x = torch.randn(1, 6, 16)  # words without positions
    order = torch.tensor([3, 0, 4, 2, 1, 5])  # all but the last word move

    def run(x: Tensor, layers: int, causal: bool) -> Tensor:
        for block in blocks[:layers]:
            x, _ = block(x, partial(explicit, causal=causal))
        return x[0]

    with torch.no_grad():
        assert torch.allclose(run(x[:, order], 2, False), run(x, 2, False)[order], atol=1e-5)  # an encoder
        assert torch.allclose(run(x[:, order], 1, True)[5], run(x, 1, True)[5], atol=1e-5)  # one layer: a bag
        assert not torch.allclose(run(x[:, order], 2, True)[5], run(x, 2, True)[5], atol=1e-3)  # two: who saw whom


def test_what_a_mask_fills_is_the_score() -> None:
    scores, value, mask = torch.randn(4, 4), torch.randn(4, 3), causal_mask(4)
    answer, weights = attend(scores, value, mask)
    assert torch.allclose(weights.sum(-1), torch.ones(4)) and (weights[~mask] == 0).all()
    for row in range(4):  # as if the others were not there
        assert torch.allclose(weights[row, : row + 1], scores[row, : row + 1].softmax(-1))
        assert torch.allclose(answer[row], scores[row, : row + 1].softmax(-1) @ value[: row + 1], atol=1e-6)
    # the weights, which are those after the softmax, filled with it: the sum is no mean any more
    assert (scores.softmax(-1).masked_fill(~mask, -1e4).sum(-1)[:3] < -9e3).all()
    # nor does another softmax save it
    again = masked_softmax(scores.softmax(-1), mask)
    assert not torch.allclose(again[3], weights[3], atol=1e-2)


def test_the_cell_state_is_not_kept_within_one() -> None:
    cell = LSTM(1, 1)
    for parameter in cell.parameters():
        nn.init.zeros_(parameter)
    nn.init.constant_(cell.from_input.bias, 10.0)  # all gates open, the candidate at tanh(10), almost 1
    state = cell.begin(1)
    for _ in range(20):
        found = cell.equations(cell.from_input(torch.zeros(1, 1)), state)
        assert found["g"].abs().item() <= 1 and found["h"].abs().item() <= 1  # what has just passed a tanh
        state = cell.state_in(found)
    assert state[1].item() == pytest.approx(20, abs=0.1)  # 1 more a step


def test_the_decoder_receives_what_the_encoder_puts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig(20, encoder_layers=1, decoder_layers=1, width=8, heads=2, inner_width=16)
    ).eval()
    source, other, target = (Batch.of([row]) for row in ([3, 4, 5, 6], [9, 8, 7, 10], [1, 2, 3]))

    def translate(batch: Batch) -> Tensor:
        with torch.no_grad():
            return model(batch.ids, batch.packing, target.ids, target.packing)

    before = translate(source)
    assert not torch.allclose(before, translate(other), atol=1e-3)
    for parameter in model.encoder.parameters():
        nn.init.normal_(parameter)  # the same input to another encoder
    assert not torch.allclose(before, translate(source), atol=1e-3)
    output = model.encode(source.ids, source.packing)
    monkeypatch.setattr(model, "encode", lambda *_: output)  # another input, and the same output
    assert torch.equal(translate(source), translate(other))


def functions(file: Path) -> set[str]:
    """The names of a file's tests."""
    code = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in code.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_page_names_every_test_and_only_those() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "errata.md").read_text(encoding="utf-8")
    here = functions(Path(__file__)) - {"test_the_page_names_every_test_and_only_those"}
    assert set(re.findall(r"`(test_[a-z0-9_]+)`", page)) == here
    elsewhere = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", page)
    assert elsewhere and not [name for file, name in elsewhere if name not in functions(root / file)]
