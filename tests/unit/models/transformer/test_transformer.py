"""The Transformer: against torch.nn.Transformer, blind to the future, and the same text whichever way it is read."""

import copy
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.transformer.decoding import TransformerDecoding
from qkv.models.transformer.network import PRESETS, Transformer, TransformerConfig, alignment_layer
from qkv.nn.attention import causal_mask
from qkv.nn.position import sinusoidal_table
from tests.support.folders import randomise

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {
    "vocabulary_size": 30,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "width": 16,
    "heads": 4,
    "inner_width": 24,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre", "activation": "gelu"},
    "separate": {"source_vocabulary_size": 20},
    "marian": {"positions": "halved", "activation": "silu"},
}
SOURCE = Batch.of([[5, 6, 7, 1], [3, 1], [8, 9, 10, 11, 12, 1], [4, 4, 1]])
TARGET = Batch.of([[2, 20, 21, 22, 23], [2], [2, 25, 26, 20], [2, 24, 24, 24, 20]])


def make(variant: str = "paper", **changes: Any) -> Transformer:
    model = Transformer(TransformerConfig(**(SMALL | VARIANTS[variant] | changes)))
    randomise(model)
    return model.double().eval()


@torch.no_grad()
def logits_of(model: Transformer, source: Batch, target: Batch) -> Tensor:
    return model.scores(model(source.ids, source.packing, target.ids, target.packing))


