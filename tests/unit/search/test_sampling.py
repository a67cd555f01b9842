"""Greedy and drawn texts: token by token, row by row, whatever else is in the batch."""

from collections import Counter

import pytest
import torch

from qkv.search.beam import generate
from qkv.search.options import GenerateConfig
from qkv.search.sampling import filtered, pick_tokens, stream_tokens
from tests.support.babbler import BEGIN, END, Babbler

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (3, 1, 4, 2, 5, 3, 3, 2, 2, 1)


def greedy_by_hand(babbler: Babbler, source: int, longest: int) -> tuple[tuple[int, ...], bool]:
    text = [BEGIN]
    while len(text) <= longest:
        text.append(int(babbler.logits(source, tuple(text)).argmax()))
        if text[-1] == END:
            return tuple(text[1:-1]), True
    return tuple(text[1:]), False


def test_greedy_takes_the_likeliest_and_says_what_it_was_worth() -> None:
    babbler = Babbler(5, source_lengths=LENGTHS)
    config = GenerateConfig(max_length=4)
    found = generate(babbler.step, babbler.start(), babbler.begin(), END, config, source_lengths=LENGTHS)
    for source, [one] in enumerate(found):
        assert (one.tokens, one.finished) == greedy_by_hand(babbler, source, 4)
        whole = (*one.tokens, *[END] * one.finished)
        assert one.log_probability == pytest.approx(babbler.log_probability(source, whole), abs=1e-5)
        assert one.score == pytest.approx(one.log_probability / len(whole))
        assert one.attention is not None
        expected = babbler.looked(source, whole)[: len(one.tokens), : LENGTHS[source]]
        assert torch.equal(one.attention, expected)
    assert {one.finished for [one] in found} == {True, False}


def test_every_source_has_a_limit_of_its_own() -> None:
    babbler = Babbler(50, source_lengths=(1, 20, 4))  # seldom an end
    for beams in (1, 3):
        config = GenerateConfig(max_length=25, max_ratio=1.0, min_length=10, beams=beams)
        found = generate(
            babbler.step, babbler.start(beams), babbler.begin(), END, config, source_lengths=(1, 20, 4), never=[END]
        )
        assert [len(one[0].tokens) for one in found] == [11, 25, 14]
        assert not any(one[0].finished for one in found)


def test_rows_that_are_done_leave() -> None:
    babbler = Babbler(5, source_lengths=(2,) * 40)
    found = generate(babbler.step, babbler.start(), babbler.begin(), END, GenerateConfig(max_length=60))
    lengths = [len(one.tokens) + one.finished for [one] in found]
    assert babbler.n_rows[0] == 40 and len(babbler.n_rows) == max(lengths)
    # no row is computed for nobody
    assert babbler.n_rows == [sum(length > step for length in lengths) for step in range(max(lengths))]


def test_a_text_can_be_watched_as_it_grows() -> None:
    babbler = Babbler(5, source_lengths=(3, 3, 3, 3))
    config = GenerateConfig(max_length=7)
    whole = generate(babbler.step, babbler.start(), babbler.begin(), END, config)
    babbler.n_rows.clear()
    texts: list[list[int]] = [[] for _ in range(4)]
    done: set[int] = set()
    for n, written in enumerate(stream_tokens(babbler.step, babbler.start(), babbler.begin(), END, config, [7] * 4), 1):
        assert len(babbler.n_rows) == n  # nothing is computed ahead of the reader
        for one in written:
            assert one.row not in done
            texts[one.row].append(one.token)
            if one.last:
                done.add(one.row)
    assert done == {0, 1, 2, 3}
    assert [tuple(token for token in text if token != END) for text in texts] == [one.tokens for [one] in whole]


def test_gradients_stay_off_and_the_reader_keeps_his_own_setting() -> None:
    babbler = Babbler(5)
    for _ in stream_tokens(babbler.step, babbler.start(), babbler.begin(), END, GenerateConfig(max_length=3), [3]):
        assert torch.is_grad_enabled()


SAMPLED = GenerateConfig(sample=True, n_best=3, max_length=8, seed=5)


