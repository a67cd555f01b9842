"""Write encoded blocks to shards, choose held-out documents, save the state to resume from, and make the manifest.

Blocks arrive in the order of the corpus. A shard ends between blocks, once it has enough tokens, so its contents depend
only on the corpus. The state is saved after each shard; later work is repeated on resume, with the same result.

Two figures of the manifest help to interpret a training run. `unigram_entropy` is the loss of a model that knows only
token frequencies: a masked language model should be below it. `vocabulary_seen` counts the distinct tokens of the
training text; the embeddings of all others are not trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.corpus.documents import Block, CorpusPosition
from qkv.data.corpus.shards import SHARDS_FORMAT, map_arrays, pack_arrays, write_arrays
from qkv.data.corpus.workers import EncodedBlock
from qkv.data.stores import Store
from qkv.text.languages import COUNTED_LANGUAGES, language_shares
from qkv.text.tokenizer import Tokenizer

_NAMES = {"train": "shard", "valid": "valid"}  # file names of a part


def is_held_out(numbers: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Return which documents, by number, are held out: one at random of every 1 / share.

    Of the first group it is the third document (the last, if groups are smaller), so that a small corpus has one too,
    and others to train on.

    >>> np.flatnonzero(is_held_out(np.arange(60), 0.1)).tolist()
    [2, 15, 20, 39, 44, 57]
    """
    if not share:
        return np.zeros(len(numbers), np.bool_)
    lot = round(1 / share)
    lots = numbers // lot
    chosen = np.where(lots == 0, min(2, lot - 1), _mix_bits(lots) % np.uint64(lot)).astype(np.int64)
    return numbers % lot == chosen