def torch_s(model: Transformer) -> nn.Transformer:
    """The same weights in torch.nn.Transformer: another implementation of the paper, padded and masked."""
    pre = model.config.norm == "pre"
    theirs = nn.Transformer(16, 4, 2, 3, 24, dropout=0.0, batch_first=True, norm_first=pre, dtype=torch.float64)
    names = {"attention_norm": "norm1", "attention.out": "self_attn.out_proj", "attention.qkv": "self_attn.in_proj_"}
    names |= {"feed_forward.up": "linear1", "feed_forward.down": "linear2"}
    in_encoder = names | {"feed_forward_norm": "norm2"}
    in_decoder = names | {"feed_forward_norm": "norm3", "cross_attention_norm": "norm2"}
    in_decoder |= {"cross_attention.out": "multihead_attn.out_proj"}
    for ours, others, table in (
        (model.encoder, theirs.encoder.layers, in_encoder),
        (model.decoder, theirs.decoder.layers, in_decoder),
    ):
        for block, layer in zip(ours, others, strict=True):
            held = block.state_dict()
            state = {}
            for kind in ("weight", "bias"):
                for name, other in table.items():
                    state[f"{other}{kind}" if other.endswith("_") else f"{other}.{kind}"] = held.pop(f"{name}.{kind}")
                if held_too := [held.pop(key) for key in list(held) if key.endswith(kind)]:  # query, then key and value
                    state[f"multihead_attn.in_proj_{kind}"] = torch.cat(held_too)
            layer.load_state_dict(state, strict=True)
    for side, norm in ((theirs.encoder, model.encoder_norm), (theirs.decoder, model.decoder_norm)):
        side.norm = norm  # none after post-norm blocks, where torch has one and the paper has not
    return theirs


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_same_as_torch(norm: str) -> None:
    model = make(norm=norm)
    theirs = torch_s(model)  # in training, without dropout: its ways for inference are another implementation

    def read(batch: Batch) -> Tensor:
        return model.embedding(batch.padded().ids) * 16**0.5 + sinusoidal_table(batch.longest, 16)

    with torch.no_grad():
        expected = theirs(
            read(SOURCE),
            read(TARGET),
            tgt_mask=~causal_mask(TARGET.longest),  # True hides, there
            src_key_padding_mask=~SOURCE.padded().mask,
            memory_key_padding_mask=~SOURCE.padded().mask,
        )
        found = model(SOURCE.ids, SOURCE.packing, TARGET.ids, TARGET.packing)
    assert (found - TARGET.unpad(expected)).abs().max() < 1e-10


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_future_is_not_seen(variant: str) -> None:
    model = make(variant)
    before = logits_of(model, SOURCE, TARGET)
    changed = TARGET.ids.clone()
    last = TARGET.offsets[1:].long() - 1
    changed[last] = 9
    after = logits_of(model, SOURCE, Batch.packed(changed, TARGET.lengths))
    earlier = torch.ones(TARGET.n_tokens, dtype=torch.bool)
    earlier[last] = False
    assert torch.equal(before[earlier], after[earlier])
    assert (before[last] - after[last]).abs().amin() > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_does_not_depend_on_its_neighbours(variant: str) -> None:
    model = make(variant)
    together = TARGET.rows(logits_of(model, SOURCE, TARGET))
    for source, target, logits in zip(SOURCE.rows(SOURCE.ids), TARGET.rows(TARGET.ids), together, strict=True):
        alone = logits_of(model, Batch.of([source.tolist()]), Batch.of([target.tolist()]))
        assert torch.allclose(alone, logits, atol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_by_step_is_all_at_once_through_any_selection(variant: str) -> None:
    """Hypotheses are doubled, dropped and mixed as no search would; each must score as if written whole."""
    model = make(variant)
    chance = random.Random(0)
    sources = [row.tolist() for row in SOURCE.rows(SOURCE.ids)]
    texts = [(number, [2]) for number in range(len(sources)) for _ in range(2)]  # of which source, and what is written
    state = model.start(SOURCE.ids, SOURCE.packing, hypotheses=2, longest=12)
    for _ in range(12):
        found = model.step(torch.tensor([text[-1] for _, text in texts]), state)
        source, target = Batch.of([sources[number] for number, _ in texts]), Batch.of([text for _, text in texts])
        expected = logits_of(model, source, target)[target.offsets[1:].long() - 1]
        assert torch.allclose(found.logits, expected, atol=1e-10)
        assert found.attention is not None
        assert found.attention.shape == (len(texts), SOURCE.longest)
        for (number, _), looked in zip(texts, found.attention, strict=True):
            assert looked.sum().item() == pytest.approx(1)
            assert (looked[len(sources[number]) :] == 0).all()
        rows = sorted(chance.choices(range(len(texts)), k=chance.choice([len(texts), 3, 9])))
        if chance.random() < 0.3:
            chance.shuffle(rows)
        texts = [(texts[row][0], [*texts[row][1], chance.randrange(30)]) for row in rows]
        state = found.state.select(torch.tensor(rows))


def test_a_state_is_gone_on_from_once() -> None:
    model = make()
    state = model.start(SOURCE.ids, SOURCE.packing)
    model.step(torch.full((4,), 2), state)
    with pytest.raises(AssertionError, match="already"):
        state.select(torch.tensor([0]))
    with pytest.raises(AssertionError, match="eval"):
        model.train().start(SOURCE.ids, SOURCE.packing)


def test_attention_is_of_the_layer_that_was_asked_for() -> None:
    looks = []
    for layer in (None, 0, 1, 2):
        model = make(alignment_layer=layer)
        looks.append(model.step(torch.full((4,), 2), model.start(SOURCE.ids, SOURCE.packing)).attention)
    default, first, middle, last = looks
    assert default is not None and first is not None and middle is not None and last is not None
    assert torch.equal(default, last)
    assert not torch.allclose(first, middle) and not torch.allclose(middle, last)
    layers = {number: alignment_layer(TransformerConfig(30, decoder_layers=number)) for number in (1, 2, 3, 4, 6)}
    assert layers == {1: 0, 2: 1, 3: 2, 4: 2, 6: 4}
    one = make(decoder_layers=1)
    assert one.step(torch.full((4,), 2), one.start(SOURCE.ids, SOURCE.packing)).attention is not None


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_gets_a_gradient(variant: str) -> None:
    model = make(variant, dropout=0.1, activation="gelu").train()  # a ReLU may be off for all of these few tokens
    source, target = Batch.of([list(range(20))] * 2), Batch.of([list(range(30)), [3]])
    logits = model.scores(model(source.ids, source.packing, target.ids, target.packing))
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        moved = parameter.grad.reshape(len(parameter), -1).abs().sum(-1)
        if name.endswith(("qkv.bias", "key_value.bias")):
            # the bias of the keys moves all scores of a query alike, and a softmax does not see that
            moved = torch.cat([moved[:16], moved[32:]]) if "qkv" in name else moved[16:]
        assert (moved > 0).all(), name


def test_which_tables_are_one() -> None:
    joint, separate = make(), make("separate")
    tables = {name: tuple(one.shape) for name, one in joint.named_parameters() if one.shape in ((30, 16), (20, 16))}
    assert tables == {"embedding.weight": (30, 16)}
    tables = {name: tuple(one.shape) for name, one in separate.named_parameters() if one.shape in ((30, 16), (20, 16))}
    assert tables == {"embedding.weight": (30, 16), "source_embedding.weight": (20, 16)}
    hidden, table, bias = joint.before_words(torch.randn(2, 16, dtype=torch.float64))
    assert torch.allclose(hidden @ table.T + bias, joint.scores(hidden))


def test_the_paper_s_sizes() -> None:
    """Table 3: 65 million parameters for base with a vocabulary of 37,000, and 213 million for big."""
    for name, millions in (("base", 63), ("big", 214)):
        with torch.device("meta"):
            model = Transformer(TransformerConfig.preset(name, vocabulary_size=37_000))
        assert sum(parameter.numel() for parameter in model.parameters()) // 10**6 == millions
    assert set(PRESETS) == {"tiny", "small", "base", "big"}


def test_reversing_is_learned() -> None:
    """A copy task before the real one: three digits backwards, which nothing but attention with positions can do."""
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig(13, encoder_layers=1, decoder_layers=1, width=32, heads=2, inner_width=64, dropout=0.0)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        digits = torch.randint(3, 13, (64, 3))
        losses = nn.functional.cross_entropy(model.scores(model(*_reversed(digits))), digits.flip(1).flatten())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
    digits = torch.tensor([[3, 4, 5], [12, 3, 7]])
    model.eval()
    source, packing, *_ = _reversed(digits)
    state, tokens, written = model.start(source, packing), torch.tensor([2, 2]), []
    for _ in range(3):
        logits, state, _ = model.step(tokens, state)
        tokens = logits.argmax(-1)
        written.append(tokens)
    assert torch.stack(written, dim=1).tolist() == [[5, 4, 3], [7, 3, 12]]


def _reversed(digits: Tensor) -> tuple[Tensor, Any, Tensor, Any]:
    source = Batch.of(digits.tolist())
    target = Batch.of([[2, *row[:-1]] for row in digits.flip(1).tolist()])
    return source.ids, source.packing, target.ids, target.packing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "past"}, "Unknown norm 'past'. Did you mean 'post'?"),
        ({"activation": "rleu"}, "Did you mean 'relu'?"),
        ({"positions": "learned"}, "Unknown positions 'learned'. Known: sinusoidal, halved."),
        ({"width": 15, "heads": 5}, "width 15 is odd"),
        ({"heads": 3}, "width 16 is not divisible by 3 heads"),
        ({"decoder_layers": 0}, "decoder_layers must be at least 1, not 0"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"alignment_layer": 3}, "alignment_layer counts the decoder's layers, 0 to 2; 3 is none"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        TransformerConfig(**(SMALL | changes))
    assert message in str(raised.value)


