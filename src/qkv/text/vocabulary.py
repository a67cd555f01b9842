"""How a vocabulary is learned from text: count, choose the characters to start from, join what stands together.

Each text is read once. What is kept is a count of the distinct words, never the texts, so a corpus may be of any size.
The same texts give the same vocabulary, ids included; the trainer of the Rust library does not promise that (its hash
tables are seeded at random, and ties fall either way), which is why the joining is done here.

What this file does NOT do: cut a text with the vocabulary. `wordpiece.py` shows how, `tokenizer.py` does it fast.
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
"""Of a vocabulary, when none is asked for."""

COVERED = 0.9999  # an alphabet stops growing when it holds this share of the text's characters
TOO_FEW = 0.95  # and is refused when it holds less than this
MOST_CHUNKS = 1 << 19  # distinct stretches of raw text held before they are cut into words
_MOST_WORDS = 1 << 22  # distinct words held before the rarest are forgotten

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
    """The tokens in the order of their ids, special ones first; `Tokenizer.train` says what the arguments mean."""
    check_kind(kind, segmenter)
    cutter = None if segmenter is None else segmenter_of(segmenter)
    room = size - len(SPECIAL)
    if room < 1:
        raise InputError(f"A vocabulary of {size} has no room: the special tokens alone are {len(SPECIAL)}.")
    if isinstance(texts, str):
        raise InputError("Texts must be several strings, such as a list or the lines of a file, not one string.")
    if min_frequency < 1:
        raise InputError(f"min_frequency is {min_frequency}; it must be at least 1.")
    if limit_alphabet is not None and limit_alphabet < 1:
        raise InputError(f"limit_alphabet is {limit_alphabet}; it must be at least 1, or left out.")
    try:
        if kind == "character":
            counts = count_characters(texts, lowercase, progress)
        else:
            counts = count_words(texts, lowercase, progress, cutter)
    except UnicodeEncodeError as error:
        raise half_character(error.object[error.start]) from error
    if not counts:
        raise InputError("There is no text to learn a vocabulary from: nothing was given, or every text was empty.")
    if kind == "character":
        return [*SPECIAL, *choose_characters(counts, room, limit_alphabet)]
    if kind == "word":
        often = [word for word, count in counts.items() if count >= min_frequency]
        if not often:
            raise InputError(f"No word occurs {min_frequency} times: give more text, or a lower min_frequency.")
        return [*SPECIAL, *sorted(often, key=lambda word: (-counts[word], word))[:room]]
    alphabet = choose_alphabet(counts, room, limit_alphabet)
    known = set(alphabet)
    # A word with a character outside the alphabet will be [UNK], so what could be joined inside it is of no use.
    words = {
        word: count
        for word, count in counts.items()
        if len(word) <= LONGEST_WORD and known.issuperset(split_letters(word))
    }
    return [*SPECIAL, *learn_subwords(words, alphabet, room, min_frequency)]


def read_vocabulary(file: Path) -> list[str]:
    """The tokens of a vocab.txt, one a line, in the order of their ids."""
    # Only \n ends a line: bert-base-chinese has U+2028 as a token, at which splitlines() would cut.
    tokens = [line.removesuffix("\r") for line in read_text(file).rstrip("\r\n").split("\n")]
    first: dict[str, int] = {}
    for line, token in enumerate(tokens, 1):
        if not token:
            raise InputError(f"{file}, line {line} is empty: each line is one token. Take the line out.")
        if first.setdefault(token, line) != line:
            raise InputError(f"{file}, line {line}: {token!r} stands on line {first[token]} already. Take one out.")
    return tokens


def is_cased(tokens: Iterable[str]) -> bool:
    """Whether a piece has a capital that lower-casing would change; [unused1] and <S> say nothing about text."""
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


def half_character(half: str) -> InputError:
    """For a str that no file could hold: Python allows one half of a UTF-16 pair by itself, and nothing else does."""
    return InputError(
        f"A text holds U+{ord(half):04X}, half of a character outside the first plane (an emoji, a rare 汉字), without "
        "the other half: it was probably cut in two by a program that counts in UTF-16."
    )


def check_kind(kind: str, segmenter: str | None = None) -> None:
    if kind not in VOCABULARY_KINDS:
        raise InputError(
            f"There is no kind of tokenizer {kind!r}, only {', '.join(VOCABULARY_KINDS)}.{did_you_mean(kind, VOCABULARY_KINDS)}"
        )
    if segmenter is not None and not is_known(segmenter):
        segmenter_of(segmenter)  # which says what names there are, before anything is said of what it is for
    if kind != "word" and segmenter not in (None, "none"):
        raise InputError(
            f"The segmenter {segmenter} finds Chinese words, which are tokens in a tokenizer of the kind word alone; "
            f"in one of the kind {kind} a 汉字 is a token. Leave the segmenter out, or take the kind word."
        )


def _seen(texts: Iterable[str], progress: Callable[[int], None] | None) -> Iterator[str]:
    """The texts, with a word to `progress` now and then and at the end."""
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
    """How often each word occurs, words being cut as BERT cuts them, and Chinese ones by the segmenter if there is one.

    >>> sorted(count_words(["The cat, the 猫。", "CAT!"], lowercase=True).items())
    [('!', 1), (',', 1), ('cat', 2), ('the', 2), ('。', 1), ('猫', 1)]
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=segmenter is None)
    chunks_of = (_chunk if segmenter is None else _run).findall
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()

    def settle() -> None:
        if segmenter is not None:
            runs = [chunk for chunk in chunks if _chinese.match(chunk)]
            often = [chunks.pop(run) for run in runs]
            lines = " ".join(segmenter.words(runs)).split("\n")
            for line, count in zip(lines, often, strict=False):  # without runs there is one line, of nothing
                for word in line.split():
                    chunks[word] += count
        # Cleaning and cutting see no further than a space or a 汉字, so each distinct chunk is worked on once.
        for chunk, count in chunks.items():
            if chunk.isascii() and chunk.isalnum():
                words[chunk.lower() if lowercase else chunk] += count
            else:
                for word, _ in cut(normalizer.normalize_str(chunk)):
                    words[word] += count
        chunks.clear()
        forget_rarest(words)

    for text in _seen(texts, progress):
        chunks.update(chunks_of(text))
        if len(chunks) > MOST_CHUNKS:
            settle()
    settle()
    return words