def _mix_bits(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return pseudorandom numbers, the same on every machine (splitmix64: Steele, Lea and Flood 2014)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@dataclass
class _Part:
    """The shards of one part, "train" or "valid", and the data of the next shard."""

    name: str
    shards: list[dict[str, Any]] = field(default_factory=list)
    earlier: int = 0  # shards that somebody else writes
    # data of the next shard:
    tokens: list[NDArray[Any]] = field(default_factory=list)
    word_starts: list[NDArray[np.bool_]] = field(default_factory=list)
    sentences: list[NDArray[np.int64]] = field(default_factory=list)  # tokens of each
    documents: list[int] = field(default_factory=list)  # sentences of each
    goes_on: bool = False  # the first of these documents began in the previous shard

    def add(self, tokens: NDArray[Any], word_starts: NDArray[np.bool_], sentences: NDArray[np.int64]) -> None:
        self.tokens.append(tokens)
        self.word_starts.append(word_starts)
        self.sentences.append(sentences)

    def add_documents(self, documents: list[int], first_goes_on: bool) -> None:
        """Add documents by their number of sentences; the first may continue the last one."""
        if first_goes_on and self.documents:
            self.documents[-1] += documents.pop(0)
        elif first_goes_on:
            self.goes_on = True
        self.documents += documents

    def write(self, folder: Path | Store) -> None:
        """Write one shard with all data, and clear it."""
        if not self.tokens:
            return
        file = f"{_NAMES[self.name]}-{self.earlier + len(self.shards):05d}.safetensors"
        arrays = {
            "tokens": np.concatenate(self.tokens),
            "word_starts": np.packbits(np.concatenate(self.word_starts), bitorder="little"),
            "sentences": _offsets(np.concatenate(self.sentences)),
            "documents": _offsets(np.array(self.documents)),
        }
        if isinstance(folder, Path):
            written = write_arrays(folder / file, arrays)
        else:
            pieces, written = pack_arrays(arrays)
            folder.write(file, pieces)
        self.shards.append(
            {
                "file": file,
                "bytes": written.bytes,
                "sha256": written.sha256,
                "tokens": len(arrays["tokens"]),
                "words": sum(int(starts.sum()) for starts in self.word_starts),
                "sentences": len(arrays["sentences"]) - 1,
                "documents": len(self.documents),
                "goes_on": self.goes_on,
            }
        )
        self.tokens, self.word_starts, self.sentences, self.documents, self.goes_on = [], [], [], [], False


class Writer:
    def __init__(self, folder: Path | Store, hold_out: float, shard_tokens: int) -> None:
        self.folder, self.hold_out, self.shard_tokens = folder, hold_out, shard_tokens
        self.parts = [_Part("train"), _Part("valid")]
        self.place = CorpusPosition()  # beginning of the next block
        self.documents = 0  # documents so far
        self.within: int | None = None  # part of the document that the next block may continue
        self.counts = dict.fromkeys(("bytes", "characters", *COUNTED_LANGUAGES), 0)
        self.tokens = 0
        self._held = 0  # tokens not yet written

    def add(self, block: Block, result: EncodedBlock) -> bool:
        """Add a block; return True if this filled a shard and everything was written to disk."""
        self.place = block.after
        for key, count in zip(self.counts, (len(block.data), result.characters, *result.letters), strict=True):
            self.counts[key] += int(count)
        self.tokens += len(result.tokens)
        self.add_tokens(result, block.goes_on)
        if self._held < self.shard_tokens:
            return False
        self.write()
        return True

    def add_tokens(self, result: EncodedBlock, block_goes_on: bool) -> None:
        """Divide the documents of a block among the parts."""
        goes_on = block_goes_on and self.within is not None and bool(result.documents[0])
        part_of_document = self._parts_of(result.documents, block_goes_on)
        part_of_sentence = np.repeat(part_of_document, result.documents)
        part_of_token = np.repeat(part_of_sentence, result.sentences)
        for number, part in enumerate(self.parts):
            if len(mine := np.flatnonzero(part_of_token == number)):
                sentences = result.sentences[part_of_sentence == number]
                part.add(result.tokens[mine], result.word_starts[mine], sentences)
                documents = result.documents[part_of_document == number].tolist()
                part.add_documents(documents, goes_on and part_of_document[0] == number)
        self._held += len(result.tokens)

    def _parts_of(self, documents: NDArray[np.int64], goes_on: bool) -> NDArray[np.int64]:
        """Return the part of each document, given their numbers of sentences: 0 train, 1 valid, -1 if it has none."""
        filled = documents > 0
        begins = filled.copy()
        parts = np.full(len(documents), -1)
        if goes_on and self.within is not None and filled[0]:
            begins[0] = False
            parts[0] = self.within
        numbers = self.documents + np.arange(np.count_nonzero(begins))
        parts[begins] = is_held_out(numbers, self.hold_out)
        self.documents += len(numbers)
        if filled[-1]:
            self.within = int(parts[-1])
        elif len(documents) > 1 or not goes_on:
            self.within = None
        return parts

    def write(self) -> None:
        for part in self.parts:
            part.write(self.folder)
        self._held = 0

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume, right after a shard was written."""
        return {
            "place": asdict(self.place),
            "documents": self.documents,
            "within": self.within,
            "tokens": self.tokens,
            "counts": self.counts,
            "shards": {part.name: part.shards for part in self.parts},
        }

    def go_on(self, state: dict[str, Any]) -> None:
        self.place = CorpusPosition(**state["place"])
        self.documents, self.within, self.tokens = state["documents"], state["within"], state["tokens"]
        self.counts = state["counts"]
        for part in self.parts:
            part.shards = state["shards"][part.name]


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(np.append(0, lengths), dtype=np.int64)


TOKEN_COUNTS_FILE = "token_counts.safetensors"
SUMMED = ("documents", "sentences", "tokens", "words")


def manifest_of(
    made_from: Mapping[str, Any],
    shards: Mapping[str, Sequence[dict[str, Any]]],
    counts: Mapping[str, int],
    token_counts: NDArray[np.int64],
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Return the manifest: the shards of each part, and figures of the whole corpus (`counts` as in `Writer`)."""
    totals = {part: _totals(shards[part]) for part in _NAMES}
    manifest = {
        "format": SHARDS_FORMAT,
        **made_from,
        "totals": {
            **{key: sum(part[key] for part in totals.values()) for key in SUMMED},
            "characters": counts["characters"],
            "bytes": counts["bytes"],
        },
        "languages": language_shares(np.array([counts[name] for name in COUNTED_LANGUAGES])),
        "unigram_entropy": unigram_entropy(token_counts),
        "vocabulary_seen": int(np.count_nonzero(token_counts)),
        "unknown_share": round(int(token_counts[tokenizer.unk_id]) / max(1, int(token_counts.sum())), 6),
        **{part: {**totals[part], "shards": list(shards[part])} for part in _NAMES},
    }
    return manifest | {"notes": _notes(manifest)}


def _totals(shards: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return totals over all shards; a document in several shards counts once."""
    sums = {key: sum(shard[key] for shard in shards) for key in SUMMED}
    sums["documents"] -= sum(shard["goes_on"] for shard in shards)
    return sums


def token_counts(folder: Path, shards: Sequence[dict[str, Any]], size: int) -> NDArray[np.int64]:
    """Count the tokens of training documents in another pass over the shards."""
    counts = np.zeros(size, np.int64)
    for shard in shards:
        counts += count_tokens(map_arrays(folder / shard["file"])["tokens"], size)
    return counts


def count_tokens(tokens: NDArray[Any], size: int) -> NDArray[np.int64]:
    counts = np.zeros(size, np.int64)
    for begin in range(0, len(tokens), 1 << 20):  # numpy converts each to eight bytes
        counts += np.bincount(tokens[begin : begin + (1 << 20)], minlength=size)
    return counts


def unigram_entropy(counts: NDArray[np.int64]) -> float:
    """Return the entropy of the token frequencies in nats.

    >>> round(unigram_entropy(np.array([1, 1, 2, 0])) / 0.6931471805599453, 6)
    1.5
    """
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _notes(manifest: Mapping[str, Any]) -> list[str]:
    """Return notes for the user who trains on these shards."""
    notes = []
    chinese, unknown = manifest["languages"]["zh"], manifest["unknown_share"]
    if manifest["settings"]["segmenter"] == "none" and chinese > 0.01:
        notes.append(
            f"{chinese:.0%} of the letters are Chinese and no segmenter was used: each 汉字 counts as a word. For "
            "whole-word masks, pip install 'qkv[zh]' and prepare again."
        )
    if unknown > 0.05:
        notes.append(f"{unknown:.1%} of the tokens are unknown: the tokenizer does not fit this text.")
    if manifest["settings"]["hold_out"] and not manifest["valid"]["documents"]:
        count = manifest["totals"]["documents"]
        notes.append(f"{count} documents are too few to hold one out: there is nothing to evaluate on.")
    return notes


INVISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}  # a character tokenizer has these as tokens


def sample_of(result: EncodedBlock, tokenizer: Tokenizer, name: str) -> str:
    """Format the first sentences of a file, with blank lines between documents."""
    lines = [f"# {name}"]
    document_begins = {0, *accumulate(result.documents.tolist())}
    begin = 0
    for number, (text, length) in enumerate(zip(result.sample, result.sentences.tolist(), strict=False)):
        tokens = result.tokens[begin : begin + length].tolist()
        starts = result.word_starts[begin : begin + length].tolist()
        if number in document_begins:
            lines.append("")
        lines += [" ".join(text.split()), "    " + pieces([tokenizer.token(id) for id in tokens], starts)]
        begin += length
    return "\n".join(lines) + "\n\n"


def pieces(tokens: list[str], starts: list[bool]) -> str:
    """
    >>> pieces(["un", "##happy", "北", "京", "。"], [True, False, True, False, True])
    '| un ##happy | 北 京 | 。'
    """
    marked = zip(("| " if start else "" for start in starts), tokens, strict=True)
    return " ".join(mark + INVISIBLE.get(token, token) for mark, token in marked)
