"""Metrics of translations: BLEU (Papineni et al. 2002) and chrF (Popović 2015), computed by sacrebleu (Post 2018).

Both compare a translation with a reference, and are from 0 to 100. BLEU counts matching n-grams of one to four words
over all sentences, with a penalty for short translations. chrF counts character n-grams, and so gives credit for a
right stem with a wrong ending. Two BLEU scores are comparable only if both split texts into words in the same way: each
comes with sacrebleu's signature, which says how, and should be quoted with it.

What this file does NOT do: decide how to count. sacrebleu does (extra `translate`), with its default settings: case
matters, Chinese is split into 汉字 (`zh`), Japanese and Korean by mecab if installed, all else as in WMT
(`13a`). Only for intervals, which need scores of thousands of groups of sentences, are the equations implemented here.

Shapes: n sentences.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib import util
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from qkv.metrics.intervals import FloatArray, bootstrap

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

_WORDS = {  # language code → sacrebleu tokenizer
    **dict.fromkeys(("zh", "cmn", "zho", "chi", "yue", "wuu", "lzh"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
}
_OTHERS = "13a"
_ORDER = 4
"""Longest word n-grams of BLEU."""
_CHARACTERS = 6
"""Longest character n-grams of chrF."""


class ScoreError(ValueError):
    """A score cannot be computed, for a reason that the user can fix; the message says how."""


class TranslationScore(NamedTuple):
    """A score with sacrebleu's signature; the interval is NaN if it was not requested."""

    name: str  # "BLEU", "chrF2"
    value: float  # 0 to 100
    signature: str
    low: float = math.nan  # 95 %
    high: float = math.nan

    def __str__(self) -> str:
        """Format as sacrebleu does.

        >>> print(TranslationScore("BLEU", 36.5432, "nrefs:1|tok:13a", 35.1, 38.0))
        BLEU|nrefs:1|tok:13a = 36.54 (95 %: 35.10 to 38.00)
        """
        interval = "" if math.isnan(self.low) else f" (95 %: {self.low:.2f} to {self.high:.2f})"
        return f"{self.name}|{self.signature} = {self.value:.2f}{interval}"


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, *, interval: bool = False
) -> TranslationScore:
    """Return corpus BLEU; NaN without sentences. `language` is that of the translations: "en", "zh-CN".

    >>> round(bleu(["汤姆追逐杰瑞"], ["汤姆追逐杰瑞"], "zh").value, 9)
    100.0
    """
    counts = bleu_counts(hypotheses, references, language)
    low, high = bootstrap(counts, bleu_of) if interval else (math.nan, math.nan)
    return TranslationScore(
        "BLEU", _bleu_of_all(counts.sum(0)) if len(counts) else math.nan, bleu_signature(language), low, high
    )


def _bleu_of_all(sums: FloatArray) -> float:
    """Exactly sacrebleu's result."""
    from sacrebleu.metrics.bleu import BLEU

    written, wanted, *runs = sums.astype(int).tolist()
    return BLEU.compute_bleu(runs[:_ORDER], runs[_ORDER:], written, wanted, smooth_method="exp").score


def bleu_counts(hypotheses: Sequence[str], references: Sequence[str], language: str) -> FloatArray:
    """(n, 10): the statistics of BLEU per sentence, so that any group of sentences can be scored.

    Words of the hypothesis, of the reference; matching n-grams of 1 to 4 words; n-grams of the hypothesis.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations for {len(references)} references: one per reference needed.")
    counter = _bleu(language)
    found = np.zeros((len(hypotheses), 2 + 2 * _ORDER))
    for row, hypothesis, reference in zip(found, hypotheses, references, strict=True):
        score = counter.sentence_score(hypothesis, [reference])
        row[:] = score.sys_len, score.ref_len, *score.counts, *score.totals
    return found


def bleu_of(sums: FloatArray) -> FloatArray:
    """Return BLEU of groups of sentences, from the sums of their `bleu_counts`: (groups, 10) → (groups,).

    The bootstrap needs it for thousands of groups; a test compares it with sacrebleu. The first order of n-grams
    without a match counts as half a match, the second as a quarter, … ("exp" smoothing).
    """
    written, wanted = sums[:, 0], sums[:, 1]
    right, all_runs = sums[:, 2 : 2 + _ORDER], sums[:, 2 + _ORDER :]
    halves = 0.5 ** np.cumsum((right == 0) & (all_runs > 0), axis=1)
    shares = np.where(right > 0, right, halves) / np.maximum(all_runs, 1)  # (groups, 4)
    short = np.exp(np.minimum(0, 1 - wanted / np.maximum(written, 1)))
    some = (right[:, 0] > 0) & (all_runs[:, -1] > 0)  # without any 4-gram BLEU is 0
    return np.where(some, 100 * short * np.exp(np.log(shares).mean(1)), 0.0)


def bleu_signature(language: str) -> str:
    """
    >>> bleu_signature("zh-TW").partition("|version")[0]
    'nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp'
    """
    counter = _bleu(language, effective=False)
    counter.corpus_score([""], [[""]])  # sacrebleu knows its signature only after scoring
    return str(counter.get_signature())


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, interval: bool = False) -> TranslationScore:
    """Return corpus chrF: n-grams of one to six characters without spaces, the same for every language.

    >>> str(chrf(["the cats sat"], ["the cat sat"])).partition("|version")[0]
    'chrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no'
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations for {len(references)} references: one per reference needed.")
    _need_sacrebleu()
    from sacrebleu.metrics.chrf import CHRF

    counter = CHRF()
    found = counter.corpus_score(list(hypotheses) or [""], [list(references) or [""]])
    low, high = bootstrap(chrf_counts(hypotheses, references), chrf_of) if interval else (math.nan, math.nan)
    return TranslationScore(
        found.name, found.score if hypotheses else math.nan, str(counter.get_signature()), low, high
    )


