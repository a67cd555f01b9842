"""Figures of answers taken from a text: exact match and overlap, as the official scorers of SQuAD and CMRC 2018 count.

Both take the best of all accepted answers. A question without an accepted answer is answered rightly by "" alone.

SQuAD (evaluate-v2.0.py; evaluate-v1.1.py gives the same wherever an accepted answer has a word left once normalised):
lower case, no ASCII punctuation, no articles, white space folded; F1 counts words whatever their order.

CMRC 2018 (cmrc2018_evaluate.py, v5): lower case, its own list of punctuation left out; F1 is of the longest run of
segments that both have, a segment being a 汉字 or a word of other script. The official script cuts those words with
NLTK's `word_tokenize`; `_words` cuts the same way, without NLTK's model of where an English sentence ends: a full stop
inside the answer stays with its word ("Terry A. Gates"), one at its end stands alone.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def squad_normalize(text: str) -> str:
    """
    >>> squad_normalize("The Duke's  an-swer, (a) 1.5!")
    'dukes answer 15'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def squad_exact(prediction: str, answers: Sequence[str]) -> float:
    """1 when the prediction is one of the answers once both are normalised, else 0."""
    return float(squad_normalize(prediction) in _normalize(answers))


def squad_f1(prediction: str, answers: Sequence[str]) -> float:
    """
    >>> squad_f1("the cat on a mat", ["cat", "a black cat"])  # {cat, on, mat} with {cat}: 2 · 1 / (3 + 1)
    0.5
    """
    said = squad_normalize(prediction).split()
    return max(_words_f1(said, answer.split()) for answer in _normalize(answers))


def _normalize(answers: Sequence[str]) -> list[str]:
    """An accepted answer of which nothing is left is none; none at all is the empty one."""
    return [normal for answer in answers if (normal := squad_normalize(answer))] or [""]


def _words_f1(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    shared = (Counter(said) & Counter(wanted)).total()
    return _f1(shared, len(said), len(wanted))


def _f1(shared: int, said: int, wanted: int) -> float:
    # through precision and recall, as the official scripts do, so that the last digit is theirs too
    if not shared:
        return 0.0
    precision, recall = shared / said, shared / wanted
    return 2 * precision * recall / (precision + recall)


# CMRC 2018. The script's list also has "……", which as two characters equals no single one: "…" is not left out.
_LEFT_OUT = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_SEGMENT = re.compile("([\u4e00-\u9fa5])")  # the script's own range; rarer 汉字 are part of words


def cmrc_exact(prediction: str, answers: Sequence[str]) -> float:
    """1 when the prediction is one of the answers, but for case and punctuation; inner spaces count."""
    said = _without_punctuation(prediction)
    return float(any(said == _without_punctuation(answer) for answer in answers or ("",)))


def cmrc_f1(prediction: str, answers: Sequence[str]) -> float:
    """
    >>> cmrc_f1("在1998年", ["1998年"])  # 在 | 1998 | 年 with 1998 | 年: 2 · 2 / (3 + 2)
    0.8
    """
    said = cmrc_segments(prediction)
    if not answers:
        return float(not said)
    return max(_segments_f1(said, cmrc_segments(answer)) for answer in answers)


def cmrc_segments(text: str) -> list[str]:
    """汉字 one by one, other words as they are, punctuation left out.

    >>> cmrc_segments("《Harry Potter》第3部，25%")
    ['harry', 'potter', '第', '3', '部', '25', '%']
    """
    found: list[str] = []
    for place, piece in enumerate(_SEGMENT.split(_without_punctuation(text))):
        found.extend([piece] if place % 2 else _words(piece))  # split() puts every second one between the others
    return found


def _without_punctuation(text: str) -> str:
    # white space is stripped first: what punctuation leaves at the ends stays, as in the script
    return text.lower().strip().translate(_LEFT_OUT)


def _segments_f1(said: list[str], wanted: list[str]) -> float:
    """Of the longest common substring of segments (not subsequence, though the script calls it LCS)."""
    run = SequenceMatcher(None, wanted, said, autojunk=False).find_longest_match()
    return _f1(run.size, len(said), len(wanted))


# How the Penn Treebank cuts English, as far as CMRC's punctuation leaves anything to cut.
_OPENING = re.compile(r"""(?<=[ (\[{<])(?:"|'')""")
_CLOSING = re.compile(r"''|\"")
_LAST_STOP = re.compile(r"(?<=[^.])\.(?=[\])}>'»\s]*$)")
_ALONE = re.compile(r"\.{2,}|``|''|,(?!\d)|[;@#$%&?!()\[\]{}<>«»‘„\u2012-\u2015]")
_CLITIC = re.compile(r"(?<=[^'])(?:'(?:s|m|d|ll|re|ve)?|n't)$")
_QUOTED = re.compile(r"'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
_JOINED = {
    "cannot": ("can", "not"),
    "d'ye": ("d", "'ye"),
    "gimme": ("gim", "me"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "lemme": ("lem", "me"),
    "more'n": ("more", "'n"),
    "wanna": ("wan", "na"),
    "'tis": ("'t", "is"),
    "'twas": ("'t", "was"),
}


def _words(text: str) -> list[str]:
    """
    >>> _words('"lloyd\\'s", 1,000 (u.s.) inc.')
    ['``', 'lloyd', "'s", "''", ',', '1,000', '(', 'u.s.', ')', 'inc', '.']
    """
    if text.isalnum():  # nearly always
        return [text]
    if text.startswith('"'):
        text = "`` " + text[1:]
    text = _CLOSING.sub(" '' ", _OPENING.sub(" `` ", text))
    text = _LAST_STOP.sub(" . ", text)
    found: list[str] = []
    for word in _ALONE.sub(lambda mark: f" {mark[0]} ", text).split():
        if word == "''":
            found.append(word)
            continue
        if len(word) > 1 and _QUOTED.match(word) and word not in _JOINED:
            found.append("'")
            word = word[1:]
        clitic = _CLITIC.search(word)
        if clitic:
            found.extend((word[: clitic.start()], clitic[0]))
        else:
            found.extend(_JOINED.get(word, (word,)))
    return found


SCORERS: dict[str, tuple[Callable[[str, Sequence[str]], float], Callable[[str, Sequence[str]], float]]] = {
    "squad": (squad_exact, squad_f1),
    "cmrc": (cmrc_exact, cmrc_f1),
}
"""By name: exact match and F1, both of (prediction, accepted answers)."""
