import math
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.seq2seq.network import SCORE_KINDS, Seq2Seq, Seq2SeqConfig, Seq2SeqState
from qkv.nn.recurrent import CELLS
from qkv.nn.recurrent_decoder import AttentionDecoder
from qkv.nn.recurrent_stack import Bidirectional
from qkv.nn.source_attention import AdditiveScore, BilinearScore
from qkv.search.beam import generate
from qkv.search.decoding import EncoderDecoder
from qkv.search.options import GenerateConfig
from tests.support.recurrent_cells import by_hand

pytestmark = pytest.mark.usefixtures("one_thread")

SOURCE = Batch.of([[1, 2, 3], [4, 5, 6, 7, 8], [9]])
TARGET = Batch.of([[1, 2, 3, 4], [5, 12], [3, 4, 5, 6, 7]])

WAYS: dict[str, dict[str, Any]] = {
    "fixed": {"context": "fixed"},
    "every step": {"context": "every_step"},
    "additive": {"score": "additive"},
    "dot": {"score": "dot"},
    "bilinear": {"score": "bilinear", "encoder_width": 5},
    "additive, current": {"score": "additive", "query": "current"},
    "dot, current": {"score": "dot", "query": "current"},
    "bilinear, current": {"score": "bilinear", "query": "current"},
}


def make(way: str, cell: str = "gru", layers: int = 1, **changes: Any) -> Seq2Seq:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"source_vocabulary_size": 11, "layers": layers, "width": 6, "cell_width": 8}
    model = Seq2Seq(Seq2SeqConfig(13, cell=cell, dropout=0.0, **(sizes | WAYS[way] | changes)))
    return model.double().eval()


def forward(model: Seq2Seq, source: Batch = SOURCE, target: Batch = TARGET) -> torch.Tensor:
    hidden: torch.Tensor = model(source.ids, source.packing, target.ids, target.packing)
    return hidden


def test_it_is_what_decoding_asks_for() -> None:
    model: EncoderDecoder[Seq2SeqState] = make("additive")
    assert model.scores(forward(make("additive"))).shape == (TARGET.n_tokens, 13)


