"""A word2vec, NNLM, recurrent language model, ELMo or GPT as it was trained, opened to give vectors of texts.

    word2vec, nnlm   a word has its row of the table, whatever stands around it; some words have none
    rnnlm            a token has the state after it
    elmo             a token has the vectors of all layers in equal shares: what no task has weighed yet
    gpt              a token has the vector after it, from which the next is predicted

All but GPT are what a reader of kind lookup finds below it (models/plain/network.py), and are run as one. No task was
put on them, so they do nothing else. A text's vector is the mean of its tokens': [CLS] and [SEP], which mark the ends
of a text for what reads on, are no part of it, and neither is a word without a vector.

Shapes: V vocabulary, D width of a vector, N tokens.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn

from qkv.errors import InputError
from qkv.files import read_object
from qkv.models.bert.plan import Undrawn
from qkv.models.elmo.network import ScalarMix
from qkv.models.elmo.tokenizer import MOST
from qkv.models.folders.own import OURS
from qkv.models.gpt.task_folder import GPTFolder, open_gpt
from qkv.models.plain.contextual import ElmoVectors, StateVectors, width_of
from qkv.models.plain.folder import ReaderFolder, spelling
from qkv.models.plain.network import ReaderConfig, ReaderWithHeads, Table
from qkv.models.plain.sources import open_source
from qkv.models.word2vec.vectors import TABLES, WordVectors, look_up_tokens

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


class PretrainedGPT(GPTFolder):
    """A GPT that no task was put on. Before a text stands the mark that stands there in training; the one after it is
    seen by nothing before it, and counts nowhere."""

    abilities = (
        "write on from a text (qkv generate MODEL TEXT)",
        "embed texts and their tokens (qkv embed TEXT --model)",
        "show attention (qkv attention TEXT --model)",
        "be fine-tuned (qkv finetune --model)",
    )

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        raise InputError(f"{self.path} is a GPT as it was trained: copy its folder.")


def open_any_gpt(path: Path, dtype: torch.dtype = torch.float32) -> GPTFolder:
    """A `PretrainedGPT`, unless it was fine-tuned."""
    opened = open_gpt(path, dtype=dtype)
    if opened.model.heads:
        return opened
    if opened.tokenizer.added:
        with torch.no_grad():  # drawn for a task to learn; here they are to add nothing
            opened.model.encoder.embedding.token.weight[list(opened.tokenizer.added)] = 0
    return PretrainedGPT(**{one.name: getattr(opened, one.name) for one in fields(opened)})


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