def forget_rarest(words: "Counter[str]") -> None:
    """Keep the memory bounded: of too many words those go that were seen least."""
    least = 1
    while len(words) > _MOST_WORDS:
        for word in [word for word, count in words.items() if count <= least]:
            del words[word]
        least += 1


def count_characters(
    texts: Iterable[str], lowercase: bool, progress: Callable[[int], None] | None = None
) -> "Counter[str]":
    """How often each character occurs, spaces included.

    >>> count_characters(["To be"], lowercase=True)
    Counter({'t': 1, 'o': 1, ' ': 1, 'b': 1, 'e': 1})
    """
    raw: Counter[str] = Counter()
    for text in _seen(texts, progress):
        raw.update(text)
    "".join(raw).encode()  # raises for half a character, as the Rust library does for words
    if not lowercase:
        return raw
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for small in normalizers.Lowercase().normalize_str(character):  # İ becomes two
            counts[small] += count
    return counts


def choose_characters(counts: Mapping[str, int], room: int, limit: int | None = None) -> list[str]:
    """The most frequent characters that fit, in the order of Unicode. Space and line end are always among them: texts
    often come line by line, without the ends, and a model that writes needs them.

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
    """The one-letter pieces a WordPiece vocabulary starts from: each chosen character as it begins a word, as it
    continues one, or both, whichever occurs. Frequent characters are chosen first, ties in the order of Unicode.

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
            f"A vocabulary of {room + len(SPECIAL)} is too small for an alphabet of {len(chosen)} pieces "
            f"({limit} characters) and {len(SPECIAL)} special tokens: ask for fewer characters, or for more tokens."
        )
    return sorted(chosen, key=lambda form: (len(form), form))


def _too_small(room: int, share: float, wanted: int) -> InputError:
    return InputError(
        f"A vocabulary of {room + len(SPECIAL)} is too small for this text: its alphabet would hold {share:.1%} of the "
        f"characters. {wanted + len(SPECIAL)} would hold all of them; to leave rare ones unknown, set limit_alphabet."
    )


def split_letters(word: str) -> list[str]:
    """A word as the pieces every vocabulary must have before it can learn longer ones.

    >>> letters("low")
    ['l', '##o', '##w']
    """
    return [word[0], *(CONTINUES + character for character in word[1:])]


def learn_subwords(words: Mapping[str, int], alphabet: Sequence[str], size: int, min_frequency: int = 2) -> list[str]:
    """Grow `alphabet` to `size` pieces by joining, again and again, the two neighbours that stand together most often.

    This is byte-pair encoding (Sennrich et al. 2016, section 3.2) with WordPiece's marks, as the trainer of the
    `tokenizers` library has it; Google's own, which asks by how much a join raises the likelihood of the text, was
    never published. Ties go to the older pieces, so the same counts always give the same vocabulary.

    >>> words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    >>> alphabet = sorted({letter for word in words for letter in letters(word)})
    >>> learn(words, alphabet, len(alphabet) + 4)[-4:]
    ['##es', '##est', '##ow', 'low']

    "e s" and "s t" both stand together 9 times, and "##e" is older in the alphabet than "##s"; then "es t" 9 times, ...
    """
    pieces = list(alphabet)
    ids = {piece: number for number, piece in enumerate(pieces)}
    spelled: list[list[int]] = []  # each distinct word as the pieces it now consists of
    counts: list[int] = []
    together: defaultdict[tuple[int, int], int] = defaultdict(int)  # how often two pieces are neighbours
    places: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # in which words, or once was
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
        if count != -claim:  # the count fell since the claim was made; it stands again with what it has now
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
