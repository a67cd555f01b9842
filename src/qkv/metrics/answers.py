"""Metrics of extractive question answering: exact match and F1, as in the official scorers of SQuAD and CMRC 2018.

Both take the maximum over all accepted answers. For a question without an accepted answer only "" is right.

SQuAD (evaluate-v2.0.py; evaluate-v1.1.py gives the same if an accepted answer is not empty after normalisation):
lower case, no ASCII punctuation, no articles, white space normalised; F1 of the words, in any order.

CMRC 2018 (cmrc2018_evaluate.py, v5): lower case, without its own list of punctuation; F1 of the longest common run of
segments, where a segment is a 汉字 or a word of another script. The official script finds those words with NLTK's
`word_tokenize`; `_words` does the same without NLTK's sentence model: a full stop inside the answer stays with its word
("Terry A. Gates"), one at the end is separate.
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
    """Return 1 if the normalised prediction equals a normalised answer, else 0."""
    return float(squad_normalize(prediction) in _normalize(answers))


def squad_f1(prediction: str, answers: Sequence[str]) -> float:
    """
    >>> squad_f1("the cat on a mat", ["cat", "a black cat"])  # {cat, on, mat} with {cat}: 2 · 1 / (3 + 1)
    0.5
    """
    said = squad_normalize(prediction).split()
    return max(_words_f1(said, answer.split()) for answer in _normalize(answers))


def _normalize(answers: Sequence[str]) -> list[str]:
    """Normalise answers and drop empty ones; [""] if none is left."""
    return [normal for answer in answers if (normal := squad_normalize(answer))] or [""]


def _words_f1(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    shared = (Counter(said) & Counter(wanted)).total()
    return _f1(shared, len(said), len(wanted))


def _f1(shared: int, said: int, wanted: int) -> float:
    # by precision and recall, as the official scripts do, for the same rounding
    if not shared:
        return 0.0
    precision, recall = shared / said, shared / wanted
    return 2 * precision * recall / (precision + recall)


# CMRC 2018. The script's list also has "……", two characters that never match a single one, so "…" is kept.
_LEFT_OUT = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_SEGMENT = re.compile("([\u4e00-\u9fa5])")  # the script's own range; rarer 汉字 are part of words


def cmrc_exact(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction equals an answer, ignoring case and punctuation but not inner spaces; else 0."""
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
    """Split into single 汉字 and words of other scripts, without punctuation.

    >>> cmrc_segments("《Harry Potter》第3部，25%")
    ['harry', 'potter', '第', '3', '部', '25', '%']
    """
    found: list[str] = []
    for place, piece in enumerate(_SEGMENT.split(_without_punctuation(text))):
        found.extend([piece] if place % 2 else _words(piece))  # odd positions are the 汉字
    return found


def _without_punctuation(text: str) -> str:
    # strip first, as in the script: spaces next to removed punctuation stay
    return text.lower().strip().translate(_LEFT_OUT)


def _segments_f1(said: list[str], wanted: list[str]) -> float:
    """F1 of the longest common substring of segments (not subsequence, although the script calls it LCS)."""
    run = SequenceMatcher(None, wanted, said, autojunk=False).find_longest_match()
    return _f1(run.size, len(said), len(wanted))


# Penn Treebank tokenization, as far as needed after CMRC's punctuation is removed.
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
    if text.isalnum():  # the usual case
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
"""Exact match and F1 by name, both functions of (prediction, accepted answers)."""
