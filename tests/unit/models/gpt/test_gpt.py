"""GPT: blind to what comes after, the same whichever way a text is read, and every part of it learns."""

import copy
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.bert.network import PRESETS as BERTS
from qkv.models.gpt.network import GPT, PRESETS, GPTConfig, positions_of
from qkv.nn.cpu.precision import explain_no_int8, set_precision
from qkv.search.beam import generate
from qkv.search.options import GenerateConfig
from tests.support.folders import randomise

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {
    "vocabulary_size": 30,
    "layers": 3,
    "width": 16,
    "heads": 4,
    "inner_width": 24,
    "max_length": 24,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt": {"order": "post"},
    "by layer": {"scaled_by_layer": True, "tied": False, "activation": "relu"},
}
ROWS = [[5, 6, 7, 1], [3], [8, 9, 10, 11, 12, 1], [4, 4]]
BATCH = Batch.of(ROWS)


def make(variant: str = "gpt2", **changes: Any) -> GPT:
    model = GPT(GPTConfig(**(SMALL | VARIANTS[variant] | changes)))
    randomise(model)
    return model.double().eval()


@torch.no_grad()
def logits_of(model: GPT, rows: list[list[int]]) -> list[Tensor]:
    batch = Batch.of(rows)
    return list(batch.rows(model.scores(model(batch.ids, batch.packing))))


