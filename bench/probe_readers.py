"""Words of a sentence to vectors, one of every layer: word2vec, ELMo and BERT behind one door.

A sentence is a list of words. Its text is the words with spaces between them; a word's pieces are the tokens whose
characters lie in it, found by their offsets, and its vector is the mean of theirs. ELMo has no [UNK]: what is not in
its vocabulary is read by its bytes. word2vec has no vector for such a word, and zeros stand for it.

Shapes: W words that were asked for, K layers, D width, N tokens of all rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from qkv.api.vector_scores import load_vectors
from qkv.data.batch import Batch
from qkv.errors import InputError
from qkv.models.bert import folder as hf
from qkv.models.family import ENCODES, Loading
from qkv.models.folders.hub import locate
from qkv.models.folders.own import model_type_of
from qkv.models.table import open_model
from qkv.models.word2vec.folder import WordVectors
from qkv.text.tokenizer import Encoded, Tokenizer

Sentence = Sequence[str]
ROWS = 64
"""Sentences that are read together."""


class Reader(Protocol):
    name: str
    layers: tuple[str, ...]

    def read(self, sentences: Sequence[Sentence], wanted: Sequence[Sequence[int]]) -> Tensor:
        """The vectors (W, K, D) of these words of each sentence, in their order."""
        ...


class WordToVector:
    """The same vector in every sentence."""

    layers: tuple[str, ...] = ("0",)

    def __init__(self, vectors: WordVectors, device: torch.device) -> None:
        self.name, self.vectors, self.device = "word2vec", vectors, device

    def read(self, sentences: Sequence[Sentence], wanted: Sequence[Sequence[int]]) -> Tensor:
        words = [sentence[place] for sentence, places in zip(sentences, wanted, strict=True) for place in places]
        found = [self.vectors.find(word) for word in words]
        known = torch.tensor([row is not None for row in found])
        rows = torch.tensor([row or 0 for row in found])
        return torch.where(known[:, None], self.vectors.vectors[rows], 0.0)[:, None].to(self.device)

    def coverage(self, words: Sequence[str]) -> float:
        return sum(self.vectors.find(word) is not None for word in words) / max(1, len(words))


class Contextual(ABC):
    """A network that gives every token of a row a vector of each layer."""

    tokenizer: Tokenizer
    longest: int | None = None

    @abstractmethod
    def layers_of(self, batch: Batch) -> Tensor:
        """(N, K, D)"""

    def read(self, sentences: Sequence[Sentence], wanted: Sequence[Sequence[int]]) -> Tensor:
        asked = [number for number, places in enumerate(wanted) if places]
        by_length = sorted(asked, key=lambda number: len(sentences[number]))
        found: dict[int, Tensor] = {}
        for begin in range(0, len(by_length), ROWS):
            numbers = by_length[begin : begin + ROWS]
            found |= self._rows(numbers, [sentences[n] for n in numbers], [wanted[n] for n in numbers])
        return torch.cat([found[number] for number in asked])

    @torch.inference_mode()
    def _rows(
        self, numbers: Sequence[int], sentences: Sequence[Sentence], wanted: Sequence[Sequence[int]]
    ) -> dict[int, Tensor]:
        encoded = self.tokenizer.encode_batch([" ".join(sentence) for sentence in sentences])
        for sentence, one in zip(sentences, encoded, strict=True):
            if self.longest is not None and len(one.ids) > self.longest:
                shown = " ".join(sentence[:8])
                raise InputError(f"The sentence '{shown} …' has {len(one.ids)} tokens; the model takes {self.longest}.")
        batch = Batch.of([one.ids for one in encoded])
        layers = self.layers_of(batch)  # (N, K, D)
        offsets = batch.offsets.tolist()
        found = {}
        for row, (number, one) in enumerate(zip(numbers, encoded, strict=True)):
            of_row = layers[offsets[row] : offsets[row + 1]]
            pieces = pieces_of_words(sentences[row], one)
            found[number] = torch.stack([of_row[pieces[place]].mean(0) for place in wanted[row]])
        return found


def pieces_of_words(sentence: Sentence, one: Encoded) -> list[list[int]]:
    """The tokens of each word. A word of which the tokenizer leaves nothing has the [CLS] in its place."""
    pieces: list[list[int]] = [[] for _ in sentence]
    owner = [place for place, word in enumerate(sentence) for _ in range(len(word) + 1)]  # of every character
    for token, (start, end) in enumerate(one.offsets):
        if end > start:
            pieces[owner[start]].append(token)
    return [found or [0] for found in pieces]


class ElmoReader(Contextual):
    def __init__(self, folder: Path, device: torch.device) -> None:
        opened = open_model(folder, Loading(device=device, spelled=None))
        self.tokenizer, encodes = opened.tokenizer, opened.ability(ENCODES)
        self.network = encodes.network.encoder.embedding
        self.name, self.device = "ELMo", device
        self.layers = tuple(map(str, range(encodes.sizes.mixed_layers)))

    def layers_of(self, batch: Batch) -> Tensor:
        return self.network(batch.ids.to(self.device), batch.lengths)


class BertReader(Contextual):
    def __init__(self, folder: Path, device: torch.device) -> None:
        found = hf.load(folder)
        self.tokenizer, self.longest = found.tokenizer, found.config.max_length
        self.network = found.model.encoder.eval().to(device)
        self.name, self.device = "BERT", device
        self.layers = tuple(map(str, range(found.config.layers + 1)))

    def layers_of(self, batch: Batch) -> Tensor:
        states = self.network(**batch.to(self.device).inputs(), states=True, pool=False).states
        assert states is not None
        return torch.stack(states, dim=1)


def open_reader(path: Path, device: torch.device) -> Reader:
    """A folder of word vectors (or a file of them), of an ELMo or of a BERT; or the run that wrote one."""
    if path.is_file():
        return WordToVector(load_vectors(path), device)
    folder = locate(path)
    kind = model_type_of(folder)
    if kind == "word2vec":
        return WordToVector(load_vectors(folder), device)
    return ElmoReader(folder, device) if kind == "elmo" else BertReader(folder, device)
