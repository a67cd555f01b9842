"""What a language model remembers of its texts: held against plain lists of everything, and looked at for copies."""

import random

import pytest
import torch
from torch import Tensor

from qkv.nn.attention import attention
from qkv.nn.cpu.cache import TextCache

H, K, L = 2, 4, 2


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def expected(row: list[tuple[Tensor, Tensor]], query: Tensor, layer: int) -> Tensor:
    """(H, K): the answer to a query (H, K) that sees all of a row, whose keys and values are (L, H, K)."""
    keys, values = (torch.stack([pair[side][layer] for pair in row], dim=1) for side in (0, 1))  # (H, T, K)
    return attention(query[:, None], keys, values)[0][:, 0]


@pytest.mark.parametrize("lengths", [[3, 0, 5], [2, 2], [0], [4]])
@pytest.mark.parametrize("hypotheses", [1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_a_cache_is_a_list_of_all_tokens(lengths: list[int], hypotheses: int, count: int) -> None:
    chance = random.Random(0)
    cache = TextCache(L, lengths, 8, (H, K), drawn(1), hypotheses)
    cache.keys.fill_(torch.nan)  # what lies in fresh memory may be anything
    cache.values.fill_(torch.nan)
    total = sum(lengths)
    query, key, value = drawn(L, total, H, K), drawn(L, total, H, K), drawn(L, total, H, K)
    prompts: list[list[tuple[Tensor, Tensor]]] = []
    begin = 0
    for length in lengths:
        prompts.append([(key[:, at], value[:, at]) for at in range(begin, begin + length)])
        begin += length
    if total:
        for layer, attend in enumerate(cache.prompts()):
            answer, _ = attend(query[layer], key[layer], value[layer])
            at = 0
            for row in prompts:
                for place in range(len(row)):
                    wanted = expected(row[: place + 1], query[layer, at], layer)
                    assert torch.allclose(answer[at], wanted, atol=1e-12)
                    at += 1
    rows = [list(row) for row in prompts for _ in range(hypotheses)]
    for _ in range(8 // count):
        query, key, value = (drawn(L, len(rows), count, H, K) for _ in range(3))
        positions = torch.as_tensor(cache.positions).expand(len(rows))
        assert positions.tolist() == [len(row) for row in rows]
        before = [list(row) for row in rows]
        ways = cache.next_tokens(count)
        for layer in range(L):
            answer, _ = ways[layer](*(x[layer].flatten(0, 1) for x in (query, key, value)))
            answer = answer.unflatten(0, (-1, count))
            for number in range(len(rows)):
                for place in range(count):
                    seen = before[number] + [(key[:, number, at], value[:, number, at]) for at in range(place + 1)]
                    wanted = expected(seen, query[layer, number, place], layer)
                    assert torch.allclose(answer[number, place], wanted, atol=1e-12)
        cache.advance(count)
        rows = [
            row + [(key[:, number, at], value[:, number, at]) for at in range(count)] for number, row in enumerate(rows)
        ]
        chosen = [chance.randrange(len(rows)) for _ in range(chance.choice([len(rows), 1, 2, 7]))]
        cache.select(chosen)
        rows = [rows[row] for row in chosen]


def test_a_step_copies_nothing() -> None:
    cache = TextCache(L, [3], 6, (H, K), drawn(1))
    memory = cache.keys.data_ptr(), cache.values.data_ptr()
    for _ in range(6):
        for attend in cache.next_tokens():
            attend(drawn(1, H, K), drawn(1, H, K), drawn(1, H, K))
        cache.advance()
        cache.select([0])
    assert memory == (cache.keys.data_ptr(), cache.values.data_ptr())
    with pytest.raises(AssertionError, match="made for 9 tokens; 10 would be written"):
        cache.next_tokens()


def test_hypotheses_of_one_prompt_leave_it_where_it_is() -> None:
    """Moving between them copies what was written after it, which is less."""
    cache = TextCache(1, [4], 2, (H, K), drawn(1), hypotheses=2)
    for attend in cache.prompts():
        attend(drawn(4, H, K), drawn(4, H, K), drawn(4, H, K))
    for attend in cache.next_tokens():
        attend(drawn(2, H, K), drawn(2, H, K), drawn(2, H, K))
    cache.advance()
    cache.keys[:, 1, :4] = 7.0  # they cannot differ; if they did, one would see whether they are copied
    written = cache.keys[:, 1, 4].clone()
    cache.select([1, 1])
    assert not bool((cache.keys[:, 0, :4] == 7).any())
    assert torch.equal(cache.keys[:, 0, 4], written)


def test_tokens_that_were_not_advanced_over_are_forgotten() -> None:
    cache = TextCache(1, [2], 4, (H, K), drawn(1))
    prompt = drawn(2, H, K), drawn(2, H, K)
    cache.prompts()[0](drawn(2, H, K), *prompt)
    cache.next_tokens(3)[0](drawn(3, H, K), drawn(3, H, K), drawn(3, H, K))
    query, key, value = drawn(1, H, K), drawn(1, H, K), drawn(1, H, K)
    answer, _ = cache.next_tokens()[0](query, key, value)
    row = [*zip(prompt[0][:, None], prompt[1][:, None], strict=True), (key, value)]
    assert torch.allclose(answer[0], expected(row, query[0], 0), atol=1e-12)
