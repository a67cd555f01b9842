"""BLEU and chrF: sacrebleu's own figures, an example worked on paper, and what is said where something is missing."""

import math
import sys
from functools import partial

import numpy as np
import pytest

from qkv.metrics.translation import (
    ScoreError,
    bleu,
    bleu_counts,
    bleu_of,
    bleu_signature,
    chrf,
    chrf_counts,
    chrf_of,
    is_available,
    words_by,
)

sacrebleu = pytest.importorskip("sacrebleu", reason="the extra translate")

ENGLISH = (
    ["A man is riding a horse.", "Two dogs run in snow", "", "the the the the", "It isn't 3.5 km, is it?"],
    ["A man rides a horse .", "Two dogs run in the snow.", "Nobody.", "the cat", "It isn't 3.5 km, is it?"],
)
CHINESE = (
    ["汤姆追逐杰瑞。", "你好，世界", "我有3.5公斤BERT", "他 喜欢 猫", "猫🐱"],
    ["汤姆在追杰瑞。", "你好，世界！", "我有3.5公斤的BERT", "她喜欢狗", "猫🐱"],
)


@pytest.mark.parametrize(("texts", "language", "words"), [(ENGLISH, "en", "13a"), (CHINESE, "zh", "zh")])
def test_the_figures_are_sacrebleus(texts: tuple[list[str], list[str]], language: str, words: str) -> None:
    hypotheses, references = texts
    theirs = sacrebleu.BLEU(tokenize=words)
    expected = theirs.corpus_score(hypotheses, [references])
    found = bleu(hypotheses, references, language)
    assert found.value == expected.score and 0 < found.value < 100
    assert found.signature == str(theirs.get_signature())
    assert f"tok:{words}" in found.signature and "eff:no" in found.signature and "version:" in found.signature
    characters = sacrebleu.CHRF()
    by_characters = chrf(hypotheses, references)
    assert by_characters.value == characters.corpus_score(hypotheses, [references]).score
    assert by_characters.signature == str(characters.get_signature())
    assert math.isnan(found.low) and "95 %" not in str(found)


def test_worked_on_paper() -> None:
    """the cat sat on a mat / the cat sat on the mat: 5 of 6 words, 3 of 5 pairs, 2 of 4, 1 of 3; equally long."""
    hypotheses, references = ["the cat sat on a mat"], ["the cat sat on the mat"]
    assert bleu_counts(hypotheses, references, "en").tolist() == [[6, 6, 5, 3, 2, 1, 6, 5, 4, 3]]
    assert bleu(hypotheses, references, "en").value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    # one word of two is missing: e^(1 − 2/1) is what is left of it
    short = bleu(["the cat sat on"], ["the cat sat on the mat"], "en")
    assert short.value == pytest.approx(100 * math.exp(1 - 6 / 4))


def test_chinese_is_cut_into_characters() -> None:
    """By spaces the whole sentence would be one word, and half a hit none."""
    hypotheses, references = ["汤姆在追逐杰瑞的猫"], ["汤姆在追逐杰瑞的狗"]
    assert bleu(hypotheses, references, "zh").value > 80
    assert bleu(hypotheses, references, "en").value == 0


def test_groups_of_sentences_from_the_same_counts() -> None:
    hypotheses, references = ENGLISH
    counts = bleu_counts(hypotheses, references, "en")
    theirs = sacrebleu.BLEU()
    for group in ([0, 1], [4], [2], [0, 1, 2, 3, 4]):
        expected = theirs.corpus_score([hypotheses[i] for i in group], [[references[i] for i in group]]).score
        assert bleu_of(counts[group].sum(0)[None]).tolist() == pytest.approx([expected])


