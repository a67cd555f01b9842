"""WordPiece in plain Python, written to be read: how BERT splits a text into subwords.

A text goes through five steps (Devlin et al. 2019, section 3, and `tokenization.py` of google-research/bert), before
which a tokenizer with foldings rewrites it (`folding.py`):

    rewrite  only with foldings: full-width letters become half-width, emoji get spaces around them
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
from collections.abc import Callable, Mapping
from functools import lru_cache

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
CONTINUES = "##"  # prefix of a subword that does not begin a word: "tokens" = "token" + "##s"
LONGEST_WORD = 100  # characters; longer words become [UNK]: most are addresses or noise

# Characters that become a plain space: tab, line ends, and every Unicode space, including the full-width U+3000.
WHITE = " \t\n\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

# Unicode blocks of 汉字. Kana, Hangul and the letters of other scripts are not included: they are written with spaces,
# or stay together as words. Chinese punctuation is split off later, as punctuation.
CHINESE = (
    "\u4e00-\u9fff"  # CJK Unified Ideographs: nearly all of modern Chinese
    "\u3400-\u4dbf"  # Extension A: 㐂
    "\U00020000-\U0002a6df"  # Extension B: 𠮷 𪚥
    "\U0002a700-\U0002b73f"  # Extension C
    "\U0002b740-\U0002b81f"  # Extension D
    "\U0002b920-\U0002ceaf"  # Extension E; Google's file begins it rightly at 2B820, the Rust library at 2B920
    "\uf900-\ufaff"  # Compatibility Ideographs
    "\U0002f800-\U0002fa1f"  # Compatibility Supplement
)  # Extensions F, G and later are newer than BERT and are not separated.

# The Rust library has the categories of Unicode 8 (2015) and the decompositions of Unicode 9; Python has those of its
# own release. For exact agreement, characters in these ranges have no category here. The ranges contain no older
# combining mark, punctuation mark or control, so they can be wide; they are valid up to Unicode 18.
NEWER = (
    "\u05c8-\u05c9\u061d-\u061d\u07fd-\u07fd\u0890-\u08e2\u09fd-\u09fe\u0a76-\u0a76\u0afa-\u0aff\u0b53-\u0b55"
    "\u0c04-\u0c3c\u0c77-\u0c77\u0c84-\u0c84\u0d00-\u0d00\u0d3b-\u0d3c\u0d81-\u0d81\u0eba-\u0eba\u0ece-\u0ece"
    "\u1715-\u1715\u180f-\u1886\u1abf-\u1af0\u1b4e-\u1b4f\u1b7d-\u1b7f\u1df6-\u1dfb\u2e43-\u2e63\ua82c-\ua82c"
    "\ua8c5-\ua8c5\ua8ff-\ua8ff\ua9bd-\ua9bd\U000105c9-\U000105e4\U00010d24-\U00010f89\U00011070-\U00011074"
    "\U000110c2-\U000110cd\U000111cf-\U000111cf\U0001123e-\U00011241\U0001133b-\U0001133b\U00011383-\U0001145e"
    "\U00011660-\U0001166c\U000116b9-\U000116b9\U0001182f-\U00011fff\U00012ff1-\U0001612f\U00016d68-\U00016f4f"
    "\U00016fe2-\U00016ff1\U0001cf00-\U0001d128\U0001d250-\U0001d281\U0001e000-\U0001e6f5\U0001e944-\U0001e95f"
)
# Combining marks of Unicode 9: without a category, but reordered with their neighbours when a text is decomposed.
NINE = "\u08d4-\u08e1\u1dfb-\u1dfb\U00011442-\U00011446\U00011c3f-\U00011c3f\U0001e000-\U0001e02a\U0001e944-\U0001e94a"
# Characters whose category changed after Unicode 8, with their old category.
CHANGED = {"\u166d": "Po", "\u1734": "Mn", "\U000111c9": "Po", "\U0001171e": "Mn"}
# Capitals of Unicode 15 to 17, which the Rust standard library has and older Python versions lack.
CAPITALS = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7DC: 0x19B}
CAPITALS |= {0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB}
CAPITALS |= zip(range(0x10D50, 0x10D66), range(0x10D70, 0x10D86), strict=True)
CAPITALS |= zip(range(0x16EA0, 0x16EB9), range(0x16EBB, 0x16ED4), strict=True)

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
        rewrite: Callable[[str], str] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.chinese = chinese
        self.rewrite = rewrite
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
        first = [] if self.rewrite is None else [("rewrite", self.rewrite)]
        for name, step in (*first, ("clean", clean), ("space", self._space), ("fold", self._fold)):
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
