"""Who cuts Chinese words: by name, as a function; and what is said when one cannot be had, or gives something else."""

import sys

import pytest

import qkv.text.segmenter as module
from qkv.errors import InputError
from qkv.text.segmenter import Cut, Segmenter, find_segmenter, is_known, segmenter_name


def pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(0, len(run), 2)]


def test_by_name_or_as_a_function() -> None:
    assert find_segmenter("none") is None
    found = find_segmenter(pairs)
    assert found is not None and found.name == "tests.unit.text.test_segmenter.pairs"
    jieba = find_segmenter("rjieba")
    assert jieba is not None and jieba.name.startswith("rjieba ") and jieba.cut("我爱北京") == ["我", "爱", "北京"]
    with pytest.raises(InputError, match="no segmenter 'rjeiba', only rjieba, none. Did you mean 'rjieba'"):
        find_segmenter("rjeiba")


def test_words_of_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Segmenter("pairs", pairs).words(["甲乙丙", "丁"]) == ["甲乙", "丙", "\n", "丁"]
    assert Segmenter("pairs", pairs).words([]) == []
    jieba = find_segmenter("rjieba")
    assert jieba is not None
    runs = ["我爱北京", "大学", "北京大学", "的", "㐂𠮷豈", "天安门"]
    alone = [words for run in runs for words in ("\n", *jieba.cut(run))][1:]
    for lines in (1, 2, 4, 100):  # in one call or in several, the same
        monkeypatch.setattr(module, "LINES", lines)
        assert jieba.words(runs) == alone


@pytest.mark.parametrize("wrong", [lambda run: [run[:-1]], lambda run: [*run, "。"], lambda run: ["x"], lambda run: []])
def test_words_must_give_back_the_text(wrong: Cut) -> None:
    with pytest.raises(InputError, match="'甲乙丙'.*must give exactly the original text"):
        Segmenter("wrong", wrong).words(["甲乙丙"])


def test_names_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_known(name) for name in ("rjieba", "rjieba 9.9", "none", "mine.cut", "rjieba9", 3, None)] == [
        True,
        True,
        *[False] * 5,
    ]
    jieba = find_segmenter("rjieba")
    assert jieba is not None and segmenter_name("rjieba") == jieba.name
    assert segmenter_name("rjieba 9.9") == "rjieba 9.9" and segmenter_name("none") is segmenter_name(None) is None
    with pytest.raises(InputError, match="no segmenter 'mine.cut'"):
        segmenter_name("mine.cut")
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    assert segmenter_name("rjieba") == "rjieba"  # a vocabulary can be written down without it


def test_an_rjieba_that_cannot_be_imported_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.text.segmenter.is_installed", lambda name: True)
    monkeypatch.setitem(sys.modules, "rjieba", None)  # an import of it fails from now on
    with pytest.raises(InputError, match="rjieba is installed but cannot be imported .*Install it again.*'none'"):
        find_segmenter("rjieba")


def test_without_rjieba_there_is_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    with pytest.raises(InputError, match=r"pip install 'qkv\[zh\]'.*'none' each 汉字"):
        find_segmenter("rjieba")
