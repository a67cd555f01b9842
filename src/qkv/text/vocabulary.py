"""Learning a vocabulary from text: count words, choose the initial characters, merge frequent neighbours.

Each text is read once. Only counts of distinct words are kept, so a corpus may have any size. The same texts give the
same vocabulary, ids included; the trainer of the Rust library does not guarantee that (its hash tables have random
seeds, and ties are broken either way), so merging is implemented here.

What this file does NOT do: tokenize with the vocabulary. `wordpiece.py` shows how, `tokenizer.py` does it fast.
"""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

from tokenizers import normalizers, pre_tokenizers

from qkv.errors import InputError, did_you_mean, reading
from qkv.text.segmenter import Segmenter, is_known
from qkv.text.segmenter import find_segmenter as segmenter_of
from qkv.text.wordpiece import CHINESE, CONTINUES, LONGEST_WORD, SPECIAL, WHITE

Kind = Literal["wordpiece", "word", "character"]
VOCABULARY_KINDS: tuple[Kind, ...] = get_args(Kind)
SIZE = 8000
"""Default size of a vocabulary."""

COVERED = 0.9999  # an alphabet is complete when it covers this share of the text's characters
TOO_FEW = 0.95  # and is rejected when it covers less than this
MOST_CHUNKS = 1 << 19  # distinct chunks of raw text held before they are split into words
_MOST_WORDS = 1 << 22  # distinct words held before the rarest are dropped

_chunk = re.compile(f"[{CHINESE}]|[^{CHINESE}{WHITE}]+")
_run = re.compile(f"[{CHINESE}]+|[^{CHINESE}{WHITE}]+")
_chinese = re.compile(f"[{CHINESE}]")