@pytest.mark.parametrize("variant", VARIANTS)
def test_later_tokens_change_nothing(variant: str) -> None:
    model = make(variant)
    before = logits_of(model, ROWS)[2]
    for place in range(1, 6):
        changed = [*ROWS]
        changed[2] = [*ROWS[2][:place], *(20 + token for token in range(6 - place))]
        after = logits_of(model, changed)[2]
        assert torch.equal(before[:place], after[:place])
        assert not torch.allclose(before[place], after[place])


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_do_not_see_each_other(variant: str) -> None:
    model = make(variant)
    for alone, together in zip((logits_of(model, [row])[0] for row in ROWS), logits_of(model, ROWS), strict=True):
        assert torch.allclose(alone, together, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_cache_changes_nothing(variant: str) -> None:
    """Prompts of all lengths, rows that are doubled, moved and dropped at random: as if all were read anew."""
    model, chance = make(variant), random.Random(0)
    state = model.start(BATCH.ids, BATCH.packing, hypotheses=2, longest=12)
    texts = [list(row) for row in ROWS for _ in range(2)]
    for step in range(12):
        logits, state, attention = model.step(torch.tensor([text[-1] for text in texts]), state)
        assert attention is None
        expected = torch.stack([found[-1] for found in logits_of(model, texts)])
        assert torch.allclose(logits, expected, atol=1e-10)
        rows = list(range(len(texts)))
        if step % 2:
            rows = [chance.randrange(len(texts)) for _ in range(chance.choice([len(texts), 1, 3, 12]))]
            state = state.select(torch.tensor(rows))
        texts = [[*texts[row], chance.randrange(30)] for row in rows]


def test_one_prompt_and_a_prompt_of_one_token() -> None:
    model = make()
    for row in ([7], [7, 8, 9]):
        batch = Batch.of([row])
        state = model.start(batch.ids, batch.packing, longest=2)
        logits, state, _ = model.step(torch.tensor(row[-1:]), state)
        assert torch.allclose(logits[0], logits_of(model, [row])[0][-1], atol=1e-12)
        logits, _, _ = model.step(torch.tensor([11]), state)
        assert torch.allclose(logits[0], logits_of(model, [[*row, 11]])[0][-1], atol=1e-12)


def test_a_state_is_gone_on_from_once() -> None:
    model = make()
    state = model.start(BATCH.ids, BATCH.packing, longest=2)
    begin = BATCH.ids[BATCH.offsets[1:].long() - 1]
    model.step(begin, state)
    with pytest.raises(AssertionError, match="advanced already"):
        model.step(begin, state)
    with pytest.raises(AssertionError, match="advanced already"):
        state.select(torch.tensor([0]))


def test_no_more_than_there_are_positions_for() -> None:
    model = make()
    model.start(BATCH.ids, BATCH.packing, longest=19)  # the 25th token is written, and not read
    with pytest.raises(AssertionError, match="there are positions for 19"):
        model.start(BATCH.ids, BATCH.packing, longest=20)
    with pytest.raises(AssertionError, match="call eval"):
        make().train().start(BATCH.ids, BATCH.packing, longest=1)


@pytest.mark.parametrize("beams", [1, 3])
def test_texts_do_not_depend_on_their_neighbours(beams: int) -> None:
    model, config = make(), GenerateConfig(beams=beams, max_length=8)

    def written(rows: list[list[int]]) -> list[tuple[int, ...]]:
        batch = Batch.of(rows)
        state = model.start(batch.ids, batch.packing, hypotheses=beams, longest=8)
        begin = batch.ids[batch.offsets[1:].long() - 1]
        return [found[0].tokens for found in generate(model.step, state, begin, 2, config)]

    assert written(ROWS) == [text for row in ROWS for text in written([row])]


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_some_tokens_are_wanted(variant: str) -> None:
    model, only = make(variant), torch.tensor([12, 0, 3])
    whole = model(BATCH.ids, BATCH.packing)
    assert torch.allclose(model(BATCH.ids, BATCH.packing, only=only), whole[only], atol=1e-12)


def test_positions_are_counted_in_every_row() -> None:
    assert torch.equal(positions_of(BATCH.packing), BATCH.positions)
    model = make()
    given = model(BATCH.ids, BATCH.packing, BATCH.positions)
    assert torch.equal(given, model(BATCH.ids, BATCH.packing))
    moved = model(BATCH.ids, BATCH.packing, BATCH.positions + 1)
    assert not torch.allclose(given, moved)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_learns(variant: str) -> None:
    model = make(variant).train()
    model.scores(model(BATCH.ids, BATCH.packing)).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name


def test_dropout_is_for_training_alone() -> None:
    model = make(dropout=0.5, attention_dropout=0.5, embedding_dropout=0.5)
    assert torch.equal(model(BATCH.ids, BATCH.packing), model(BATCH.ids, BATCH.packing))
    model.train()
    assert not torch.equal(model(BATCH.ids, BATCH.packing), model(BATCH.ids, BATCH.packing))


def test_weights_that_change_are_written_with() -> None:
    """Writing computes with weights that lie otherwise (nn/cpu/precision.py), which must not be those of before."""
    model = make().float()
    begin = BATCH.ids[BATCH.offsets[1:].long() - 1]
    model.step(begin, model.start(BATCH.ids, BATCH.packing, longest=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    logits, _, _ = model.step(begin, model.start(BATCH.ids, BATCH.packing, longest=2))
    expected = torch.stack([found[-1] for found in logits_of(model, ROWS)])
    assert torch.allclose(logits, expected, atol=1e-3)
    torch.testing.assert_close(copy.deepcopy(model).scores(expected[:, :16]), model.scores(expected[:, :16]))


@pytest.mark.skipif(explain_no_int8() is not None, reason="no products of 8 bits here")
@pytest.mark.parametrize("variant", VARIANTS)
def test_8_bits_are_nearly_the_same(variant: str) -> None:
    model = make(variant, width=64, heads=4).float()
    begin = BATCH.ids[BATCH.offsets[1:].long() - 1]
    exact, _, _ = model.step(begin, model.start(BATCH.ids, BATCH.packing, longest=1))
    assert model.decoding.int8_bytes() == 0
    set_precision(model, "int8")
    state = model.start(BATCH.ids, BATCH.packing, longest=1)
    near, _, _ = model.step(begin, state)
    assert not torch.equal(near, exact)
    assert (near - exact).norm() < 0.1 * exact.norm()
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
    assert 0 < model.decoding.int8_bytes() < 2 * weights
    set_precision(model, "fp32")
    again, _, _ = model.step(begin, model.start(BATCH.ids, BATCH.packing, longest=1))
    assert torch.equal(again, exact)
    with pytest.raises(InputError, match="int8 is made from fp32 weights on a CPU; these are torch.float64"):
        set_precision(model.double(), "int8").start(BATCH.ids, BATCH.packing, longest=1)
    with pytest.raises(InputError, match="Unknown precision 'int4'"):
        set_precision(model, "int4")


@pytest.mark.skipif(explain_no_int8() is not None, reason="no products of 8 bits here")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("share", [1.0, 0.7, 0.0])
def test_guesses_change_nothing(variant: str, share: float) -> None:
    """A text that goes on with the likeliest token, or with another at times: all scores are the weights' own."""
    model, chance = make(variant, width=64, heads=4, max_length=80).float(), random.Random(0)
    text = [5, 6, 7]
    batch = Batch.of([text])
    state = set_precision(model, "drafted").start(batch.ids, batch.packing, longest=60)
    guessed = 0
    for step in range(60):
        guessed += state.draft is not None
        logits, state, _ = model.step(torch.tensor(text[-1:]), state)
        expected = logits_of(model, [text])[0][-1:]
        assert torch.allclose(logits, expected, atol=1e-4 * float(expected.abs().max()))
        text.append(int(logits.argmax()) if chance.random() < share else chance.randrange(30))
        if step == 20:
            state = state.select(torch.tensor([0]))
        if step == 40:  # twice, then once: what was guessed cannot be gone on from
            state = state.select(torch.tensor([0, 0])).select(torch.tensor([1]))
            assert state.draft is None
    assert guessed > 40 if share == 1.0 else guessed > 0
    assert state.past.room == 0


@pytest.mark.skipif(explain_no_int8() is not None, reason="no products of 8 bits here")
def test_guesses_are_for_a_single_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(width=64, heads=4).float()
    begin = BATCH.ids[BATCH.offsets[1:].long() - 1]
    exact, _, _ = model.step(begin, model.start(BATCH.ids, BATCH.packing, longest=4))
    state = set_precision(model, "drafted").start(BATCH.ids, BATCH.packing, longest=4)
    logits, state, _ = model.step(begin, state)
    assert torch.equal(logits, exact) and state.draft is None
    state = state.select(torch.tensor([2]))  # the longest prompt has left, and the others' places before them stay
    text = [*ROWS[2], 9]
    logits, state, _ = model.step(torch.tensor([9]), state)
    assert state.draft is not None and len(state.draft.tokens) == 2
    assert torch.allclose(logits[0], logits_of(model, [text])[0][-1], atol=1e-4)
    state = state.select(torch.tensor([0]))
    shorter = model.start(BATCH.ids, BATCH.packing, longest=4).select(torch.tensor([1]))
    logits, _, _ = model.step(torch.tensor([3]), shorter)
    assert torch.allclose(logits[0], logits_of(model, [[3]])[0][-1], atol=1e-4)


def test_what_the_scores_are_made_of() -> None:
    for variant in ("gpt2", "by layer"):
        model = make(variant)
        x, table, bias = model.before_words(model(BATCH.ids, BATCH.packing))
        made = x @ table.t() + (0 if bias is None else bias)
        assert torch.allclose(made, model.scores(x), atol=1e-12)


def test_residual_paths_are_drawn_smaller_where_nothing_holds_them() -> None:
    torch.manual_seed(0)
    pre = GPT(GPTConfig.preset("tiny", vocabulary_size=50, layers=8))
    post = GPT(GPTConfig.preset("tiny", vocabulary_size=50, layers=8, order="post"))
    for model, share in ((pre, 0.25), (post, 1.0)):
        drawn = {name: parameter.std().item() for name, parameter in model.blocks[0].named_parameters()}
        assert abs(drawn["feed_forward.down.weight"] / (0.02 * share) - 1) < 0.05
        assert abs(drawn["feed_forward.up.weight"] / 0.02 - 1) < 0.05


def test_presets() -> None:
    for name in PRESETS:
        assert GPTConfig.preset(name, vocabulary_size=7).vocabulary_size == 7
    gpt, gpt2 = (GPTConfig.preset(name, vocabulary_size=7) for name in ("gpt", "gpt2"))
    assert (gpt.layers, gpt.width, gpt.heads, gpt.order, gpt.max_length) == (12, 768, 12, "post", 512)
    assert (gpt2.layers, gpt2.width, gpt2.heads, gpt2.order, gpt2.max_length) == (12, 768, 12, "pre", 1024)
    assert BERTS["mini"].items() <= PRESETS["mini"].items()  # for comparisons at equal size
    with pytest.raises(InputError, match=r"Unknown size 'gtp'. Did you mean 'gpt'\?"):
        GPTConfig.preset("gtp", vocabulary_size=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 30}, "width 30 is not divisible by 4 heads"),
        ({"order": "before"}, "Unknown order 'before'"),
        ({"activation": "gleu"}, "Unknown activation 'gleu'. Did you mean 'gelu'"),
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"embedding_dropout": 1.0}, "embedding_dropout is a share from 0 to less than 1, not 1.0"),
    ],
)
def test_sizes_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GPTConfig(**(SMALL | change))