def draw(babbler: Babbler, numbers: tuple[int, ...], config: GenerateConfig = SAMPLED) -> list[list[tuple[int, ...]]]:
    state = babbler.start(config.hypotheses, numbers)
    found = generate(babbler.step, state, babbler.begin(len(numbers)), END, config, keys=numbers)
    return [[one.tokens for one in texts] for texts in found]


def test_a_draw_depends_on_its_own_source_alone() -> None:
    babbler = Babbler(8, source_lengths=LENGTHS)
    everything = draw(babbler, tuple(range(10)))
    assert draw(babbler, (7, 2)) == [everything[7], everything[2]]
    assert draw(babbler, (4,)) == [everything[4]]
    assert draw(babbler, tuple(range(10))) == everything
    assert draw(babbler, (4,), GenerateConfig(sample=True, n_best=3, max_length=8, seed=6)) != [everything[4]]
    assert all(len(set(texts)) > 1 for texts in everything)  # the drawn texts of one source differ


def test_without_keys_the_place_counts() -> None:
    babbler = Babbler(8, source_lengths=LENGTHS)
    found = generate(babbler.step, babbler.start(3), babbler.begin(), END, SAMPLED)
    assert [[one.tokens for one in texts] for texts in found] == draw(babbler, tuple(range(10)))


def test_drawn_texts_come_best_first_with_the_networks_own_probability() -> None:
    babbler = Babbler(6, source_lengths=(3, 3))
    config = GenerateConfig(sample=True, n_best=5, max_length=6, temperature=2.0, top_k=4)
    for source, texts in enumerate(generate(babbler.step, babbler.start(5), babbler.begin(), END, config)):
        assert [one.score for one in texts] == sorted((one.score for one in texts), reverse=True)
        for one in texts:
            whole = (*one.tokens, *[END] * one.finished)
            assert one.log_probability == pytest.approx(babbler.log_probability(source, whole), abs=1e-5)


def test_many_draws_have_the_networks_distribution() -> None:
    babbler = Babbler(4, source_lengths=(1,))
    n = 4000
    config = GenerateConfig(sample=True, n_best=n, max_length=1)
    [texts] = generate(babbler.step, babbler.start(n), babbler.begin(), END, config)
    counts = Counter(one.tokens[0] if one.tokens else END for one in texts)
    likely = babbler.logits(0, (BEGIN,)).softmax(dim=0)
    for token in range(4):
        spread = float((likely[token] * (1 - likely[token]) / n).sqrt())
        assert abs(counts[token] / n - float(likely[token])) < 4 * spread + 1e-9


def test_top_k_and_top_p_by_hand() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()

    def kept(**options: float) -> list[int]:
        left = filtered(logits, GenerateConfig.of({"sample": True} | options))
        return (left > -torch.inf)[0].nonzero().flatten().tolist()

    assert kept() == [0, 1, 2, 3]
    assert kept(top_k=2) == [0, 1]
    assert kept(top_k=9) == [0, 1, 2, 3]
    assert kept(top_p=0.4) == [0]
    assert kept(top_p=0.7) == [0, 1]
    assert kept(top_p=0.9) == [0, 1, 2]
    assert kept(top_p=0.99) == [0, 1, 2, 3]
    assert kept(top_p=0.7, temperature=5.0) == [0, 1, 2]  # flatter, so that more of them are needed
    assert kept(top_k=3, top_p=0.6) == [0, 1]


@pytest.mark.parametrize("temperature", [1e-30, 1e-39, 1e-300])
def test_next_to_no_temperature_is_greedy(temperature: float) -> None:
    logits = torch.tensor([[-3.0, 7.0, 6.999, -torch.inf], [5.0, 5.0, -9.0, 0.0]])
    config = GenerateConfig(sample=True, temperature=temperature)
    assert filtered(logits, config).softmax(dim=1).tolist() == [[0, 1, 0, 0], [0.5, 0.5, 0, 0]]
    assert pick_tokens(filtered(logits, config), [0.99, 0.99]).tolist() == [1, 1]


def test_a_chance_falls_on_a_token_as_wide_as_it_is_likely() -> None:
    logits = torch.tensor([0.25, 0.0, 0.5, 0.25, 0.0]).log().repeat(6, 1)
    assert pick_tokens(logits, [0.0, 0.2499, 0.25, 0.7499, 0.7501, 1 - 2**-53]).tolist() == [0, 0, 2, 2, 3, 3]