def chrf_counts(hypotheses: Sequence[str], references: Sequence[str]) -> FloatArray:
    """(n, 18): the statistics of chrF per sentence, as `bleu_counts`.

    For n-grams of 1 to 6 characters: count in the hypothesis (0 if the reference has none), in the reference, matches.

    >>> chrf_counts(["a b"], ["ab c"])[0, :6].tolist()
    [2.0, 3.0, 2.0, 1.0, 2.0, 1.0]
    """
    found = np.zeros((len(hypotheses), _CHARACTERS, 3))
    for row, pair in zip(found, zip(hypotheses, references, strict=True), strict=True):
        written, wanted = ("".join(text.split()) for text in pair)
        for length, cells in enumerate(row, 1):
            ours, theirs = _runs(written, length), _runs(wanted, length)
            cells[:] = ours.total() if theirs else 0, theirs.total(), (ours & theirs).total()
    return found.reshape(len(hypotheses), 3 * _CHARACTERS)


def _runs(text: str, length: int) -> Counter[str]:
    return Counter(text[begin : begin + length] for begin in range(len(text) - length + 1))


def chrf_of(sums: FloatArray) -> FloatArray:
    """Return chrF of groups of sentences, from the sums of their `chrf_counts`: (groups, 18) → (groups,).

    Mean precision and mean recall over the orders that both sides have, combined to F2, in which recall has twice the
    weight. A test compares it with sacrebleu.
    """
    written, wanted, right = np.moveaxis(sums.reshape(len(sums), _CHARACTERS, 3), 2, 0)  # (groups, 6) each
    lengths = ((written > 0) & (wanted > 0)).sum(1)
    precision = (right / np.maximum(written, 1)).sum(1) / np.maximum(lengths, 1)
    recall = (right / np.maximum(wanted, 1)).sum(1) / np.maximum(lengths, 1)
    return np.asarray(100 * 5 * precision * recall / np.maximum(4 * precision + recall, 1e-300))


def words_by(language: str) -> str:
    """Return the name of sacrebleu's tokenizer for this language.

    >>> words_by("zh"), words_by("zh_Hans"), words_by("en-GB")
    ('zh', 'zh', '13a')
    """
    code = re.fullmatch(r"([a-z]{2,3})(?:[-_][a-z0-9]+)*", language.strip().lower())
    if code is None:
        raise ScoreError(
            f"'{language}' is not a language code of two or three letters, such as en, de, zh, zh-CN. "
            "It decides how BLEU splits translations into words."
        )
    return _WORDS.get(code[1], _OTHERS)


def is_available() -> bool:
    """Whether sacrebleu is installed."""
    return util.find_spec("sacrebleu") is not None


def _need_sacrebleu() -> None:
    if not is_available():
        raise ScoreError(
            "BLEU and chrF are computed by sacrebleu, which is not installed: pip install 'qkv[translate]'."
        )


def _bleu(language: str, effective: bool = True) -> "BLEU":
    """`effective` changes sacrebleu's score of a single sentence, but not its counts."""
    words = words_by(language)
    _need_sacrebleu()
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=words, effective_order=effective)
    except (ImportError, RuntimeError) as error:  # mecab is an extra of sacrebleu
        raise ScoreError(
            f"BLEU of '{language}' needs a word segmenter: pip install 'sacrebleu[{words[:2]}]'."
        ) from error
