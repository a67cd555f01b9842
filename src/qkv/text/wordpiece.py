"""WordPiece in plain Python, written to be read: how BERT splits a text into subwords.

A text goes through five steps (Devlin et al. 2019, section 3, and `tokenization.py` of google-research/bert):

    clean    control characters are removed, every kind of white space becomes a space
    space    每个汉字 gets a space on both sides, so Chinese is read character by character
    fold     uncased vocabularies only: accents are removed, then capitals are lower-cased
    words    split at spaces, and around every punctuation mark
    pieces   each word becomes the longest subword in the vocabulary, then the longest that continues it, ...

What this file does NOT do: ids, character offsets, batches, speed: `tokenizer.py` does those with the Rust library
`tokenizers`. `vocabulary.py` learns a vocabulary. Tests compare this file with the Rust library on every code point and
on whole Wikipedia files, so where it goes beyond the paper it follows that library: see `CHINESE` for its ranges and
`NEWER` for its Unicode tables.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
CONTINUES = "##"  # prefix of a subword that does not begin a word: "tokens" = "token" + "##s"
LONGEST_WORD = 100  # characters; longer words become [UNK]: most are addresses or noise


def _ranges(*pairs: tuple[int, int]) -> str:
    """The inside of a regular expression's [...] for inclusive ranges of code points."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in pairs)


# Characters that become a plain space: tab, line ends, and every Unicode space, including the full-width U+3000.
WHITE = " \t\n\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# Unicode blocks of 汉字. Kana, Hangul and the letters of other scripts are not included: they are written with spaces,
# or stay together as words. Chinese punctuation is split off later, as punctuation.
CHINESE = _ranges(
    (0x4E00, 0x9FFF),  # CJK Unified Ideographs: nearly all of modern Chinese
    (0x3400, 0x4DBF),  # Extension A: 㐂
    (0x20000, 0x2A6DF),  # Extension B: 𠮷 𪚥
    (0x2A700, 0x2B73F),  # Extension C
    (0x2B740, 0x2B81F),  # Extension D
    (0x2B920, 0x2CEAF),  # Extension E; Google's file begins it rightly at 2B820, the Rust library at 2B920
    (0xF900, 0xFAFF),  # Compatibility Ideographs
    (0x2F800, 0x2FA1F),  # Compatibility Supplement
)  # Extensions F, G and later are newer than BERT and are not separated.

# The Rust library has the categories of Unicode 8 (2015) and the decompositions of Unicode 9; Python has those of its
# own release. For exact agreement, characters in these ranges have no category here. The ranges contain no older
# combining mark, punctuation mark or control, so they can be wide; they are valid up to Unicode 18.
NEWER = _ranges(
    *((0x5C8, 0x5C9), (0x61D, 0x61D), (0x7FD, 0x7FD), (0x890, 0x8E2), (0x9FD, 0x9FE), (0xA76, 0xA76), (0xAFA, 0xAFF)),
    *((0xB53, 0xB55), (0xC04, 0xC3C), (0xC77, 0xC77), (0xC84, 0xC84), (0xD00, 0xD00), (0xD3B, 0xD3C), (0xD81, 0xD81)),
    *((0xEBA, 0xEBA), (0xECE, 0xECE), (0x1715, 0x1715), (0x180F, 0x1886), (0x1ABF, 0x1AF0), (0x1B4E, 0x1B4F)),
    *((0x1B7D, 0x1B7F), (0x1DF6, 0x1DFB), (0x2E43, 0x2E63), (0xA82C, 0xA82C), (0xA8C5, 0xA8C5), (0xA8FF, 0xA8FF)),
    *((0xA9BD, 0xA9BD), (0x105C9, 0x105E4), (0x10D24, 0x10F89), (0x11070, 0x11074), (0x110C2, 0x110CD)),
    *((0x111CF, 0x111CF), (0x1123E, 0x11241), (0x1133B, 0x1133B), (0x11383, 0x1145E), (0x11660, 0x1166C)),
    *((0x116B9, 0x116B9), (0x1182F, 0x11FFF), (0x12FF1, 0x1612F), (0x16D68, 0x16F4F), (0x16FE2, 0x16FF1)),
    *((0x1CF00, 0x1D128), (0x1D250, 0x1D281), (0x1E000, 0x1E6F5), (0x1E944, 0x1E95F)),
)
# Combining marks of Unicode 9: without a category, but reordered with their neighbours when a text is decomposed.
NINE = _ranges((0x8D4, 0x8E1), (0x1DFB, 0x1DFB), (0x11442, 0x11446), (0x11C3F, 0x11C3F), (0x1E000, 0x1E02A))
NINE += _ranges((0x1E944, 0x1E94A))
# Characters whose category changed after Unicode 8, with their old category.
CHANGED = {"\u166d": "Po", "\u1734": "Mn", "\U000111c9": "Po", "\U0001171e": "Mn"}
# Capitals of Unicode 15 to 17, which the Rust standard library has and older Python versions lack.
CAPITALS = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7DC: 0x19B}
CAPITALS |= {code: code + 1 for code in (0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)}
CAPITALS |= {code: code + 0x20 for code in range(0x10D50, 0x10D66)}
CAPITALS |= {code: code + 0x1B for code in range(0x16EA0, 0x16EB9)}

_white = re.compile(f"[{WHITE}]")
_chinese = re.compile(f"[{CHINESE}]")
_newer = re.compile(f"[{NEWER}]")
_undecomposed = re.compile(f"((?![{NINE}])[{NEWER}])")


@lru_cache(maxsize=1 << 16)
def category(character: str) -> str:
    """Return the general category of a character, by the tables described at `NEWER`.

    >>> category("a"), category("，"), category("汉"), category("\\u0301"), category("\\u200b")
    ('Ll', 'Po', 'Lo', 'Mn', 'Cf')
    """
    if character in CHANGED:
        return CHANGED[character]
    return "Cn" if _newer.match(character) else unicodedata.category(character)


