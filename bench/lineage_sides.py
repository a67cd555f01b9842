"""The fair side test of bench/lineage.py: the same hidden words of text that nobody read, guessed from the left alone
and from both sides. Top-1.

A model that sees both sides is asked twice, and one that sees the left once, so that what the right side is worth is
not mistaken for what a network is worth:

    word2vec   the mean of up to 8 vectors before (and after), against all words; frequency counts as it did in training
    elmo       left: the language model that reads forward; both: p(w | left) p(w | right) / p(w)
    gpt        left
    bert       both: one [MASK]; left: all that comes after is [MASK] too; left, cut: the row ends after the blank

Words are whole tokens of letters, or 汉字, MARGIN tokens or more from either end of a window of a document. One of a
window, and windows begin with a sentence and share nothing. The mark that stands before documents in training stands
before a window that begins one, and before no other.

Which words are hidden depends on what comes after them: MARGIN tokens must be there, and a token that the next one goes
on with is no word. So who guesses from the left knows of the right that the word ends here; it is the same for all. Two
windows of one document are counted as if they had nothing in common.

Shapes: n words, T tokens of a row, D width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from qkv.data.batch import Batch
from qkv.data.corpus.shards import MANIFEST, Shards, map_arrays
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE
from qkv.errors import InputError
from qkv.files import sha256_of
from qkv.models.bert import folder as hf
from qkv.models.elmo.network import Elmo
from qkv.models.family import RECURS, WRITES, Loading
from qkv.models.folders.own import read_folder
from qkv.models.gpt.network import GPT
from qkv.models.table import open_model
from qkv.text.tokenizer import Tokenizer

SEED = 20_181_011  # the day BERT was made known
MARGIN = 16
WINDOW = 8
ROWS = 64
LEFT, BOTH, CUT, NEITHER = "left", "both", "left, cut", "neither"
ONE_WORD = "one word"
"""Who always says the commonest of the hidden words: as well as nothing seen can do."""


@dataclass(frozen=True)
class Blank:
    """Tokens of a document, and which of them is to be guessed."""

    ids: tuple[int, ...]
    place: int
    begins: bool  # whether the document begins with them

    @property
    def word(self) -> int:
        return self.ids[self.place]


def windows(shards: Shards, length: int) -> list[tuple[int, int, bool]]:
    """The first place, the number of tokens, and whether a document begins there, of what lies side by side."""
    found = []
    for first, last in pairwise(shards.document_offsets.tolist()):
        starts = shards.sentence_offsets[first : last + 1].tolist()
        begin = starts[0]
        while begin < starts[-1]:
            size = min(length, starts[-1] - begin)
            found.append((begin, size, begin == starts[0]))
            begin = next((start for start in starts if start >= begin + size), starts[-1])
    return found


def are_words(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """(V,) which tokens may be hidden, and so may be guessed: nobody is to guess commas."""
    found = np.zeros(tokenizer.size, np.bool_)
    found[[number for token, number in tokenizer.vocabulary.items() if token.isalpha()]] = True
    return found


def blanks(shards: Shards, tokenizer: Tokenizer, most: int, length: int) -> list[Blank]:
    """One of a window, in an order that is drawn; at most so many."""
    draw = np.random.default_rng(SEED)
    is_word, goes_on = are_words(tokenizer), np.zeros(tokenizer.size, np.bool_)
    goes_on[[number for token, number in tokenizer.vocabulary.items() if token.startswith("##")]] = True
    cut = [one for one in windows(shards, length - 2) if one[1] > 2 * MARGIN]  # with room for two marks
    found: list[Blank] = []
    for number in draw.permutation(len(cut)).tolist():
        begin, size, begins = cut[number]
        ids = shards.tokens(np.array([begin]), np.array([size]))
        places = np.arange(MARGIN, len(ids) - MARGIN)
        places = places[is_word[ids[places]] & ~goes_on[ids[places + 1]]]
        if len(places):
            found.append(Blank(tuple(ids.tolist()), int(draw.choice(places)), begins))
        if len(found) == most:
            break
    return found


Answer = Callable[[Sequence[Blank]], Tensor]
"""Some blanks → scores (n, V)"""


@dataclass(frozen=True)
class Text:
    """What all systems were trained on, as far as it helps to guess."""

    tokenizer: Tokenizer
    log_counts: Tensor  # (V,) how often each token stands there, one added so that none is impossible
    device: torch.device

    @classmethod
    def of(cls, data: Path, device: torch.device) -> "Text":
        tokenizer = Shards.open(data).tokenizer()
        counts = torch.from_numpy(map_arrays(data / TOKEN_COUNTS_FILE)["counts"].astype("int64")).double()
        counts[list(tokenizer.special_ids)] = 0
        return cls(tokenizer, (counts + 1).log().float().to(device), device)


def word2vec(text: Text, run: Path) -> dict[str, Answer]:
    embedding = read_folder(run / "model", "word2vec").tensors["embedding"].to(text.device)
    context = load_file(run / "context.safetensors")["context"].to(text.device)
    # negatives were drawn by frequency ** 0.75, so a score is what is left when that is taken away
    noise = 0.75 * text.log_counts

    def answer(asked: Sequence[Blank], both: bool) -> Tensor:
        near = [
            [*one.ids[max(0, one.place - WINDOW) : one.place], *_after(one, WINDOW if both else 0)] for one in asked
        ]
        means = torch.stack([embedding[torch.tensor(ids, device=text.device)].mean(0) for ids in near])
        return means @ context.T + noise

    return {LEFT: lambda asked: answer(asked, False), BOTH: lambda asked: answer(asked, True)}


def _before(one: Blank, mark: int) -> list[int]:
    return [*([mark] if one.begins else []), *one.ids[: one.place]]


def _after(one: Blank, most: int) -> tuple[int, ...]:
    return one.ids[one.place + 1 : one.place + 1 + most]


def elmo(text: Text, run: Path) -> dict[str, Answer]:
    network = open_model(run / "model", Loading(device=torch.device(text.device))).ability(RECURS)
    assert isinstance(network, Elmo)
    begin = text.tokenizer.cls_id
    log_share = text.log_counts - text.log_counts.logsumexp(0)

    def one_way(asked: Sequence[Blank], direction: str) -> Tensor:
        forward = direction == "forward"
        rows = [_before(one, begin) if forward else _after(one, len(one.ids)) for one in asked]
        batch = Batch.of(rows).to(text.device)
        words, place = batch.ids.unique(return_inverse=True)
        layers, _ = network.read(direction, network.spell(words)[place], batch.lengths)
        offsets = batch.offsets.long()
        hidden = layers[-1][offsets[1:] - 1 if forward else offsets[:-1]]  # what has read all of the row
        x, table, bias = network.before_words(hidden)
        return (x @ table.T + bias).log_softmax(1)

    def both(asked: Sequence[Blank]) -> Tensor:
        return one_way(asked, "forward") + one_way(asked, "backward") - log_share

    return {LEFT: lambda asked: one_way(asked, "forward"), BOTH: both}


def gpt(text: Text, run: Path) -> dict[str, Answer]:
    found = open_model(run / "model", Loading(device=text.device)).ability(WRITES)
    model, end = found.writer, found.end_id
    assert isinstance(model, GPT) and end is not None

    def left(asked: Sequence[Blank]) -> Tensor:
        batch = Batch.of([_before(one, end) for one in asked]).to(text.device)
        return model.scores(model(batch.ids, batch.packing, only=batch.offsets[1:].long() - 1))

    return {LEFT: left}


def bert(text: Text, run: Path) -> dict[str, Answer]:
    model = hf.load(run / "model").model.to(text.device)
    tokenizer = text.tokenizer
    begin, end, blank = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id

    def answer(asked: Sequence[Blank], after: Callable[[Blank], Sequence[int]]) -> Tensor:
        batch = Batch.of([[begin, *one.ids[: one.place], blank, *after(one), end] for one in asked]).to(text.device)
        places = batch.offsets[:-1].long() + torch.tensor([one.place + 1 for one in asked], device=text.device)
        return model.masked(model.encoder(**batch.inputs(), only=places, pool=False).hidden)

    return {
        LEFT: lambda asked: answer(asked, lambda one: [blank] * (len(one.ids) - one.place - 1)),
        CUT: lambda asked: answer(asked, lambda _: ()),
        BOTH: lambda asked: answer(asked, lambda one: _after(one, len(one.ids))),
    }


ASKED: dict[str, Callable[[Text, Path], dict[str, Answer]]] = {
    "word2vec": word2vec,
    "elmo": elmo,
    "gpt": gpt,
    "bert": bert,
}


def guessed(answer: Answer, asked: Sequence[Blank], is_word: Tensor) -> NDArray[np.int64]:
    """(n,) the likeliest word (V,) of each blank."""
    found = []
    with torch.no_grad():
        for begin in range(0, len(asked), ROWS):
            scores = answer(asked[begin : begin + ROWS]).float()
            found.append(scores.masked_fill(~is_word, -torch.inf).argmax(1).cpu().numpy())
    return np.concatenate(found)


def check_held_out(data: Path, held_out: Mapping[str, Path]) -> None:
    """Text that was learned from is no test: not the same folder, nor a copy of it."""
    for name, folder in held_out.items():
        if contents(folder) == contents(data):
            raise InputError(
                f"--held-out {name}={folder} is what was learned from (--data {data}). Prepare text that no system "
                "read, with the same tokenizer."
            )


def contents(folder: Path) -> str:
    """What tells one corpus from another."""
    file = folder / MANIFEST
    if not file.is_file():
        raise InputError(f"{folder} holds no shards: there is no {MANIFEST}. `qkv prepare` writes it.")
    return sha256_of(file)[:16]


def asked_all(
    text: Text, language: str, folder: Path, work: Path, systems: Sequence[str], most: int, length: int
) -> Iterator[dict[str, Any]]:
    """A line for every system and side, of one language."""
    is_word = torch.from_numpy(are_words(text.tokenizer)).to(text.device)
    shards = Shards.open(folder)
    shards.check_tokenizer(text.tokenizer, "the systems'")
    asked = blanks(shards, text.tokenizer, most, length)
    if not asked:
        raise InputError(f"{folder} has no document of more than {2 * MARGIN} tokens with a word to hide.")
    words = np.array([one.word for one in asked])
    for system in systems:
        if system == ONE_WORD:
            said = {NEITHER: np.full(len(words), np.bincount(words).argmax())}
        else:
            ways = ASKED[system](text, work / system)
            said = {side: guessed(answer, asked, is_word) for side, answer in ways.items()}
        for side, found in said.items():
            right = found == words
            yield {
                "part": "sides",
                "language": language,
                "system": system,
                "side": side,
                "words": len(asked),
                "accuracy": float(right.mean()),
                "right": right.astype(int).tolist(),
            }
