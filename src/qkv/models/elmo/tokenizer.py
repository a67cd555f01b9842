"""A tokenizer without [UNK], for models that spell their tokens: ELMo reads a word it has never met by its bytes.

A word outside of the vocabulary gets an id past its end, one for each spelling: the characters it came from, written as
the tokenizer writes words (lower case, without accents, where it does so). The same spelling has the same id, and who
asks for the token of an id is told how it is spelled.

Such ids are given in the order of meeting and are good in one process alone. Nothing may be saved that depends on them,
and nothing needs to be: what is computed depends on the spelling.

What this file does NOT do: cut texts. Where words begin and end, the tokenizer says.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Self

from qkv.errors import InputError
from qkv.text.tokenizer import Encoded, Tokenizer
from qkv.text.vocabulary import Kind
from qkv.text.wordpiece import UNKNOWN


class OpenTokenizer(Tokenizer):
    """Like `base`, but that no word of a text is unknown. Safe to use from several threads.

    With `most`, the words that were not met for the longest time are forgotten when there are more; their ids are not
    given again. Without, all ids stay good.

    >>> tokenizer = OpenTokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"], "word")
    >>> tokenizer.encode_ids(["the zebra"])
    [[5, 7]]
    >>> tokenizer.decode([5, 7])
    'the zebra'
    """

    def __init__(self, base: Tokenizer, most: int | None = None) -> None:
        self.__dict__.update(vars(base))
        self.base, self.most = base, most
        self._lock = Lock()
        self._ids: dict[str, int] = {}  # by spelling, the one met last at the end
        self._spellings: dict[int, str] = {}
        self._next = base.size

    # All ways to get a tokenizer go through these two.

    @classmethod
    def _read(cls, file: Path) -> Self:
        return cls(Tokenizer._read(file))

    @classmethod
    def _of(
        cls, tokens: Sequence[str], kind: Kind, lowercase: bool, segmenter: str | None, fold: Sequence[str] = ()
    ) -> Self:
        return cls(Tokenizer._of(tokens, kind, lowercase, segmenter, fold))

    def __getstate__(self) -> dict[str, Any]:
        """A copy has a lock of its own, and knows the words that were met so far."""
        with self._lock:
            state = {name: value for name, value in vars(self).items() if name != "_lock"}
            return state | {"_ids": dict(self._ids), "_spellings": dict(self._spellings)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, special: bool = True
    ) -> list[Encoded]:
        found = self.base.encode_batch(texts, pairs, special)
        for number, one in enumerate(found):
            if self.unk_id in one.ids:
                found[number] = self._opened(one, (texts[number], "" if pairs is None else pairs[number]))
        return found

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        found = self.base.encode_ids(texts)
        unknown = [number for number, ids in enumerate(found) if self.unk_id in ids]
        # where a token came from is known to the slower way alone
        opened = self.encode_batch([texts[number] for number in unknown], special=False) if unknown else []
        for number, one in zip(unknown, opened, strict=True):
            found[number] = one.ids
        return found

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        if all(number < self.size for number in ids):
            return self.base.decode(ids, skip_special)
        added = self.backend.get_added_tokens_decoder()
        skipped = {number for number, token in added.items() if token.special} if skip_special else set()
        tokens = [self.token(number) for number in ids if number not in skipped]
        decoder = self.backend.decoder
        return self._tidied(" ".join(tokens) if decoder is None else decoder.decode(tokens))

    def token(self, id: int) -> str:
        if id < self.size:
            return self.base.token(id)
        spelling = self._spellings.get(int(id))
        if spelling is None:
            raise InputError(
                f"The word with id {id} is not known any more: more than {self.most:,} different words outside of the "
                "vocabulary came after it. Give fewer texts at a time."
                if id < self._next and self.most is not None
                else f"There is no token with id {id}; the vocabulary has {self.size}."
            )
        return spelling

    def _opened(self, one: Encoded, texts: tuple[str, str]) -> Encoded:
        ids, tokens = list(one.ids), list(one.tokens)
        for place, number in enumerate(one.ids):
            start, end = one.offsets[place]
            written = texts[one.segments[place]][start:end]
            # a literal [UNK] stays [UNK]
            if number == self.unk_id and written and written != UNKNOWN:
                tokens[place] = self._spelled(written)
                ids[place] = self._id(tokens[place])
        return Encoded(ids, one.segments, one.offsets, tokens)

    def _spelled(self, written: str) -> str:
        normalizer = self.backend.normalizer
        spelled = written if normalizer is None else "".join(normalizer.normalize_str(written).split())
        return spelled or written

    def _id(self, spelling: str) -> int:
        with self._lock:
            number = self._ids.pop(spelling, None)
            if number is None:
                number = self._next
                self._next += 1
                self._spellings[number] = spelling
            self._ids[spelling] = number
            if self.most is not None and len(self._ids) > self.most:
                oldest = next(iter(self._ids))
                del self._spellings[self._ids.pop(oldest)]
            return number