@lru_cache(maxsize=1 << 16)
def is_punctuation(character: str) -> bool:
    """Whether a character is punctuation; includes all ASCII symbols, such as $ + < = > ^ ` | ~.

    >>> [c for c in "a1 $，。「—·é汉😀" if is_punctuation(c)]
    ['$', '，', '。', '「', '—', '·']
    """
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return category(character).startswith("P")


def clean(text: str) -> str:
    """Remove invisible characters (controls, formats, private use, U+FFFD) and make all white space a plain space.

    >>> clean("a\\tb\\u3000c\\x00\\u200bd")
    'a b cd'
    """
    if text.isprintable() and "\ufffd" not in text:
        return text
    text = _white.sub(" ", text)
    return "".join(c for c in text if c != "\ufffd" and category(c) not in ("Cc", "Cf", "Co"))


def space_chinese(text: str) -> str:
    """
    >>> space_chinese("我爱BERT吗")
    ' 我  爱 BERT 吗 '
    """
    return _chinese.sub(lambda found: f" {found[0]} ", text)


def without_accents(text: str) -> str:
    """Decompose (é is e + U+0301) and drop the marks, without composing again: 한 stays as its three letters.

    >>> without_accents("Café naïve Ångström")
    'Cafe naive Angstrom'
    """
    if text.isascii():
        return text
    # an unknown character is kept unchanged, and marks are not reordered across it
    parts = _undecomposed.split(text)
    parts[::2] = [unicodedata.normalize("NFD", part) for part in parts[::2]]
    return "".join(c for c in "".join(parts) if category(c) != "Mn")


def lower(text: str) -> str:
    """Lower-case each character by itself, so Σ is σ at the end of a word too (str.lower would give ς there).

    >>> lower("BERT ΟΔΟΣ ＡＢＣ")
    'bert οδοσ ａｂｃ'
    """
    return text.replace("Σ", "σ").lower().translate(CAPITALS)


def split_words(text: str) -> list[str]:
    """Split a cleaned text at spaces and around every punctuation mark.

    >>> split_words("it's 3.5, ok?")
    ['it', "'", 's', '3', '.', '5', ',', 'ok', '?']
    """
    words: list[str] = []
    for chunk in text.split():
        start = 0
        for place, character in enumerate(chunk):
            if is_punctuation(character):
                words += [chunk[start:place], character] if start < place else [character]
                start = place + 1
        if start < len(chunk):
            words.append(chunk[start:])
    return words


def longest_match(word: str, vocabulary: Mapping[str, int]) -> list[str]:
    """Split a word greedily, longest subword first; if some part has no subword, the whole word is unknown.

    >>> vocabulary = dict.fromkeys(["un", "##aff", "##able", "##a", "able"], 0)
    >>> longest_match("unaffable", vocabulary)
    ['un', '##aff', '##able']
    >>> longest_match("unaffected", vocabulary)
    ['[UNK]']
    """
    if len(word) > LONGEST_WORD:
        return [UNKNOWN]
    pieces: list[str] = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = (CONTINUES if start else "") + word[start:end]
            if piece in vocabulary:
                break
        else:
            return [UNKNOWN]
        pieces.append(piece)
        start = end
    return pieces


class WordPiece:
    """Text to subwords. Special tokens of the vocabulary are recognised in the text.

    >>> words = ["[UNK]", "[MASK]", "the", "token", "##ize", "##r", "我", "爱", "!"]
    >>> reader = WordPiece({word: place for place, word in enumerate(words)}, lowercase=True)
    >>> reader.tokenize("The tokenizer 我爱[MASK]猫!")
    ['the', 'token', '##ize', '##r', '我', '爱', '[MASK]', '[UNK]', '!']
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        lowercase: bool,
        *,
        strip_accents: bool | None = None,
        chinese: bool = True,
    ) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.chinese = chinese
        special = [re.escape(token) for token in SPECIAL if token in vocabulary]
        self._special = re.compile(f"({'|'.join(special) or '(?!)'})")

    def steps(self, text: str) -> list[tuple[str, list[str]]]:
        """Return the text after each step, with the step's name; text between special tokens is handled separately.

        >>> for name, parts in WordPiece({"[UNK]": 0, "cafe": 1, "好": 2}, lowercase=True).steps("Café\\t好!"):
        ...     print(name, parts)
        text ['Café\\t好!']
        clean ['Café 好!']
        space ['Café  好 !']
        fold ['cafe  好 !']
        words ['cafe', '好', '!']
        pieces ['cafe', '好', '[UNK]']
        """
        parts = [part for part in self._special.split(text) if part]
        steps = [("text", parts)]
        for name, step in (("clean", clean), ("space", self._space), ("fold", self._fold)):
            parts = [part if self._is_special(part) else step(part) for part in parts]
            steps.append((name, parts))
        words = [word for part in parts for word in ([part] if self._is_special(part) else split_words(part))]
        steps.append(("words", words))
        steps.append(("pieces", [piece for word in words for piece in self._pieces(word)]))
        return steps

    def tokenize(self, text: str) -> list[str]:
        return self.steps(text)[-1][1]

    def _is_special(self, part: str) -> bool:
        return part in SPECIAL and part in self.vocabulary

    def _space(self, text: str) -> str:
        return space_chinese(text) if self.chinese else text

    def _fold(self, text: str) -> str:
        text = without_accents(text) if self.strip_accents else text
        return lower(text) if self.lowercase else text

    def _pieces(self, word: str) -> list[str]:
        return [word] if self._is_special(word) else longest_match(word, self.vocabulary)