def learn_vocabulary(
    texts: Iterable[str],
    kind: Kind,
    size: int,
    lowercase: bool,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    segmenter: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Return the tokens in the order of their ids, special tokens first. `Tokenizer.train` explains the arguments."""
    check_learning(kind, size, min_frequency, limit_alphabet, segmenter)
    cutter = None if segmenter is None else segmenter_of(segmenter)
    if isinstance(texts, str):
        raise InputError("Texts must be several strings, such as a list or the lines of a file, not a single string.")
    try:
        if kind == "character":
            counts = count_characters(texts, lowercase, progress)
        else:
            counts = count_words(texts, lowercase, progress, cutter)
    except UnicodeEncodeError as error:
        raise half_character(error.object[error.start]) from error
    return choose_vocabulary(counts, kind, size, min_frequency, limit_alphabet)


def check_learning(
    kind: Kind, size: int, min_frequency: int = 2, limit_alphabet: int | None = None, segmenter: str | None = None
) -> None:
    """Raise if a vocabulary cannot be learned with these settings."""
    check_kind(kind, segmenter)
    if size <= len(SPECIAL):
        raise InputError(f"A vocabulary of {size} is too small: there are {len(SPECIAL)} special tokens.")
    if min_frequency < 1:
        raise InputError(f"min_frequency (--min-frequency) is {min_frequency}; it must be at least 1.")
    if limit_alphabet is not None and limit_alphabet < 1:
        raise InputError(f"limit_alphabet (--limit-alphabet) is {limit_alphabet}; it must be at least 1, or omitted.")


def choose_vocabulary(
    counts: Mapping[str, int], kind: Kind, size: int, min_frequency: int = 2, limit_alphabet: int | None = None
) -> list[str]:
    """Return the tokens by the counts of words or characters."""
    room = size - len(SPECIAL)
    if not counts:
        raise InputError("There is no text to learn a vocabulary from: no texts were given, or all are empty.")
    if kind == "character":
        return [*SPECIAL, *choose_characters(counts, room, limit_alphabet)]
    if kind == "word":
        often = [word for word, count in counts.items() if count >= min_frequency]
        if not often:
            raise InputError(
                f"No word occurs {min_frequency} times: give more text, or a lower min_frequency (--min-frequency)."
            )
        return [*SPECIAL, *sorted(often, key=lambda word: (-counts[word], word))[:room]]
    alphabet = choose_alphabet(counts, room, limit_alphabet)
    known = set(alphabet)
    # a word with a character outside the alphabet becomes [UNK], so merges inside it are useless
    words = {
        word: count
        for word, count in counts.items()
        if len(word) <= LONGEST_WORD and known.issuperset(split_letters(word))
    }
    return [*SPECIAL, *learn_subwords(words, alphabet, room, min_frequency)]


def read_vocabulary(file: Path) -> list[str]:
    """Read the tokens of a vocab.txt, one per line, in the order of their ids."""
    # bert-base-chinese has U+2028 as a token, at which splitlines() would split
    tokens = [line.removesuffix("\r") for line in read_text(file).rstrip("\r\n").split("\n")]
    first: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if not token:
            raise InputError(f"{file}, line {line} is empty: each line is one token. Delete the line.")
        if first.setdefault(token, line) != line:
            raise InputError(f"{file}, line {line}: {token!r} is already on line {first[token]}. Delete one of them.")
    return tokens


def is_cased(tokens: Iterable[str]) -> bool:
    """Whether lower-casing would change some token; tokens such as [unused1] and <S> are ignored."""
    return any(token.lower() != token for token in tokens if not re.fullmatch(r"\[.+\]|<.+>", token))


def read_text(file: Path) -> str:
    with reading(file):
        data = file.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}, line {line} is not UTF-8. Is this the right file? If so, save it as UTF-8."
        ) from error


HALF = re.compile("[\ud800-\udfff]")
"""A lone surrogate."""


def half_character(half: str) -> InputError:
    """Return the error for a lone surrogate, which a Python str may hold but no UTF-8 file can. Python puts some in the
    place of bytes of the command line that are not UTF-8."""
    if 0xDC80 <= ord(half) <= 0xDCFF:
        return InputError(
            f"A text contains the byte 0x{ord(half) - 0xDC00:02X}, which is not UTF-8. Type it in a UTF-8 terminal, or "
            "read it from a UTF-8 file."
        )
    return InputError(
        f"A text contains U+{ord(half):04X}, half of a surrogate pair (an emoji, a rare 汉字) without the other half: "
        "it was probably truncated by a program that counts in UTF-16."
    )


def check_kind(kind: str, segmenter: str | None = None) -> None:
    if kind not in VOCABULARY_KINDS:
        raise InputError(
            f"There is no kind of tokenizer {kind!r}, only {', '.join(VOCABULARY_KINDS)}."
            f"{did_you_mean(kind, VOCABULARY_KINDS)}"
        )
    if segmenter is not None and not is_known(segmenter):
        segmenter_of(segmenter)  # raises with the list of known names
    if kind != "word" and segmenter not in (None, "none"):
        raise InputError(
            f"The segmenter {segmenter} finds Chinese words, which are tokens only in a tokenizer of kind word; "
            f"with kind {kind} each 汉字 is a token. Omit the segmenter, or use kind word."
        )


def _seen(texts: Iterable[str], progress: Callable[[int], None] | None) -> Iterator[str]:
    """Yield the texts, calling `progress` after every thousand and at the end."""
    number = 0
    for text in texts:
        yield text
        number += 1
        if progress is not None and number % 1000 == 0:
            progress(number)
    if progress is not None and number % 1000:
        progress(number)


def count_words(
    texts: Iterable[str],
    lowercase: bool,
    progress: Callable[[int], None] | None = None,
    segmenter: Segmenter | None = None,
) -> "Counter[str]":
    """Count words, split as BERT does, and Chinese words with the segmenter if there is one.

    >>> sorted(count_words(["The cat, the 猫。", "CAT!"], lowercase=True).items())
    [('!', 1), (',', 1), ('cat', 2), ('the', 2), ('。', 1), ('猫', 1)]
    """
    counter = WordCounter(lowercase, segmenter)
    chunks_of = raw_chunks(segmenter is not None)
    for text in _seen(texts, progress):
        counter.add(chunks_of(text))
    return counter.finish()


def raw_chunks(segments: bool) -> Callable[[str], list[str]]:
    """Return what splits a text at white space, and at each 汉字 or, if they are segmented later, at runs of them."""
    return (_run if segments else _chunk).findall


class WordCounter:
    """Counts words in chunks of raw text. Memory is bounded by the most chunks and the most words that are held."""

    def __init__(self, lowercase: bool, segmenter: Segmenter | None = None) -> None:
        self._lowercase, self._segmenter = lowercase, segmenter
        self._normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=segmenter is None)
        self._cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
        self._words: Counter[str] = Counter()
        self._chunks: Counter[str] = Counter()

    def add(self, chunks: Iterable[str] | Mapping[str, int]) -> None:
        """Add chunks, or their counts."""
        self._chunks.update(chunks)
        if len(self._chunks) > MOST_CHUNKS:
            self._settle()

    def finish(self) -> "Counter[str]":
        self._settle()
        return self._words

    def _settle(self) -> None:
        words, chunks = self._words, self._chunks
        if self._segmenter is not None:
            runs = [chunk for chunk in chunks if _chinese.match(chunk)]
            often = [chunks.pop(run) for run in runs]
            lines = " ".join(self._segmenter.words(runs)).split("\n")
            for line, count in zip(lines, often, strict=False):  # without runs there is one empty line
                for word in line.split():
                    chunks[word] += count
        # cleaning and splitting depend on nothing beyond a space or a 汉字, so each distinct chunk is processed once
        for chunk, count in chunks.items():
            if chunk.isascii() and chunk.isalnum():
                words[chunk.lower() if self._lowercase else chunk] += count
            else:
                for word, _ in self._cut(self._normalizer.normalize_str(chunk)):
                    words[word] += count
        chunks.clear()
        forget_rarest(words)


def forget_rarest(words: "Counter[str]") -> None:
    """Drop the rarest words if there are too many, to bound memory."""
    least = 1
    while len(words) > _MOST_WORDS:
        for word in [word for word, count in words.items() if count <= least]:
            del words[word]
        least += 1


def count_characters(
    texts: Iterable[str], lowercase: bool, progress: Callable[[int], None] | None = None
) -> "Counter[str]":
    """Count characters, including spaces.

    >>> count_characters(["To be"], lowercase=True)
    Counter({'t': 1, 'o': 1, ' ': 1, 'b': 1, 'e': 1})
    """
    raw: Counter[str] = Counter()
    for text in _seen(texts, progress):
        raw.update(text)
    return fold_case(raw, lowercase)


def fold_case(raw: "Counter[str]", lowercase: bool) -> "Counter[str]":
    """Return counts of characters, in lower case if wanted."""
    "".join(raw).encode()  # raises for a lone surrogate, as the Rust library does for words
    if not lowercase:
        return raw
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for small in normalizers.Lowercase().normalize_str(character):  # İ becomes two
            counts[small] += count
    return counts


def choose_characters(counts: Mapping[str, int], room: int, limit: int | None = None) -> list[str]:
    """Return the most frequent characters that fit, in the order of Unicode.

    Space and line end are always included: texts often come without line ends, but a generating model needs them.

    >>> choose_characters({"a": 3, "b": 2, "c": 1}, room=4, limit=4)
    ['\\n', ' ', 'a', 'b']
    """
    ranked = sorted(counts.keys() - {"\n", " "}, key=lambda character: (-counts[character], character))
    chosen = ["\n", " ", *ranked][: room if limit is None else min(room, limit)]
    covered = sum(counts.get(character, 0) for character in chosen)
    if limit is None and covered < TOO_FEW * sum(counts.values()):
        raise _too_small(room, covered / sum(counts.values()), len(ranked) + 2)
    return sorted(chosen)


def choose_alphabet(words: Mapping[str, int], room: int, limit: int | None = None) -> list[str]:
    """Return the initial one-letter subwords of a WordPiece vocabulary: each chosen character as the beginning or the
    continuation of a word, whichever occurs. Frequent characters are chosen first, ties in the order of Unicode.

    >>> choose_alphabet({"aba": 3, "b": 1}, room=100)
    ['a', 'b', '##a', '##b']
    """
    forms: Counter[str] = Counter()
    for word, count in words.items():
        if len(word) <= LONGEST_WORD:
            for letter in split_letters(word):
                forms[letter] += count
    characters: Counter[str] = Counter()
    for form, count in forms.items():
        characters[form[-1]] += count
    ranked = sorted(characters, key=lambda character: (-characters[character], character))
    total = sum(characters.values())
    chosen: list[str] = []
    covered = 0
    for character in ranked[:limit]:
        both = [form for form in (character, CONTINUES + character) if form in forms]
        if limit is None and (covered >= COVERED * total or len(chosen) + len(both) > room / 2):
            break
        chosen += both
        covered += characters[character]
    if limit is None and covered < TOO_FEW * total:
        raise _too_small(room, covered / total, 2 * len(forms))
    if len(chosen) > room:
        raise InputError(
            f"A vocabulary of {room + len(SPECIAL)} is too small for an alphabet of {len(chosen)} subwords "
            f"({limit} characters) and {len(SPECIAL)} special tokens: use fewer characters, or a larger vocabulary."
        )
    return sorted(chosen, key=lambda form: (len(form), form))


def _too_small(room: int, share: float, wanted: int) -> InputError:
    return InputError(
        f"A vocabulary of {room + len(SPECIAL)} is too small for this text: its alphabet would cover {share:.1%} of "
        f"the characters. {wanted + len(SPECIAL)} (--vocab-size) would cover all; to leave rare ones unknown, set "
        "limit_alphabet (--limit-alphabet)."
    )


def split_letters(word: str) -> list[str]:
    """Split a word into one-letter subwords.

    >>> split_letters("low")
    ['l', '##o', '##w']
    """
    return [word[0], *(CONTINUES + character for character in word[1:])]


def learn_subwords(words: Mapping[str, int], alphabet: Sequence[str], size: int, min_frequency: int = 2) -> list[str]:
    """Grow `alphabet` to `size` subwords by repeatedly merging the most frequent pair of neighbours.

    This is byte-pair encoding (Sennrich et al. 2016, section 3.2) with WordPiece's ## prefix, as in the trainer of the
    `tokenizers` library; Google's own trainer, which maximises the likelihood of the text, was never published. Ties go
    to the older subwords, so the same counts always give the same vocabulary.

    >>> words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    >>> alphabet = sorted({letter for word in words for letter in split_letters(word)})
    >>> learn_subwords(words, alphabet, len(alphabet) + 4)[-4:]
    ['##es', '##est', '##ow', 'low']

    "e s" and "s t" both occur 9 times, and "##e" is older in the alphabet than "##s"; then "es t" occurs 9 times, ...
    """
    pieces = list(alphabet)
    ids = {piece: number for number, piece in enumerate(pieces)}
    spelled: list[list[int]] = []  # each distinct word as its current subwords
    counts: list[int] = []
    together: defaultdict[tuple[int, int], int] = defaultdict(int)  # how often two pieces are neighbours
    places: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # words that have or had the pair
    for word in sorted(words):
        spelling = [ids[letter] for letter in split_letters(word)]
        for pair in pairwise(spelling):
            together[pair] += words[word]
            places[pair].add(len(spelled))
        spelled.append(spelling)
        counts.append(words[word])

    queue = [(-count, pair) for pair, count in together.items()]
    heapq.heapify(queue)
    while queue and len(pieces) < size:
        claim, pair = heapq.heappop(queue)
        count = together.get(pair, 0)
        if count != -claim:  # the count fell in the meantime: queue the pair again with its current count
            if count >= min_frequency:
                heapq.heappush(queue, (-count, pair))
            continue
        if count < min_frequency:
            break
        left, right = pair
        joined = pieces[left] + pieces[right].removeprefix(CONTINUES)
        new = ids.setdefault(joined, len(pieces))  # "ab" + "##c" may come after "a" + "##bc"
        if new == len(pieces):
            pieces.append(joined)
        raised: set[tuple[int, int]] = set()
        for number in places.pop(pair):
            spelling, count = spelled[number], counts[number]
            place = 0
            while place < len(spelling) - 1:
                if spelling[place] == left and spelling[place + 1] == right:
                    spelling[place : place + 2] = [new]
                    if place > 0:
                        before = spelling[place - 1]
                        together[before, left] -= count
                        together[before, new] += count
                        places[before, new].add(number)
                        raised.add((before, new))
                    if place + 1 < len(spelling):
                        after = spelling[place + 1]
                        together[right, after] -= count
                        together[new, after] += count
                        places[new, after].add(number)
                        raised.add((new, after))
                place += 1
        del together[pair]
        for changed in raised:
            heapq.heappush(queue, (-together[changed], changed))
    return pieces
