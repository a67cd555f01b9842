"""What may be written, on rows that can be followed by eye; and the quick way to the largest scores."""

import importlib

import pytest
import torch

from qkv.search.beam import generate
from qkv.search.decoding import compute_log_totals, find_largest
from qkv.search.options import Controls, GenerateConfig, forbid_repeats, penalise
from tests.support.babbler import END, Babbler

pytestmark = pytest.mark.usefixtures("one_thread")

FORBIDDEN = -torch.inf


def test_tokens_that_were_written_get_less() -> None:
    scores = torch.tensor([[2.0, -2.0, 1.0, -1.0], [2.0, -2.0, 1.0, -1.0]])
    penalise(scores, torch.tensor([[0, 1, 0], [3, 3, 3]]), 2.0)
    assert scores.tolist() == [[1.0, -4.0, 1.0, -1.0], [2.0, -2.0, 1.0, -2.0]]


@pytest.mark.parametrize(
    ("n", "history", "forbidden"),
    [
        (2, [1, 2, 1], {2}),  # 1 2 stood there
        (2, [1, 2, 1, 3, 1], {2, 3}),
        (2, [1, 2, 3], set()),
        (2, [1, 1], {1}),
        (3, [1, 2, 3, 1, 2], {3}),
        (3, [1, 2, 3, 2, 2], set()),
        (3, [1, 2], set()),  # too short to hold a run
        (1, [1, 3], {1, 3}),
        (2, [2, 1, 3, 1], {3}),  # 1 also ended a run of another start, and is free
    ],
)
def test_no_run_stands_twice(n: int, history: list[int], forbidden: set[int]) -> None:
    scores = torch.zeros(1, 5)
    forbid_repeats(scores, torch.tensor([history]), n)
    assert {token for token, score in enumerate(scores[0].tolist()) if score == FORBIDDEN} == forbidden
    assert set(scores[0].tolist()) <= {0.0, FORBIDDEN}


def test_lengths_and_tokens_that_are_no_text() -> None:
    controls = Controls(GenerateConfig(min_length=2), END, [4, 3, 4], torch.tensor([1, 1]))
    for n_written, free in ((0, {1, 2}), (1, {1, 2}), (2, {END, 1, 2})):
        scores = torch.zeros(2, 5)
        controls.apply(scores, n_written)
        for row in scores.tolist():
            assert {token for token, score in enumerate(row) if score == 0} == free


def test_the_history_follows_its_row() -> None:
    controls = Controls(GenerateConfig(no_repeat=2), END, (), torch.tensor([7, 8]))
    controls.follow(torch.tensor([1, 2]))
    controls.follow(torch.tensor([3, 4, 5]), torch.tensor([1, 1, 0]))
    assert controls.history.tolist() == [[8, 2, 3], [8, 2, 4], [7, 1, 5]]


@pytest.mark.parametrize("beams", [1, 4])
def test_whole_texts_keep_to_the_rules(beams: int) -> None:
    babbler = Babbler(6, seed=0, source_lengths=(3,) * 8, first=5)

    def texts(**options: float) -> list[tuple[int, ...]]:
        config = GenerateConfig.of({"beams": beams, "max_length": 14} | options)
        found = generate(babbler.step, babbler.start(beams), babbler.begin(), END, config, never=[5])
        for one in found:
            assert one[0].log_probability == pytest.approx(
                babbler.log_probability(found.index(one), (*one[0].tokens, *[END] * one[0].finished)), abs=1e-4
            )
        return [one[0].tokens for one in found]

    free = texts()
    assert min(map(len, free)) < 5 and all(5 not in text for text in free)
    long = texts(min_length=5)
    assert min(map(len, long)) == 5
    assert any(_repeats(text, 2) for text in long)
    assert not any(_repeats(text, 2) for text in texts(min_length=5, no_repeat=2))
    assert texts(min_length=5, repetition_penalty=3.0) != long


def _repeats(text: tuple[int, ...], n: int) -> bool:
    runs = [text[at : at + n] for at in range(len(text) - n + 1)]
    return len(set(runs)) < len(runs)


@pytest.fixture(params=["torch", "compiled"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to look through scores, whatever was imported before."""
    if request.param == "compiled":
        pytest.importorskip("numba")
        importlib.import_module("qkv.nn.cpu.compiled")  # as the kernels of a network do
    else:
        monkeypatch.setattr("qkv.search.decoding._is_compiled_for", lambda scores: False)
    return str(request.param)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("size", [100, 4097, 5000, 6400, 9999])
@pytest.mark.parametrize("k", [1, 8, 70])
def test_the_largest_are_those_of_topk(size: int, k: int) -> None:
    for seed in range(3):
        scores = torch.randn(5, size, generator=torch.Generator().manual_seed(seed))
        scores[1, : size // 2] = -torch.inf
        scores[2, -1] = 10.0  # in the last block, which may be a part of one
        values, places = find_largest(scores, k)
        assert torch.equal(values, scores.topk(k).values)
        assert torch.equal(values, scores.gather(1, places))
        assert all(len(set(row)) == k for row in places.tolist())


@pytest.mark.usefixtures("kernels")
def test_largest_among_forbidden_ones_and_what_is_no_number() -> None:
    scores = torch.full((3, 5000), -torch.inf)
    scores[0, 4990] = 1.0
    scores[2, 17] = torch.nan
    values, places = find_largest(scores, 4)
    assert values[0].tolist() == [1.0, FORBIDDEN, FORBIDDEN, FORBIDDEN] and places[0, 0] == 4990
    assert int(places.min()) >= 0 and int(places.max()) < 5000
    assert values[2, 0].isnan()


@pytest.mark.parametrize("kernels", ["compiled"], indirect=True)
def test_more_than_one_that_is_no_number(kernels: str) -> None:
    scores = torch.randn(1, 5000)
    scores[0, [7, 2048, 4500]] = torch.nan  # one at the beginning of a block
    scores[0, 2050] = 9.0
    values, places = find_largest(scores, 2)
    assert values.isnan().all() and places.tolist() == [[7, 2048]]
    values, places = find_largest(scores, 4)
    assert places[0].tolist() == [7, 2048, 4500, 2050] and values[0, 3] == 9.0


def test_scores_with_gradients() -> None:
    scores = torch.randn(1, 5000, requires_grad=True)
    assert find_largest(scores, 1)[1].item() == scores.argmax().item()
    assert torch.allclose(compute_log_totals(scores), scores.logsumexp(dim=1))


def test_totals() -> None:
    logits = torch.randn(19, 300) * 5
    assert torch.equal(compute_log_totals(logits), logits.logsumexp(dim=1))


@pytest.mark.parametrize("rows", [1, 8, 9, 21])
def test_totals_of_a_large_vocabulary(kernels: str, rows: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(rows, 5003) * 30
    logits[0, 17:900] = -torch.inf
    assert torch.allclose(compute_log_totals(logits), logits.logsumexp(dim=1), rtol=1e-6)
    for value, expected in ((torch.nan, torch.nan), (torch.inf, torch.inf)):
        logits[-1, 40] = value
        assert torch.allclose(compute_log_totals(logits)[-1], torch.tensor(expected), equal_nan=True)
    logits[-1] = -torch.inf
    assert compute_log_totals(logits)[-1] == -torch.inf
