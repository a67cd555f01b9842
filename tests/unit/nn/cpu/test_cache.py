"""What a decoder remembers: held against plain lists of everything, and looked at for copies that are not needed."""

import random

import pytest
import torch
from torch import Tensor

from qkv.nn.attention import attention
from qkv.nn.cpu.cache import FIRST_CAPACITY, SourceMemory, TokenCache

H, K = 2, 4


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_a_cache_is_a_list_of_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are doubled, dropped and moved at random; every row keeps a list of its own, written anew each time."""
    monkeypatch.setattr("qkv.nn.cpu.cache.FIRST_CAPACITY", 3)
    chance = random.Random(0)
    cache = TokenCache(layers=2, rows=3, longest=14, like=drawn(H, K))
    lists: list[list[tuple[Tensor, Tensor]]] = [[], [], []]  # a row's keys and values, (2 layers, H, K) each
    for _ in range(14):
        count = len(lists)
        key, value, query = drawn(2, count, H, K), drawn(2, count, H, K), drawn(2, count, H, K)
        lists = [[*row, (key[:, number], value[:, number])] for number, row in enumerate(lists)]
        ways = cache.next_token()
        for layer in range(2):
            answer, _ = ways[layer](query[layer], key[layer], value[layer])
            for number, row in enumerate(lists):
                keys, values = (torch.stack([pair[side][layer] for pair in row], dim=1) for side in (0, 1))  # (H, T, K)
                expected, _ = attention(query[layer, number, :, None], keys, values)
                assert torch.allclose(answer[number], expected[:, 0], atol=1e-12)
        cache.advance()
        rows = [chance.randrange(count) for _ in range(chance.choice([count, count, 1, 4, 7]))]
        lists = [lists[row] for row in rows]
        cache.select(rows)


def test_a_cache_is_written_in_place() -> None:
    cache = TokenCache(layers=1, rows=4, longest=1000, like=drawn(H, K))
    places = set()
    for _ in range(FIRST_CAPACITY // 4):
        cache.next_token()[0](drawn(4, H, K), drawn(4, H, K), drawn(4, H, K))
        cache.advance()
        cache.select([1, 1, 0, 3])
        places.add((cache.keys.data_ptr(), cache.values.data_ptr()))
    assert len(places) == 1


def test_a_cache_ends_where_it_was_said_to() -> None:
    cache = TokenCache(layers=1, rows=1, longest=1, like=drawn(H, K))
    cache.next_token()[0](drawn(1, H, K), drawn(1, H, K), drawn(1, H, K))
    cache.advance()
    with pytest.raises(AssertionError, match="made for 1 tokens"):
        cache.next_token()


@pytest.mark.parametrize("rows", [1, 3])
def test_some_tokens_at_once_are_one_after_another(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Five after two, with room for four at first; what is not advanced to is forgotten."""
    monkeypatch.setattr("qkv.nn.cpu.cache.FIRST_CAPACITY", 4)
    single, several = (TokenCache(layers=1, rows=rows, longest=8, like=drawn(H, K)) for _ in range(2))
    for _ in range(2):
        key, value, query = (drawn(rows, H, K) for _ in range(3))
        for cache in (single, several):
            cache.next_token()[0](query, key, value)
            cache.advance()
    several.next_tokens(3)[0](*(drawn(rows * 3, H, K) for _ in range(3)))
    key, value, query = (drawn(rows, 5, H, K) for _ in range(3))
    answers, _ = several.next_tokens(5)[0](*(side.flatten(0, 1) for side in (query, key, value)), scale=0.3)
    for number in range(5):
        expected, _ = single.next_token()[0](query[:, number], key[:, number], value[:, number], scale=0.3)
        assert torch.allclose(answers.unflatten(0, (rows, 5))[:, number], expected, atol=1e-12)
        single.advance()
    assert several.room == 6
    with pytest.raises(AssertionError, match="made for 8 tokens; 2 are written"):
        several.next_tokens(7)


def test_several_rows_in_the_place_of_each() -> None:
    layers, mask = [(drawn(2, H, K, 5), drawn(2, H, 5, K))], torch.arange(5) < torch.tensor([[5], [3]])
    memory, query = SourceMemory(layers, mask, [1, 0]), drawn(2, 4, H, K)
    found, _ = memory.several(4).attend(query.flatten(0, 1), *layers[0])
    for number in range(4):
        expected, _ = memory.attend(query[:, number], *layers[0])
        assert torch.allclose(found.unflatten(0, (2, 4))[:, number], expected, atol=1e-12)


ROWS: tuple[list[int], ...] = (
    [0, 0, 1, 1, 2, 2],  # a full rectangle in order
    [0, 1, 2],
    [0, 0, 0, 2],  # one source done, others with different numbers of rows
    [2, 0, 1, 1],  # out of order
    [1],
    [],
)


@pytest.mark.parametrize("rows", ROWS)
def test_every_row_asks_its_own_source(rows: list[int]) -> None:
    lengths = (4, 2, 5)
    key, value = drawn(3, H, 5, K), drawn(3, H, 5, K)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    query = drawn(len(rows), H, K)
    # straight away, and after rows were chosen from others
    layers = [(key.transpose(2, 3), value)]
    straight = SourceMemory(layers, mask, rows)
    chosen = SourceMemory(layers, mask, [0, 1, 2]).select(rows)
    for memory in (straight, chosen):
        kept_key, kept_value = memory.layers[0]
        answer, weights = memory.attend(query, kept_key, kept_value)
        assert answer.shape == (len(rows), H, K)
        for number, source in enumerate(rows):
            real = lengths[source]
            expected, looked = attention(query[number, :, None], key[source, :, :real], value[source, :, :real])
            assert torch.allclose(answer[number], expected[:, 0], atol=1e-12)
            assert torch.allclose(weights[number, :, :real], looked[:, 0], atol=1e-12)
            assert (weights[number, :, real:] == 0).all()


def test_sources_are_not_copied_until_half_are_done_with() -> None:
    layers = [(drawn(4, H, K, 5), drawn(4, H, 5, K))]
    memory = SourceMemory(layers, None, [0, 0, 1, 1, 2, 2, 3, 3])
    for rows in ([1, 0, 3, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7], [5, 4]):
        memory = memory.select(rows)
        if len(rows) > 4:
            assert memory.layers[0][0] is layers[0][0]
    assert memory.rows.sources == 1
    assert torch.equal(memory.layers[0][0], layers[0][0][3:])
