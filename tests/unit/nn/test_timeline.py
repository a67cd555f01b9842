import pytest
import torch

from qkv.nn.recurrent import Timeline

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("lengths", [(1,), (3, 3), (2, 5, 1, 5), (1, 1, 4)])
@pytest.mark.parametrize("reverse", [False, True])
def test_by_time_and_back(lengths: tuple[int, ...], reverse: bool) -> None:
    x = torch.randn(sum(lengths), 3)
    timeline = Timeline.of(lengths, reverse=reverse)
    by_time = timeline.by_time(x)
    rows = [row.flip(0) if reverse else row for row in x.split(lengths)]
    longest_first = sorted(rows, key=len, reverse=True)  # stable, as ours is
    expected = [row[t] for t in range(max(lengths)) for row in longest_first if t < len(row)]
    assert by_time.equal(torch.stack(expected))
    assert timeline.by_row(by_time).equal(x)
    assert sum(timeline.sizes) == sum(lengths) and len(timeline.sizes) == max(lengths)
    assert timeline.is_even == (len(set(lengths)) == 1)
    state = (torch.arange(len(lengths)),)
    assert timeline.unsorted(timeline.sorted(state))[0].equal(state[0])
    ends = by_time.index_select(0, timeline.last)
    assert timeline.unsorted((ends,))[0].equal(torch.stack([row[-1] for row in rows]))


def test_what_was_there_a_step_before() -> None:
    timeline = Timeline.of((2, 3))
    values = timeline.by_time(torch.tensor([10, 11, 20, 21, 22]))
    before = timeline.before(torch.tensor([2, 1]), values)  # sorted rows: the second, then the first
    assert timeline.by_row(before).tolist() == [1, 10, 2, 20, 21]


def test_gradients_go_back_to_where_they_belong() -> None:
    timeline = Timeline.of((1, 3, 2))
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(timeline.by_time, x)
    assert torch.autograd.gradgradcheck(timeline.by_row, x)


def test_one_that_was_made_for_inference_serves_training() -> None:
    lengths = (7, 1, 6)  # that no other test asks for
    with torch.inference_mode():
        Timeline.of(lengths)
    x = torch.randn(14, 1, requires_grad=True)
    Timeline.of(lengths).by_time(x).sum().backward()
    assert x.grad is not None and bool((x.grad == 1).all())


def test_no_row_is_empty() -> None:
    with pytest.raises(AssertionError, match="at least one token"):
        Timeline.of((2, 0))
