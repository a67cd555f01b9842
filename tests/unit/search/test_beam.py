"""Beam search against all texts there are, on vocabularies small enough for that; and what it does with rows."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.errors import InputError
from qkv.search.beam import generate
from qkv.search.decoding import Stepped, close_ranks, keep_places
from qkv.search.options import GenerateConfig
from tests.support.babbler import BEGIN, END, Babbler, Remembered, ranked

pytestmark = pytest.mark.usefixtures("one_thread")

EVERYTHING = 200  # beams: more than there are beginnings of four tokens from three words


def test_few_rows_change_their_places() -> None:
    assert close_ranks([True] * 3) == [0, 1, 2]
    assert close_ranks([False, True, False, True, True]) == [4, 1, 3]
    assert close_ranks([False, False]) == []
    assert keep_places([0, 1, 2]) == [0, 1, 2]
    assert keep_places([1, 1, 1]) in ([1, 0, 2], [2, 0, 1])
    assert keep_places([5, 0]) == [1, 0]  # fewer than there were: one of them has to move


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0, -1.0])
def test_with_enough_beams_it_finds_what_brute_force_finds(length_penalty: float) -> None:
    babbler = Babbler(4, seed=3, source_lengths=(3, 5))
    config = GenerateConfig(beams=EVERYTHING, n_best=20, max_length=4, length_penalty=length_penalty, stopping="never")
    found = generate(babbler.step, babbler.start(EVERYTHING), babbler.begin(), END, config)
    for source in (0, 1):
        best = ranked(babbler, source, 4, length_penalty)[:20]
        assert [(*one.tokens, *[END] * one.finished) for one in found[source]] == [text for _, text in best]
        assert [one.score for one in found[source]] == pytest.approx([score for score, _ in best], abs=1e-5)
        for one, (_, text) in zip(found[source], best, strict=True):
            assert one.log_probability == pytest.approx(babbler.log_probability(source, text), abs=1e-5)


def test_few_beams_find_one_of_the_best_and_more_beams_no_worse_ones() -> None:
    """Not a law, but so on these sources: and greedy is far from the best on some."""
    babbler = Babbler(4, seed=1, source_lengths=(2,) * 12)
    best = [ranked(babbler, source, 5, 0.0)[0][0] for source in range(12)]
    lost = []
    for beams in (1, 3, 9):
        config = GenerateConfig(beams=beams, max_length=5, length_penalty=0.0, stopping="never")
        found = generate(babbler.step, babbler.start(beams), babbler.begin(), END, config)
        lost.append(sum(top - one[0].score for top, one in zip(best, found, strict=True)))
    assert lost[0] > lost[1] + 1 > lost[2] and lost[2] == pytest.approx(0, abs=1e-4)


class Table:
    """A network of two words that is a table: how likely end, a and b are after a text."""

    def __init__(self, likely: dict[tuple[int, ...], list[float]]) -> None:
        self.likely = likely  # after any other text the end is certain

    def step(self, tokens: Tensor, state: Remembered) -> Stepped[Remembered]:
        rows = [(source, (*text, token)) for (source, text), token in zip(state.rows, tokens.tolist(), strict=True)]
        likely = torch.tensor([self.likely.get(text[1:], [1.0, 0.0, 0.0]) for _, text in rows])
        return Stepped(likely.log(), Remembered(rows), None)


def test_a_search_worked_by_hand() -> None:
    """Two beams. a (0.6) is better than b (0.4) at first, but all that follows a is unlikely."""
    table = Table({(): [0.0, 0.6, 0.4], (1,): [0.34, 0.33, 0.33], (2,): [0.9, 0.05, 0.05]})

    def search(**options: float | str) -> list[tuple[tuple[int, ...], float]]:
        config = GenerateConfig.of({"beams": 2, "n_best": 2, "max_length": 3} | options)
        found = generate(table.step, Remembered([(0, ())] * 2), torch.tensor([BEGIN]), END, config)
        assert all(one.finished for one in found[0])
        return [(one.tokens, round(one.score, 3)) for one in found[0]]

    def score(probability: float, divisor: int) -> float:
        return round(math.log(probability) / divisor, 3)

    a, b, aa = 0.6 * 0.34, 0.4 * 0.9, 0.6 * 0.33  # each with its end
    assert search() == [((2,), score(b, 2)), ((1,), score(a, 2))]
    # step 2 looks at b.end, a.end, aa, ab: two that end, and the search stops unless a longer one may still be better
    assert search(length_penalty=0.0) == [((2,), score(b, 1)), ((1,), score(a, 1))]
    assert search(stopping="enough") == [((2,), score(b, 2)), ((1,), score(a, 2))]
    # aa (or ab) loses by its probability, and wins by its length
    assert search(stopping="never")[0] == ((2,), score(b, 2))
    assert search(stopping="never", length_penalty=2.0)[0] in [((1, 1), score(aa, 9)), ((1, 2), score(aa, 9))]
    assert search(stopping="enough", length_penalty=2.0) == [((2,), score(b, 4)), ((1,), score(a, 4))]


def test_an_end_that_is_not_among_the_first_k_does_not_count() -> None:
    """Step 2 looks at a.end 0.36, ba 0.20, b.end 0.18 and aa 0.15: b has come third with two beams, and is dropped."""
    table = Table({(): [0.0, 0.6, 0.4], (1,): [0.6, 0.25, 0.15], (2,): [0.45, 0.5, 0.05]})
    for stopping in ("estimate", "enough", "never"):
        config = GenerateConfig(beams=2, n_best=2, max_length=5, length_penalty=0.0, stopping=stopping)
        [found] = generate(table.step, Remembered([(0, ())] * 2), torch.tensor([BEGIN]), END, config)
        assert [(one.tokens, round(math.exp(one.score), 3)) for one in found] == [((1,), 0.36), ((2, 1), 0.2)]


def test_the_other_length_formula() -> None:
    babbler = Babbler(5, source_lengths=(3, 3, 3))
    config = GenerateConfig(beams=4, max_length=6, length_formula="gnmt", length_penalty=0.6)
    for one, *_ in generate(babbler.step, babbler.start(4), babbler.begin(), END, config):
        length = len(one.tokens) + one.finished
        assert one.score == pytest.approx(one.log_probability / ((5 + length) / 6) ** 0.6)


def test_sources_of_a_batch_do_not_disturb_each_other_and_leave_when_they_are_done() -> None:
    babbler = Babbler(5, seed=2, source_lengths=(4, 1, 3, 2, 5, 5))
    config = GenerateConfig(beams=3, n_best=3, max_length=12, length_penalty=0.0)
    together = generate(babbler.step, babbler.start(3), babbler.begin(), END, config)
    rows, babbler.n_rows = babbler.n_rows, []
    assert rows == sorted(rows, reverse=True) and rows[0] == 18 and rows[-1] <= 9
    for source in range(6):
        [alone] = generate(babbler.step, babbler.start(3, (source,)), babbler.begin(1), END, config)
        assert [(one.tokens, one.score) for one in alone] == [(one.tokens, one.score) for one in together[source]]
    assert sum(babbler.n_rows) == sum(rows)  # not a step more than alone


def test_each_token_has_the_attention_it_was_written_with() -> None:
    babbler = Babbler(4, seed=5, source_lengths=(3, 6, 1))
    config = GenerateConfig(beams=4, n_best=4, max_length=6)
    for lengths in (None, babbler.source_lengths):
        found = generate(babbler.step, babbler.start(4), babbler.begin(), END, config, source_lengths=lengths)
        for source, texts in enumerate(found):
            for one in texts:
                width = 6 if lengths is None else lengths[source]
                assert one.attention is not None and one.attention.shape == (len(one.tokens), width)
                if one.tokens:
                    assert torch.equal(one.attention, babbler.looked(source, one.tokens)[:, :width])
    blind = Babbler(4, seed=5, source_lengths=(3, 6, 1), looks=False)
    again = generate(blind.step, blind.start(4), blind.begin(), END, config)
    assert [[one.tokens for one in texts] for texts in again] == [[one.tokens for one in texts] for texts in found]
    assert all(one.attention is None for texts in again for one in texts)


def test_coverage_makes_other_texts_win() -> None:
    babbler = Babbler(4, seed=4, source_lengths=(3, 5, 2, 4))

    def search(weight: float) -> list[list[tuple[tuple[int, ...], float]]]:
        config = GenerateConfig(
            beams=EVERYTHING, n_best=40, max_length=3, length_penalty=0.0, stopping="never", coverage_penalty=weight
        )
        state = babbler.start(EVERYTHING)
        found = generate(babbler.step, state, babbler.begin(), END, config, source_lengths=babbler.source_lengths)
        return [[((*one.tokens, *[END] * one.finished), round(one.score, 4)) for one in texts] for texts in found]

    def by_hand(source: int, weight: float) -> list[tuple[tuple[int, ...], Any]]:
        def score(text: tuple[int, ...]) -> float:
            looked = babbler.looked(source, text).sum(dim=0)[: babbler.source_lengths[source]]
            return babbler.log_probability(source, text) + weight * float(looked.clamp(max=1).log().sum())

        texts = sorted(babbler.all_texts(3), key=score, reverse=True)
        return [(text, pytest.approx(score(text), abs=2e-4)) for text in texts]

    for weight in (0.0, 0.3, 2.0):
        assert search(weight) == [by_hand(source, weight) for source in range(4)]
    assert [texts[0][0] for texts in search(0.0)] != [texts[0][0] for texts in search(2.0)]
    # one text a source, greedily written, is scored by the same rule
    config = GenerateConfig(max_length=3, length_penalty=0.0, coverage_penalty=2.0)
    greedy = generate(babbler.step, babbler.start(), babbler.begin(), END, config, source_lengths=(3, 5, 2, 4))
    everything = search(2.0)
    for source, [one] in enumerate(greedy):
        scores = dict(everything[source])
        assert one.score == pytest.approx(scores[(*one.tokens, *[END] * one.finished)], abs=2e-4)


def test_coverage_needs_attention() -> None:
    babbler = Babbler(4, looks=False)
    for beams in (1, 2):
        config = GenerateConfig(beams=beams, coverage_penalty=0.2)
        with pytest.raises(InputError, match="coverage_penalty needs a network with attention"):
            generate(babbler.step, babbler.start(beams), babbler.begin(), END, config, source_lengths=[3])


def test_more_beams_than_there_are_texts() -> None:
    """Two words and two tokens: seven texts, and what is not there is not made up."""
    babbler = Babbler(3)
    config = GenerateConfig(beams=10, n_best=10, max_length=2, stopping="never")
    [found] = generate(babbler.step, babbler.start(10), babbler.begin(), END, config)
    assert sorted((*one.tokens, *[END] * one.finished) for one in found) == sorted(
        [(0,), (1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    )
    assert all(math.isfinite(one.score) for one in found)


def test_no_sources_no_texts() -> None:
    babbler = Babbler(4)
    for beams in (1, 3):
        config = GenerateConfig(beams=beams)
        assert generate(babbler.step, babbler.start(beams, ()), babbler.begin(0), END, config) == []


def test_a_broken_network_is_named() -> None:
    def step(tokens: Tensor, state: Remembered) -> Stepped[Remembered]:
        return Stepped(torch.full((len(tokens), 4), torch.nan), state, None)

    for config in (GenerateConfig(), GenerateConfig(beams=3), GenerateConfig(sample=True)):
        with pytest.raises(InputError, match="scores are NaN"):
            generate(step, Babbler(4).start(config.hypotheses), torch.tensor([BEGIN]), END, config)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_state_with_another_number_of_rows(beams: int) -> None:
    def lenient(tokens: Tensor, state: Remembered) -> Stepped[Remembered]:
        return Stepped(torch.zeros(len(state.rows), 4), state, None)

    def strict(tokens: Tensor, state: Remembered) -> Stepped[Remembered]:
        return Stepped(torch.zeros(len(tokens), 4) + torch.zeros(len(state.rows), 1), state, None)

    babbler, config = Babbler(4, source_lengths=(3, 3)), GenerateConfig(beams=beams, max_length=4)
    with pytest.raises(AssertionError, match=f"rows for {beams} hypotheses of each source"):
        generate(lenient, babbler.start(2), babbler.begin(), END, config)
    with pytest.raises(RuntimeError, match="must match the size") as raised:
        generate(strict, babbler.start(2), babbler.begin(), END, config)
    assert raised.value.__notes__ == [
        f"Has the state rows for {beams} hypotheses of each source ({2 * beams} in all)? start(…, hypotheses={beams})"
    ]


def test_hypotheses_can_be_compared() -> None:
    babbler = Babbler(4, source_lengths=(3, 3))
    config = GenerateConfig(beams=2, n_best=2, max_length=4)
    one, other = (generate(babbler.step, babbler.start(2), babbler.begin(), END, config) for _ in range(2))
    assert one[0][0].attention is not None and one == other and one[0] != one[1]


@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_never_written_takes_no_probability_where_the_rest_adds_up_to_one(beams: int) -> None:
    babbler = Babbler(5, seed=7, source_lengths=(3,) * 5, first=4)

    def without(source: int, text: tuple[int, ...]) -> float:
        whole = (4, *text)
        steps = [babbler.logits(source, whole[:place])[:4].log_softmax(dim=0) for place in range(1, len(whole))]
        return sum(float(step[token]) for step, token in zip(steps, text, strict=True))

    for options in ({}, {"repetition_penalty": 1.3}, {"no_repeat": 2}, {"min_length": 3}):
        config = GenerateConfig.of({"beams": beams, "max_length": 6, "renormalise": True} | options)
        found = generate(babbler.step, babbler.start(beams), babbler.begin(), END, config, never=[4])
        for source, (one, *_) in enumerate(found):
            text = (*one.tokens, *[END] * one.finished)
            assert one.log_probability == pytest.approx(without(source, text), abs=1e-4)
            if not options:
                assert one.score == pytest.approx(one.log_probability / len(text))
                assert one.log_probability > babbler.log_probability(source, text)


def test_when_everything_is_forbidden_it_says_so() -> None:
    babbler = Babbler(3)
    for config in (
        GenerateConfig(no_repeat=1, min_length=5),
        GenerateConfig(no_repeat=1, min_length=5, beams=2),
        GenerateConfig(no_repeat=1, min_length=5, repetition_penalty=1.2),
        GenerateConfig(no_repeat=1, min_length=5, sample=True),
        GenerateConfig(no_repeat=1, min_length=5, beams=2, renormalise=True),
        GenerateConfig(no_repeat=1, min_length=5, beams=2, repetition_penalty=1.2, renormalise=True),
    ):
        with pytest.raises(InputError, match="No token is allowed"):
            generate(babbler.step, babbler.start(config.hypotheses), torch.tensor([1]), END, config)
