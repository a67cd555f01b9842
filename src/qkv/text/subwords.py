"""A subword tokenizer for text generation: unlike BERT's, it can restore the text from the tokens.

BERT's tokenizer loses spaces ("T-shirt" and "T - shirt" are the same to it), which does not matter for encoding, but
does for generating a translation. Here a space is part of the subword that follows it, as ▁ (Kudo and Richardson
2018), so the concatenated subwords are the text:

    He wears a T-shirt.   ▁He ▁we ##ars ▁a ▁T - shirt .
    汤姆追逐 Jerry。        汤 姆 追 逐 ▁Jer ##ry 。

Subwords never cross the boundaries between words, punctuation marks, single digits and single 汉字. Runs of white space
become one space, and white space at both ends is dropped; a ▁ in the text is decoded as a space. Nothing else is
changed.

The result is a `Tokenizer` of the kind wordpiece.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import MOST_CHUNKS, TOO_FEW, forget_rarest, learn_subwords, split_letters
from qkv.text.wordpiece import CHINESE, CONTINUES, LONGEST_WORD, SPECIAL, UNKNOWN

SPACE_MARK = "▁"
_pieces = (
    rf"{SPACE_MARK}(?=[{CHINESE}])|[{CHINESE}]|{SPACE_MARK}?\p{{N}}|{SPACE_MARK}?[\p{{L}}\p{{M}}]+|"
    rf"{SPACE_MARK}?[^\p{{L}}\p{{M}}\p{{N}}{SPACE_MARK}]|{SPACE_MARK}"
)

_chinese = re.compile(f"[{CHINESE}]")


def train_subwords(
    texts: Iterable[str], size: int, *, min_frequency: int = 2, progress: Callable[[int], None] | None = None
) -> Tokenizer:
    """Learn at most `size` subwords in one pass over the texts; the same texts give the same vocabulary.

    >>> tokenizer = train_subwords(["A T-shirt, a T-shirt."] * 2, 60)
    >>> tokenizer.encode("A T-shirt.", special=False).tokens
    ['▁A', '▁T', '-', 'shirt', '.']
    >>> tokenizer.decode(tokenizer.encode("a  shirt-T.", special=False).ids)
    'a shirt-T.'
    """
    room = size - len(SPECIAL)
    if room < 1:
        raise InputError(f"A vocabulary of {size} is too small: there are {len(SPECIAL)} special tokens.")
    counts = _count_words(texts, progress)
    if not counts:
        raise InputError("There is no text to learn a vocabulary from: no texts were given, or all are empty.")
    alphabet = alphabet_of(counts, room, min_frequency)
    known = set(alphabet)
    words = {
        word: count
        for word, count in counts.items()
        if len(word) <= LONGEST_WORD and known.issuperset(split_letters(word))
    }
    return Tokenizer(_backend([*SPECIAL, *learn_subwords(words, alphabet, room, min_frequency)]), "wordpiece")


def _count_words(texts: Iterable[str], progress: Callable[[int], None] | None = None) -> "Counter[str]":
    """Count the units within which subwords are learned.

    >>> sorted(_count_words(["a cat, 猫"]).items())
    [(',', 1), ('▁', 1), ('▁a', 1), ('▁cat', 1), ('猫', 1)]
    """
    normalizer, cut = _normalizer(), pre_tokenizers.Split(Regex(_pieces), "isolated").pre_tokenize_str
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()  # text between spaces, so that each distinct chunk is split once

    def settle() -> None:
        for chunk, count in chunks.items():
            for word, _ in cut(chunk):
                words[word] += count
        chunks.clear()
        forget_rarest(words)

    number = 0
    for number, text in enumerate(texts, 1):
        whole = normalizer.normalize_str(text)
        first, *rest = whole.split(SPACE_MARK)
        chunks.update(([first] if first else []) + [SPACE_MARK + chunk for chunk in rest])
        if len(chunks) > MOST_CHUNKS:
            settle()
        if progress is not None and number % 1000 == 0:
            progress(number)
    if progress is not None and number % 1000:
        progress(number)
    settle()
    return words


def alphabet_of(words: Mapping[str, int], room: int, min_frequency: int) -> list[str]:
    """Choose the initial characters of a vocabulary, both as the beginning and as the continuation of a unit.

    The most frequent are chosen first; together they fill at most half of the room.

    >>> alphabet_of({"▁ab": 2, "猫": 2, "x": 1}, 20, 2)
    ['a', 'b', '▁', '猫', '##a', '##b']
    """
    characters: Counter[str] = Counter()
    min_frequency = min(min_frequency, max(words.values()))
    for word, count in words.items():
        for character in word:
            characters[character] += count
    chosen: list[str] = []
    covered = 0
    for character in sorted(characters, key=lambda one: (-characters[one], one)):
        # ▁ only begins units, and a 汉字 is a whole unit
        forms = (
            [character] if character == SPACE_MARK or _chinese.match(character) else [character, CONTINUES + character]
        )
        # too rare to be learned, even if there is room
        if characters[character] < min_frequency or len(chosen) + len(forms) > room / 2:
            break
        chosen += forms
        covered += characters[character]
    total = sum(count for count in characters.values() if count >= min_frequency)
    if covered < TOO_FEW * total:
        raise InputError(
            f"A vocabulary of {room + len(SPECIAL)} is too small for these texts: its alphabet would hold "
            f"{covered / total:.1%} of their characters. There are {len(characters):,} different ones: make it at "
            f"least {4 * len(characters) + len(SPECIAL):,}, or use a separate vocabulary for each side."
        )
    return sorted(chosen, key=lambda form: (len(form), form))


def _normalizer() -> normalizers.Normalizer:
    steps = [
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
        # the first word of a text gets ▁ like all others; 汉字 have no spaces before them
        normalizers.Replace(Regex(f"^(?![{CHINESE}])"), SPACE_MARK),
        normalizers.Replace(" ", SPACE_MARK),
    ]
    return normalizers.Sequence(steps)


def _backend(tokens: Sequence[str]) -> tokenizers.Tokenizer:
    model = models.WordPiece(
        {token: number for number, token in enumerate(tokens)},
        unk_token=UNKNOWN,
        max_input_chars_per_word=LONGEST_WORD,
        continuing_subword_prefix=CONTINUES,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = _normalizer()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_pieces), "isolated")
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(f"^{CONTINUES}"), ""),
            decoders.Replace(SPACE_MARK, " "),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return backend
