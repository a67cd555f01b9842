"""Folders of a GPT that a task is put on, or has been (models/gpt/encoder.py).

A GPT as it was pretrained gets the marks of tasks (models/gpt/tokenizer.py): new tokens in its tokenizer, and a new row
each in its table, drawn as all rows once were, and alike in every seed. One that was fine-tuned is saved with all of
that as transformers' class for the task, so that `AutoModelForSequenceClassification` and the like open it:

    sequence   score                          GPT2ForSequenceClassification, OpenAIGPTForSequenceClassification
    token      classifier                     GPT2ForTokenClassification
    span       qa_outputs                     GPT2ForQuestionAnswering
    choice     multiple_choice_head.summary   GPT2DoubleHeadsModel, OpenAIGPTDoubleHeadsModel

transformers has no other class of OpenAI's first GPT: there the head is a tensor beside the network, for qkv alone.

Shapes: V vocabulary, D width.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.errors import InputError, reading
from qkv.files import read_object
from qkv.models.bert.keys import default_labels, read_labels, write_labels
from qkv.models.encoder import WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    HAS_TASK,
    SHOWS_LAYERS,
    TAKES_HEAD,
    WRITES,
    Ability,
    EncoderSizes,
    Encodes,
    Facts,
    Family,
    HasTask,
    Head,
    Loading,
    Opened,
    Saving,
    TakesHead,
    Writes,
)
from qkv.models.folders.card import Card, write_about, write_card
from qkv.models.folders.codec import CONFIG, GPTS, terms_of
from qkv.models.folders.info import shown_facts
from qkv.models.folders.weights import Undrawn
from qkv.models.gpt import folder as gpt2
from qkv.models.gpt.encoder import GPTReaderConfig, GPTWithHeads
from qkv.models.gpt.folder import GPT1, HEADS, dialect_of, read_config
from qkv.models.gpt.network import GPT
from qkv.models.gpt.tokenizer import DELIMITER, TaskTokenizer, files_for_tasks, never_written
from qkv.nn.cpu.precision import check_weights, set_precision
from qkv.report.bilingual import Phrase

CLASSES = {
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "DoubleHeadsModel",
}
"""How transformers' class for a head is called, after the name of the network."""
_ABOUT = {
    "sequence": ("a GPT that classifies a text (Radford et al. 2018, §3.2)", "GPT，可给文本分类"),
    "token": ("a GPT that labels every token of a text", "GPT，可给每个词元打标签"),
    "span": ("a GPT that finds an answer in a text", "GPT，可在文本中找出答案"),
    "choice": ("a GPT that picks one of several choices", "GPT，可从几个选项中选一个"),
}
OF_THE_FIRST = ("sequence", "choice")
"""Heads that it has for OpenAI's first GPT."""
EMBEDDINGS = {
    "embedding.weight": "encoder.embedding.token.weight",
    "position.weight": "encoder.embedding.position.weight",
    "table": "encoder.table.weight",
}
"""Parameters of a GPT and their names below heads; all others have theirs after "encoder."."""


@dataclass
class GPTFolder:
    """A GPT below heads and all that its folder says about it, under the names of `hf.Folder`."""

    model: GPTWithHeads
    tokenizer: TaskTokenizer
    config: GPTReaderConfig
    labels: tuple[str, ...]
    path: Path
    record: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    carried: Mapping[str, Any] = field(default_factory=dict)
    # what a folder of sentence-transformers may say, and this one never does
    pooling: ClassVar[str | None] = None
    normalize: ClassVar[bool] = False
    foreign_pooling: ClassVar[str | None] = None

    @property
    def architecture(self) -> str:
        return "GPT" if not self.model.heads else f"GPT with a head for {' and '.join(self.model.heads)}"

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        own = _architecture_of(self.config, list(self.model.heads))
        if architecture not in (None, own):
            raise InputError(f"{self.path} is a {own}, and cannot be saved as {architecture}.")
        problem = self.carried.get("problem_type")
        terms = terms_of(self.path)
        return save_gpt(path, self.model, self.tokenizer, self.labels, self.record, problem, files=terms)