def test_unknown_size() -> None:
    with pytest.raises(InputError, match="Did you mean 'base'"):
        TransformerConfig.preset("bsae", vocabulary_size=10)


def test_decoding_follows_training() -> None:
    """The layers by columns that decoding uses are no part of the model, and are never those of before."""
    model = Transformer(TransformerConfig(**SMALL)).eval()
    names = set(model.state_dict())

    def first() -> Tensor:
        return model.step(torch.full((4,), 2), model.start(SOURCE.ids, SOURCE.packing)).logits

    before = first()
    assert torch.equal(first(), before)
    begun = Batch.of([[2]] * 4)
    model.train()
    for parameter in model.parameters():
        parameter.data.mul_(1.1)  # which no tensor counts as a change
    model.eval()
    after = first()
    assert torch.allclose(after, logits_of(model, SOURCE, begun), atol=1e-5)
    assert not torch.allclose(after, before)
    assert set(model.state_dict()) == names


def test_a_text_longer_than_the_first_table_of_positions() -> None:
    model = make()
    state = model.start(SOURCE.ids[:4], Batch.of([[5, 6, 7, 1]]).packing, longest=70)
    text = [2 + number % 9 for number in range(70)]
    for token in text:
        logits, state, _ = model.step(torch.tensor([token]), state)
    expected = logits_of(model, Batch.of([[5, 6, 7, 1]]), Batch.of([text]))[-1]
    assert torch.allclose(logits[0], expected, atol=1e-10)


def test_another_thread_may_keep_a_shorter_table_of_positions() -> None:
    class Contested(TransformerDecoding):
        """Whatever table it keeps, another thread puts a shorter one in its place at once."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value[:64] if name == "_wave_table" and value is not None else value)

    network = Transformer(TransformerConfig(30, width=8, heads=2, inner_width=8, encoder_layers=1, decoder_layers=1))
    place = Contested()._waves(network, 100, torch.device("cpu"))
    torch.testing.assert_close(place, network.positions(torch.arange(101))[100:])


def test_a_model_that_has_decoded_can_be_copied_and_trained() -> None:
    model = make()
    with torch.inference_mode():
        model.step(torch.full((4,), 2), model.start(SOURCE.ids, SOURCE.packing))
    other = copy.deepcopy(model)
    logits = other.scores(other(SOURCE.ids, SOURCE.packing, TARGET.ids, TARGET.packing))
    logits.sum().backward()
    found = other.step(torch.full((4,), 2), other.start(SOURCE.ids, SOURCE.packing)).logits
    expected = model.step(torch.full((4,), 2), model.start(SOURCE.ids, SOURCE.packing)).logits
    torch.testing.assert_close(found, expected)
