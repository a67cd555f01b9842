"""Full and half width, 简 and 繁."""

import pytest

from qkv.data.labelled.check import SIMPLIFIED, TRADITIONAL, script_variants


def found(text: str) -> dict[str, int]:
    return {thing: way for thing, way, _ in script_variants(text)}


def test_ways_of_writing() -> None:
    assert found("我们来看看，好吗？") == {"script": 0, "marks": 0}
    assert found("我們來看看,好嗎?") == {"script": 1, "marks": 1}
    assert found("１２３号") == {"letters": 1} and found("123号") == {"letters": 0}
    assert found("Well, yes: no?") == {"letters": 0}
    assert found("后 面 里") == {} and found("") == {}  # written alike in both, or in neither


def test_the_table_is_openccs() -> None:
    opencc = pytest.importorskip("opencc")
    assert len(SIMPLIFIED) == len(TRADITIONAL) == len(set(SIMPLIFIED) | set(TRADITIONAL)) / 2
    assert set(opencc.OpenCC("t2s").convert(TRADITIONAL)) == set(SIMPLIFIED)
    assert set(opencc.OpenCC("s2t").convert(SIMPLIFIED)) == set(TRADITIONAL)