def test_the_equation_is_sacrebleus() -> None:
    """Also where kinds of runs are missing, one after the other, or there are none to count."""
    draw = np.random.default_rng(0)
    sums = []
    for _ in range(400):
        words = int(draw.integers(0, 12))
        runs = [max(0, words - n) for n in range(4)]
        right = [int(draw.integers(0, 1 + total)) * int(draw.integers(0, 2)) for total in runs]
        sums.append([words, int(draw.integers(0, 14)), *sorted(right, reverse=True), *runs])
    expected = [sacrebleu.BLEU.compute_bleu(one[2:6], one[6:], one[0], one[1], "exp").score for one in sums]
    assert 50 < np.count_nonzero(expected) < 350
    assert bleu_of(np.array(sums, float)) == pytest.approx(expected)


@pytest.mark.parametrize("texts", [ENGLISH, CHINESE])
def test_groups_of_sentences_by_characters(texts: tuple[list[str], list[str]]) -> None:
    """Also where one side is too short for runs of some length, or empty."""
    hypotheses, references = [*texts[0], "abcdefgh", "ab", ""], [*texts[1], "abc", "abcdefgh", ""]
    counts = chrf_counts(hypotheses, references)
    theirs = sacrebleu.CHRF()
    for group in ([0, 1], [2], [5], [6], [7], [5, 6], list(range(8))):
        expected = theirs.corpus_score([hypotheses[i] for i in group], [[references[i] for i in group]]).score
        assert chrf_of(counts[group].sum(0)[None]).tolist() == pytest.approx([expected])


def test_an_interval_lies_around_the_value() -> None:
    hypotheses = [f"a man number {n} {'rides a horse' if n % 3 else 'is seen'}" for n in range(60)]
    references = [f"a man number {n} rides a horse" for n in range(60)]
    found = bleu(hypotheses, references, "en", interval=True)
    assert found.low < found.value < found.high < 100
    assert found == bleu(hypotheses, references, "en", interval=True)
    narrower = bleu(hypotheses * 4, references * 4, "en", interval=True)
    assert narrower.value == pytest.approx(found.value)
    assert narrower.high - narrower.low < 0.7 * (found.high - found.low)
    assert f"(95 %: {found.low:.2f} to {found.high:.2f})" in str(found)
    by_characters = chrf(hypotheses, references, interval=True)
    assert by_characters.low < by_characters.value < by_characters.high < 100
    assert by_characters._replace(low=0, high=0) == chrf(hypotheses, references)._replace(low=0, high=0)


def test_of_nothing_there_is_no_figure() -> None:
    found = bleu([], [], "de", interval=True)
    assert math.isnan(found.value) and math.isnan(found.low) and "tok:13a" in found.signature
    assert math.isnan(chrf([], []).value)
    assert np.array_equal(bleu_counts([], [], "de"), np.zeros((0, 10)))
    with pytest.raises(ValueError, match="1 translations for 0 references"):
        bleu(["a"], [], "en")
    with pytest.raises(ValueError, match="1 translations for 0 references"):
        chrf(["a"], [])


@pytest.mark.parametrize("code", ["zh", "zh-CN", "ZH_tw", "cmn", "cmn_Hans"])
def test_chinese_by_any_code(code: str) -> None:
    assert words_by(code) == "zh"


@pytest.mark.parametrize("word", ["Chinese", "中文", "", "e", "english text"])
def test_what_is_no_code_is_refused(word: str) -> None:
    """A language that is guessed wrong would give a figure that is wrong and looks right."""
    with pytest.raises(ScoreError, match="not a language code"):
        bleu(["a"], ["a"], word)


def test_without_sacrebleu_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_available()
    monkeypatch.setattr("qkv.metrics.translation.util.find_spec", lambda name: None)
    assert not is_available()
    for score in (partial(bleu, ["a"], ["a"], "en"), partial(chrf, ["a"], ["a"]), partial(bleu_signature, "en")):
        with pytest.raises(ScoreError, match=r"pip install 'qkv\[translate\]'"):
            score()


def test_without_mecab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(ScoreError, match=r"pip install 'sacrebleu\[ja\]'"):
        bleu(["猫"], ["猫"], "ja")