class Paper:
    """One row, with one layer of a cell, written out number by number."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.weights = {name: value.detach().numpy() for name, value in model.named_parameters()}

    def linear(self, name: str, x: Any) -> Any:
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0.0)

    def read(self, ids: list[int]) -> tuple[Any, Any, Any]:
        """h (S, E), C (E,) and the state to begin with"""
        assert isinstance(self.model.encoder, Bidirectional)
        x = self.weights["source_embedding.weight"][ids] * math.sqrt(6)
        (forth, back), ends = self.model.encoder._pairs()[0], []
        zeros = tuple(np.zeros(part.size(1)) for part in forth.begin(1))
        there, end = by_hand(forth, x, zeros)
        again, beginning = by_hand(back, x[::-1], zeros)
        for name, one, other in zip(("to_hidden.0", "to_memory.0"), end, beginning, strict=False):
            ends.append(self.linear(name, np.concatenate([one, other])))
        state = (np.tanh(ends[0]), *ends[1:])
        return np.concatenate([there, again[::-1]], axis=1), np.concatenate([end[0], beginning[0]]), state

    def look(self, query: Any, h: Any) -> tuple[Any, Any]:
        assert isinstance(self.model.decoder, AttentionDecoder)
        score, fit = self.model.decoder.score, []
        for state in h:
            if isinstance(score, AdditiveScore):
                bent = np.tanh(self.linear("decoder.score.query", query) + self.linear("decoder.score.key", state))
                fit.append(self.linear("decoder.score.score", bent)[0])
            elif isinstance(score, BilinearScore):
                fit.append(query @ self.linear("decoder.score.key", state))
            else:
                fit.append(query @ state)
        alpha = np.exp(fit) / np.exp(fit).sum()
        return sum(a * state for a, state in zip(alpha, h, strict=True)), alpha

    def write(self, source: list[int], target: list[int]) -> tuple[Any, Any]:
        """t of every token, and what was looked at"""
        config = self.model.config
        h, c, state = self.read(source)
        cell, found, looked = self.model.decoder.cells()[0], [], []
        for token in target:
            y, context = self.weights["embedding.weight"][token] * math.sqrt(6), None
            alpha = None
            if config.context == "every_step":
                context = c
            elif config.context == "attention" and config.query == "previous":
                context, alpha = self.look(state[0], h)
            inputs = y if context is None else np.concatenate([y, context])
            _, state = by_hand(cell, inputs[None], state)
            if config.query == "current":
                context, alpha = self.look(state[0], h)
            seen = [state[0], y] if context is None else [state[0], y, context]
            found.append(np.tanh(self.linear("readout", np.concatenate(seen))))
            looked.append(alpha)
        return np.array(found), looked


@pytest.mark.parametrize("way", WAYS)
def test_equations_written_out(way: str) -> None:
    model = make(way, "lstm" if way == "dot" else "gru")
    paper, hidden = Paper(model), forward(model)
    for row, vectors in enumerate(TARGET.rows(hidden)):
        source, target = (part.rows(part.ids)[row].tolist() for part in (SOURCE, TARGET))
        expected, looked = paper.write(source, target)
        np.testing.assert_allclose(vectors.detach().numpy(), expected, atol=1e-12)
        state, one = model.start(torch.tensor(source), Batch.of([source]).packing), None
        for token, alpha in zip(target, looked, strict=True):
            one = model.step(torch.tensor([token]), state if one is None else one.state)
            if alpha is None:
                assert one.attention is None
            else:
                assert one.attention is not None
                np.testing.assert_allclose(one.attention[0].numpy(), alpha, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("way", WAYS)
def test_a_step_at_a_time_as_at_once(way: str, cell: str, layers: int) -> None:
    """Rows leave when they are done, and with them, at some point, their source."""
    model = make(way, cell, layers)
    logits = TARGET.rows(model.scores(forward(model)))
    tokens, alive = TARGET.rows(TARGET.ids), [0, 1, 2]
    state = model.start(SOURCE.ids, SOURCE.packing)
    for time in range(TARGET.longest):
        stays = [place for place, row in enumerate(alive) if time < TARGET.lengths[row]]
        alive, state = [alive[place] for place in stays], state.select(torch.tensor(stays))
        stepped = model.step(torch.stack([tokens[row][time] for row in alive]), state)
        torch.testing.assert_close(stepped.logits, torch.stack([logits[row][time] for row in alive]))
        if stepped.attention is not None:
            assert stepped.attention.shape == (len(alive), SOURCE.longest)
            for row, seen in zip(alive, stepped.attention, strict=True):
                assert not bool(seen[SOURCE.lengths[row] :].any())
                torch.testing.assert_close(seen.sum(), torch.ones(()).double())
        state = stepped.state
    assert state.source.mask.size(0) == 1  # the others were let go of


@pytest.mark.parametrize("way", WAYS)
def test_hypotheses_go_their_own_way(way: str) -> None:
    """Two rows of each source; one is dropped, another goes on twice, and their order is changed."""
    model = make(way, "lstm")
    state = model.start(SOURCE.ids, SOURCE.packing, hypotheses=2)
    first = model.step(torch.tensor([1, 2, 3, 4, 5, 6]), state)
    chosen = [5, 0, 0, 3, 1]
    second = model.step(torch.tensor([7, 8, 9, 10, 11]), first.state.select(torch.tensor(chosen)))
    assert second.state.source.states is state.source.states  # never copied
    for row, (before, token) in enumerate(zip(chosen, [7, 8, 9, 10, 11], strict=True)):
        source = SOURCE.rows(SOURCE.ids)[before // 2]
        alone = Batch.of([[before + 1, token]])
        hidden = forward(model, Batch.of([source.tolist()]), alone)
        torch.testing.assert_close(second.logits[row], model.scores(hidden)[1])
    assert first.state.select(torch.arange(6)) is first.state


@pytest.mark.parametrize("way", WAYS)
def test_when_all_rows_are_done(way: str) -> None:
    model = make(way)
    none = model.start(SOURCE.ids, SOURCE.packing).select(torch.tensor([], dtype=torch.int64))
    stepped = model.step(torch.tensor([], dtype=torch.int64), none)
    assert stepped.logits.shape == (0, 13)
    assert stepped.attention is None or stepped.attention.shape == (0, SOURCE.longest)


@pytest.mark.parametrize("way", WAYS)
def test_every_source_has_one_target(way: str) -> None:
    for targets in ([[1, 2], [3]], [[1], [2], [3], [4]]):
        with pytest.raises(AssertionError, match=f"3 sources and {len(targets)} targets"):
            forward(make(way), SOURCE, Batch.of(targets))


@pytest.mark.parametrize("way", WAYS)
def test_searching_writes_what_the_whole_network_would(way: str) -> None:
    """Greedy, with states kept, against all of the text read anew for every token."""
    model, longest = make(way, layers=2), 6
    state = model.start(SOURCE.ids, SOURCE.packing, longest=longest)
    begin = torch.ones(SOURCE.n_rows, dtype=torch.int64)
    found = generate(model.step, state, begin, 2, GenerateConfig(max_length=longest), source_lengths=SOURCE.lengths)
    for source, (best,) in zip(SOURCE.rows(SOURCE.ids), found, strict=True):
        text = [1]
        while len(text) <= longest and (len(text) == 1 or text[-1] != 2):
            hidden = forward(model, Batch.of([source.tolist()]), Batch.of([text]))
            text.append(int(model.scores(hidden)[-1].argmax()))
        assert [1, *best.tokens, *([2] if best.finished else [])] == text
        assert best.attention is None or best.attention.shape == (len(best.tokens), len(source))


@pytest.mark.parametrize("way", WAYS)
def test_packed_as_row_by_row(way: str) -> None:
    model = make(way, layers=2)
    together = TARGET.rows(forward(model))
    for row, found in enumerate(together):
        source, target = (Batch.of([part.rows(part.ids)[row].tolist()]) for part in (SOURCE, TARGET))
        torch.testing.assert_close(forward(model, source, target), found)


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_next_is_not_seen(way: str) -> None:
    model = make(way, layers=2)
    before = forward(model, SOURCE, Batch.of([[1, 2, 3, 4], [5], [6]]))
    after = forward(model, SOURCE, Batch.of([[1, 2, 9, 4], [5], [6]]))
    assert before[:2].equal(after[:2]) and before[4:].equal(after[4:]) and not before[2:4].equal(after[2:4])
    other = forward(model, Batch.of([[1, 2, 4], [4, 5, 6, 7, 8], [9]]), Batch.of([[1, 2, 3, 4], [5], [6]]))
    assert not bool((other[:4] == before[:4]).all(1).any()) and other[4:].equal(before[4:])  # its own source is


@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"bidirectional": False}, {"source_vocabulary_size": None}])
@pytest.mark.parametrize("way", WAYS)
def test_every_parameter_gets_a_gradient(way: str, changes: dict[str, Any]) -> None:
    model = make(way, "peephole", 2, **changes)
    hidden = forward(model)
    table, bias = model.before_words(hidden)[1:]
    torch.testing.assert_close(hidden @ table.t() + bias, model.scores(hidden))
    model.scores(hidden).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name


@pytest.mark.parametrize("way", WAYS)
def test_it_learns_to_copy_and_dropout_is_for_learning(way: str) -> None:
    """In half precision too, where some machine has it."""
    model = make(way).float().train()
    model.dropout.p = 0.2
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    labels, losses = TARGET.ids.roll(-1), []
    for _ in range(30):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model.scores(forward(model))
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    with pytest.raises(AssertionError, match="call eval"):
        model.start(SOURCE.ids, SOURCE.packing)


def test_what_the_decoder_is_told_is_dropped_out_alike() -> None:
    """Its states or its C: else the ways to know of a source would differ in more than what they tell."""
    model = make("every step").train()
    for share in (0.0, 0.5):
        model.dropout.p = share
        read, _ = model.read(SOURCE.ids, SOURCE.packing)
        assert bool((read.states[read.mask] == 0).any()) is bool((read.context == 0).any()) is (share > 0)


def test_settings_that_cannot_be() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"context": "atention"}, "Did you mean 'attention'"),
        ({"score": "additve"}, "Unknown score 'additve'. Did you mean 'additive'"),
        ({"query": "next"}, "Known: previous, current"),
        ({"cell": "grru"}, "Did you mean 'gru'"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"cell_width": 7}, "is odd, and two directions share it"),
        ({"context": "fixed", "score": "dot"}, "score = dot is for attention, and with context = fixed there is none"),
        ({"context": "every_step", "query": "current"}, "Leave query out, or set context = attention"),
        ({"score": "dot", "encoder_width": 512}, "1024 is not 512. Leave encoder_width out, or set score = bilinear"),
    ]
    for settings, message in cases:
        with pytest.raises(InputError, match=message):
            Seq2SeqConfig(10, **settings)
    with pytest.raises(InputError, match="Known: small, base"):
        Seq2SeqConfig.preset("large")
    assert Seq2SeqConfig.preset("small", vocabulary_size=5).width == 64
    assert Seq2SeqConfig(10, context="fixed", encoder_width=3).source_width == 6


def test_every_score_has_a_test() -> None:
    assert {WAYS[way].get("score") for way in WAYS} - {None} == set(SCORE_KINDS)
