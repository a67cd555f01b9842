"""A word2vec, NNLM, recurrent language model or ELMo as it was trained, opened to give vectors of texts.

    word2vec, nnlm   a word has its row of the table, whatever stands around it; some words have none
    rnnlm            a token has the state after it
    elmo             a token has the vectors of all layers in equal shares: what no task has weighed yet

They are what a reader of kind lookup finds below it (models/plain/network.py), and are run as one. No task was
put on them, so they do nothing else. A text's vector is the mean of its tokens': [CLS] and [SEP], which mark the ends
of a text for what reads on, are no part of it, and neither is a word without a vector.

Shapes: V vocabulary, D width of a vector, N tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.errors import InputError
from qkv.files import read_object
from qkv.models.elmo.network import ScalarMix
from qkv.models.elmo.tokenizer import MOST
from qkv.models.family import ENCODES, FEEDS, Ability, Encodes, Facts, Family, Loading, Opened
from qkv.models.folders.codec import OURS, WEIGHTS
from qkv.models.folders.info import lines_of_ours, shown_facts
from qkv.models.folders.own import describe_folder
from qkv.models.folders.weights import Undrawn
from qkv.models.plain.contextual import ElmoVectors, StateVectors, width_of
from qkv.models.plain.folder import ReaderFolder, sizes_of_reader, spelling
from qkv.models.plain.network import ReaderConfig, ReaderWithHeads, Table
from qkv.models.plain.sources import open_below, open_source
from qkv.models.word2vec.vectors import TABLES, WordVectors, look_up_tokens
from qkv.report.bilingual import Phrase

OPENED = ("word2vec", "nnlm", "rnnlm", "elmo")
"""The model_types that are opened so."""


@dataclass
class PretrainedFolder(ReaderFolder):
    """Opened by `open_pretrained`."""

    model_type: str = ""
    known: Tensor | None = None  # (V,) which tokens have a vector; None: all of them

    @property
    def architecture(self) -> str:
        return f"model of type {self.model_type}"

    @property
    def has_table(self) -> bool:
        """Whether a word has one vector, the same in every text."""
        return self.model_type in TABLES

    @property
    def abilities(self) -> tuple[str, ...]:
        """What can be asked of it, each with the command."""
        words = ("name words that are alike (qkv similar WORD --model)",) if self.has_table else ()
        return ("embed texts and their tokens (qkv embed TEXT --model)", *words, "be fine-tuned (qkv finetune --model)")

    def has_vector(self, ids: Tensor) -> Tensor:
        """(N,) → (N,), of the tokens of a text, on a CPU"""
        return torch.ones_like(ids, dtype=torch.bool) if self.known is None else self.known[ids]

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        vectors = f", or write its vectors to a file: qkv convert {self.path} vectors.txt" if self.has_table else ""
        raise InputError(f"{self.path} is a {self.architecture} as it was trained: copy its folder{vectors}.")


def open_pretrained(path: Path, model_type: str, dtype: torch.dtype = torch.float32) -> PretrainedFolder:
    """A folder of one of the types in `OPENED`."""
    source = open_source(str(path), None)
    below, known = source.below, None
    features = None if isinstance(below, WordVectors) else below.config
    shape = ReaderConfig(
        "lookup",
        vocabulary_size=source.tokenizer.size,
        embedding_width=below.width if isinstance(below, WordVectors) else width_of(below.config),
        layers=0,
        pad_id=source.tokenizer.pad_id,
        features=features,
    )
    # whoever reads on and on may forget the oldest of the words it spelled
    tokenizer = spelling(shape, source.tokenizer, MOST)
    with torch.device("meta"), Undrawn():
        model = ReaderWithHeads(shape, words=tokenizer)
    embedding = model.encoder.embedding
    if isinstance(below, WordVectors):
        assert isinstance(embedding, Table)
        table, known = look_up_tokens(tokenizer, below)
        embedding.weight = nn.Parameter(table)
    else:
        assert isinstance(embedding, ElmoVectors | StateVectors)
        embedding.network.load_state_dict(below.tensors, assign=True)
    if shape.mixed_layers:
        model.encoder.mix = ScalarMix(shape.mixed_layers)  # equal shares, which is where learning them begins
    record = dict(read_object(path / OURS).get("record") or {}) if (path / OURS).is_file() else {}
    model = model.to(dtype).requires_grad_(False).eval()
    return PretrainedFolder(model, tokenizer, shape, (), path, record, model_type=model_type, known=known)


# --- The families that are opened so.

OwnParts = Mapping[Ability[Any], Callable[[Path, Loading], Any]]
"""What one of them has beside what all have."""


def family_below(name: str, about: Phrase, view_kind: str, own: OwnParts) -> Family:
    def describe(path: Path) -> Facts:
        document = describe_folder(path)
        document["weight_bytes"] = document["files"][WEIGHTS]
        shown = shown_facts(path, view_kind)
        abilities = (*own, ENCODES, FEEDS)
        return Facts(name, name, path, about, view_kind, abilities, document, record=document["record"], shown=shown)

    return Family(
        name, (name,), about, describe, lambda path, loading: opened_below(describe(path), loading, own), lines_of_ours
    )


def opened_below(facts: Facts, loading: Loading, own: OwnParts) -> Opened:
    path = facts.path

    @cache
    def vectors() -> PretrainedFolder:
        return open_pretrained(path, facts.model_type, loading.dtype)

    def encodes() -> Encodes:
        folder = vectors()
        return Encodes(
            folder.model.to(loading.device),
            folder.tokenizer,
            sizes_of_reader(folder.config),
            named_layers=folder.config.mixed_layers - 1 if folder.config.mixed_layers else None,
            counts_marks=False,
            pools_first=False,
            known=folder.known,
        )

    parts: dict[Ability[Any], Callable[[], Any]] = {kind: partial(part, path, loading) for kind, part in own.items()}
    parts |= {ENCODES: encodes, FEEDS: partial(open_below, path, facts.model_type)}
    folder = vectors()
    return Opened(facts, folder.tokenizer, folder.config, architecture=folder.architecture, parts=parts)