def open_gpt(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> GPTFolder:
    """A GPT as it was pretrained, made ready for a task, or one that was fine-tuned."""
    loaded, stored = gpt2.load_with_heads(path, dtype=dtype)
    file, tokenizer = loaded.path / CONFIG, TaskTokenizer(loaded.tokenizer)
    rows = max(loaded.config.vocabulary_size, tokenizer.size)
    config = replace(GPTReaderConfig.of(loaded.config, tokenizer.words), vocabulary_size=rows)
    state = {_below(name): tensor for name, tensor in loaded.model.state_dict().items()}
    for name in (EMBEDDINGS["embedding.weight"], EMBEDDINGS["table"]):
        if name in state and tokenizer.added:
            state[name] = with_rows(state[name], rows, tokenizer.added, config.initial_std)
    heads = [ours for ours, theirs in HEADS.items() if f"{theirs}.weight" in stored]
    if heads and tokenizer.added:
        raise InputError(
            f"{loaded.path} has a head for {' and '.join(heads)}, and its vocabulary has no {DELIMITER}: it was not "
            "fine-tuned by qkv, and reads texts in another form. Begin from the GPT that it was made of."
        )
    for ours in heads:
        for kind in ("weight", "bias"):
            if (theirs := f"{HEADS[ours]}.{kind}") in stored:
                state[f"heads.{ours}.linear.{kind}"] = stored[theirs]
    outputs = max((len(stored[f"{HEADS[head]}.weight"]) for head in heads), default=2)
    with reading(loaded.path):
        said = read_object(file)
        labels = read_labels(file, said)[0] if {"sequence", "token"} & set(heads) else ()
    labels = default_labels(outputs) if labels is None else labels
    if labels and len(labels) != outputs:
        raise InputError(f"{file} names {len(labels)} labels, and the head has {outputs} outputs: one is of another.")
    with torch.device("meta"), Undrawn():
        model = GPTWithHeads(config, heads, labels=outputs)
    model.load_state_dict(state, strict=True, assign=True)
    carried = {"problem_type": said["problem_type"]} if said.get("problem_type") else {}
    return GPTFolder(model.eval(), tokenizer, config, labels, loaded.path, loaded.record, loaded.notes, carried)


def shape_of_gpt(path: str | os.PathLike[str]) -> GPTReaderConfig:
    """The sizes that a folder states, without its weights."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        config, _, _ = read_config(read_object(folder / CONFIG), folder / CONFIG)
    return GPTReaderConfig.of(config, config.vocabulary_size)


def save_gpt(
    path: str | os.PathLike[str],
    model: GPTWithHeads,
    tokenizer: TaskTokenizer,
    labels: Sequence[str] = (),
    record: Mapping[str, Any] | None = None,
    problem: str | None = None,
    *,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a folder, whole or not at all; return its path. `problem` is what transformers calls what is learned, and
    `files` are beside those of the model: its licence."""
    config, heads = model.config, list(model.heads)
    with torch.device("meta"), Undrawn():
        network = GPT(config.network)
    state = model.state_dict()
    network.load_state_dict({name: state[_below(name)] for name in network.state_dict()}, assign=True)
    stored = {
        f"{HEADS[head]}.{kind}": state[name]
        for head in heads
        for kind in ("weight", "bias")
        if (name := f"heads.{head}.linear.{kind}") in state
    }
    beside_network: dict[str, Any] = {"architectures": [_architecture_of(config, heads)]} | write_labels(labels)
    if problem is not None:
        beside_network["problem_type"] = problem
    target = Path(os.path.expanduser(path))
    card = _card(target.resolve().name, model, labels) if heads else None
    beside: dict[str, str | bytes] = {**(files or {})}
    if heads:
        beside |= files_for_tasks(tokenizer, config.max_length)
    return gpt2.save(
        target, network, tokenizer.base, record, heads=stored, fields=beside_network, card=card, files=beside
    )


def _architecture_of(config: GPTReaderConfig, heads: Sequence[str]) -> str:
    """transformers' class for a GPT with one head; with none, or none that it knows, that of the network."""
    dialect = dialect_of(config)
    if len(heads) != 1 or (dialect is GPT1 and heads[0] not in OF_THE_FIRST):
        return dialect.classes[0] if not heads else dialect.classes[1]
    return dialect.classes[1].removesuffix("Model") + CLASSES[heads[0]]


def with_rows(table: Tensor, rows: int, new: Sequence[int], std: float) -> Tensor:
    """A table (V, D) grown to so many rows, with those of the `new` tokens drawn."""
    draw = torch.Generator().manual_seed(0)
    grown = torch.zeros(rows, table.size(1), dtype=table.dtype)
    grown[: len(table)] = table
    grown[list(new)] = (torch.randn(len(new), table.size(1), generator=draw) * std).to(table.dtype)
    return grown


def _below(name: str) -> str:
    return EMBEDDINGS.get(name, f"encoder.{name}")


def _card(name: str, model: GPTWithHeads, labels: Sequence[str]) -> str:
    dialect, (english, chinese) = dialect_of(model.config), _ABOUT[next(iter(model.heads))]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return write_card(
        Card(
            name,
            write_about(dialect.model_type, english, chinese, parameters),
            tags=[dialect.model_type],
            library="transformers",
            sizes={size: getattr(model.config, size) for size in gpt2.SIZES},
            labels=labels,
            command='qkv predict path/to/this/folder "TEXT"',
        )
    )


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


# --- The family: what is asked of a GPT's folder from outside.

_ABOUT_FAMILY = Phrase("a GPT, which writes on from a text", "GPT，可接着一段文字往下写")
_ABOUT_TASK = Phrase("a GPT that was made for a task", "为一个任务训练而成的 GPT")


def sizes_of_gpt(config: GPTReaderConfig) -> EncoderSizes:
    return EncoderSizes(
        config.vocabulary_size,
        config.layers,
        config.width,
        config.max_length,
        pairs=True,
        dropout=config.dropout,
        words=config.words,
    )


def _facts(path: Path) -> Facts:
    document = gpt2.describe(path)
    heads = tuple(document["heads"])
    return Facts(
        "gpt",
        document["model_type"],
        path,
        _ABOUT_TASK if heads else _ABOUT_FAMILY,
        "gpt",
        (HAS_TASK if heads else WRITES, ENCODES, ATTENDS, SHOWS_LAYERS, TAKES_HEAD),
        document,
        heads,
        document["record"],
        tuple(document["notes"]),
        shown_facts(path, "gpt"),
        sizes_of_gpt(shape_of_gpt(path)),
    )


def _writes(path: Path, loading: Loading) -> Writes:
    found = gpt2.load(path, dtype=loading.dtype)
    model = set_precision(found.model.to(loading.device), loading.precision)
    if loading.precision != "fp32":
        check_weights(model)
    return Writes(
        model,
        found.tokenizer,
        found.begin_id,
        found.end_id,
        found.begin_id is not None and gpt2.begins_documents(found.record),
        found.config.max_length,
        never_written(found.tokenizer, found.config.vocabulary_size, found.end_id),
    )


def _takes_head(path: Path, loading: Loading) -> TakesHead:
    folder = open_gpt(path, dtype=loading.dtype)

    def build(head: Head) -> GPTWithHeads:
        dropout = folder.config.dropout if head.dropout is None else head.dropout
        below = folder.config.embedding_dropout if head.dropout is None else head.dropout
        config = replace(
            folder.config, dropout=dropout, attention_dropout=head.attention_dropout, embedding_dropout=below
        )
        return GPTWithHeads(config, [head.name], labels=head.outputs)

    def save(target: Path, network: WithHeads, saving: Saving) -> Path:
        assert isinstance(network, GPTWithHeads)
        network.config = folder.config
        files = terms_of(folder.path)
        return save_gpt(target, network, folder.tokenizer, saving.labels, saving.record, saving.problem, files=files)

    return TakesHead(sizes_of_gpt(folder.config), folder.tokenizer, path, folder.model, build, save)


def _open(path: Path, loading: Loading) -> Opened:
    facts, folder = _facts(path), open_any_gpt(path, loading.dtype)
    network, taught = folder.model.to(loading.device), bool(folder.model.heads)
    sizes = sizes_of_gpt(folder.config)
    encodes = Encodes(network, folder.tokenizer, sizes, named_layers=None, counts_marks=taught, pools_first=False)
    parts: dict[Ability[Any], Callable[[], Any]] = {
        HAS_TASK: lambda: HasTask(network, facts.heads),
        WRITES: partial(_writes, path, loading),
        ENCODES: lambda: encodes,
        ATTENDS: lambda: network,
        SHOWS_LAYERS: lambda: network,
        TAKES_HEAD: partial(_takes_head, path, loading),
    }
    return Opened(
        facts,
        folder.tokenizer,
        folder.config,
        folder.labels,
        folder.architecture,
        folder.carried,
        notes=folder.notes,
        parts={one: parts[one] for one in facts.abilities},
        write=folder.save if taught else None,
    )


GPT_FAMILY = Family("gpt", GPTS, _ABOUT_FAMILY, _facts, _open, gpt2.lines_of_gpt)
