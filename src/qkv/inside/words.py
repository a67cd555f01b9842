"""Which tokens make up a word, so that a page may show words where a model has pieces.

By their characters, whatever a vocabulary marks its pieces with (##ing, Ġthe, ▁the, the</w>): a word is a run of
letters and digits, with what stands inside it (isn't, 3.5), and every 汉字 and every other sign is one by itself. A
character that is several tokens (the bytes of a 汉字) is one word, a piece that is only the space before a word belongs
to that word, a mark around a text stands alone, and every token is in one word.
"""

from bisect import bisect_right
from collections.abc import Sequence

from qkv.report.attention_map import Token
from qkv.tasks.alignment import Span, word_spans

SPACES = ("Ġ", "▁")
"""What byte pairs and SentencePiece write for the space before a word."""


def word_ranges(tokens: Sequence[Token], texts: Sequence[str]) -> list[list[int]]:
    """[first, last] of every word, both counted in: together all tokens, in their order.

    >>> pieces = [("[CLS]", 0, 0), ("un", 0, 2), ("##happy", 2, 7), ("猫", 7, 8), ("狗", 8, 9), ("[SEP]", 0, 0)]
    >>> text = "unhappy猫狗"
    >>> tokens = [Token(one, text[start:end], start, end, 0, one[0] == "[") for one, start, end in pieces]
    >>> word_ranges(tokens, [text])
    [[0, 0], [1, 2], [3, 3], [4, 4], [5, 5]]
    """
    words = [word_spans(text) for text in texts]
    found: list[list[int]] = []
    before: tuple[int, int] | None = None  # segment and number of the word that the last token ended in
    opened = False  # the last token was a space before what comes now
    for place, token in enumerate(tokens):
        first, last = _words_of(token, words[token.segment])
        if first is not None and (opened or before == (token.segment, first)):
            found[-1][1] = place
        else:
            found.append([place, place])
        opened = token.token in SPACES and not token.special and first is None
        before = None if last is None else (token.segment, last)
    return found


def _words_of(token: Token, words: Sequence[Span]) -> tuple[int, int] | tuple[None, None]:
    """The first and the last word that a token has characters of; of a mark or a space, none."""
    if token.special or not token.text.strip():
        return None, None
    start = token.start + len(token.text) - len(token.text.lstrip())
    end = token.start + len(token.text.rstrip())
    first = bisect_right(words, start, key=lambda word: word.end)
    last = bisect_right(words, end - 1, key=lambda word: word.end)
    return first, last
