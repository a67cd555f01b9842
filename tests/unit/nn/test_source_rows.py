import pytest
import torch

from qkv.nn.source_attention import SourceRows


def test_full_rectangles_are_views() -> None:
    x = torch.randn(4, 3)
    rows = SourceRows.of([0, 0, 1, 1], 2)
    assert rows.places is None and rows.grouped(x).data_ptr() == x.data_ptr()
    assert SourceRows.of([1, 0], 2).places is not None


@pytest.mark.parametrize("owners", [[0, 0, 1, 1], [1, 0, 0], [2], [0, 2, 0, 2, 2], []])
@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_there_and_back(owners: list[int], shape: tuple[int, ...]) -> None:
    """With heads or without, every row lies with its source, and all else is zero."""
    rows, x = SourceRows.of(owners, 3), torch.randn(len(owners), *shape)
    grouped = rows.grouped(x)
    assert grouped.shape == (3, rows.width, *shape) and rows.flat(grouped).equal(x)
    assert rows.owner.tolist() == owners
    for source in range(3):
        mine = x[[row for row, owner in enumerate(owners) if owner == source]]
        assert grouped[source, : len(mine)].equal(mine) and not bool(grouped[source, len(mine) :].any())


def test_sources_are_left_out_when_half_of_them_are_done_with() -> None:
    rows = SourceRows.of([0, 0, 1, 1, 2, 2, 3, 3], 4)
    assert rows.select(range(8)) == (rows, None)
    fewer, kept = rows.select([7, 2, 1])
    assert kept is None and fewer.sources == 4 and fewer.owners == (3, 1, 0)
    fewest, kept = fewer.select([0, 0, 2])
    assert kept is not None and kept.tolist() == [0, 3] and fewest.owners == (1, 1, 0) and fewest.sources == 2


def test_no_rows() -> None:
    """Nothing is copied for nobody."""
    none, kept = SourceRows.of([0, 1], 2).select([])
    assert kept is None and none.owners == () and none.sources == 2 and none.width == 0
    assert none.grouped(torch.zeros(0, 3)).shape == (2, 0, 3) and none.owner.dtype == torch.int64
