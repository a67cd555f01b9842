"""Folders of GPT and GPT-2 as transformers writes them: opened, saved, with the head of a task or without.

A folder is checked first, every stored name and shape with the table of dialects.py. Opening builds the network without
allocating it, and gives it views of the mapped file. Matrices are stored transposed; a view turns them, which is also
the fast layout for products with few rows (nn/cpu/precision.py). Saving uses the same table backwards. qkv.json holds
what only qkv reads.

A GPT as it was pretrained writes; for a task it gets special tokens (tokenizer.py): new tokens, and a new row each
in its table, drawn as all rows once were, and alike in every seed. One that was fine-tuned is saved with all of that as
transformers' class for the task, so that `AutoModelForSequenceClassification` and the like open it (dialects.py).

Shapes: N tokens of a row, V vocabulary, W words (V without tokens of tasks), D width.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from qkv.data.batch import Batch
from qkv.errors import InputError, reading
from qkv.files import to_json
from qkv.models.encoder import SkipInit, WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    HAS_TASK,
    PREDICTS_NEXT,
    SHOWS_LAYERS,
    TAKES_HEAD,
    WRITES,
    Ability,
    Encodes,
    Facts,
    HasTask,
    Head,
    Loading,
    Opened,
    PredictsNext,
    Saving,
    TakesHead,
    Writes,
)
from qkv.models.folders.fields import default_labels, write_labels
from qkv.models.folders.own import (
    CARD,
    CONFIG,
    FOLDER_FORMAT,
    OURS,
    Card,
    check_vocabulary,
    describe_scores,
    read_licences,
    write_about,
    write_card,
    write_folder,
)
from qkv.models.folders.weights import StoredTensor, gather
from qkv.models.gpt.dialects import (
    ABOUT,
    HEAD_TENSORS,
    PREFIX,
    SCORES_TENSOR,
    TURNED,
    Dialect,
    GPTPlan,
    class_of,
    dialect_of,
    names_of,
    sizes_of_gpt,
    write_gpt_config,
)
from qkv.models.gpt.encoder import GPTReaderConfig, GPTWithHeads
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.tokenizer import DELIMITER, TaskTokenizer, files_for_tasks, files_for_writing, never_written
from qkv.nn.cpu.precision import check_weights, set_precision
from qkv.text.tokenizer import Encoded, Tokenizer

_CARD_SIZES = ("vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "order")
"""What the card of a GPT lists."""
EMBEDDINGS = {
    "embedding.weight": "encoder.embedding.token.weight",
    "position.weight": "encoder.embedding.position.weight",
    "table": "encoder.table.weight",
}
"""Parameters of a GPT and their names below heads; all others have theirs after "encoder."."""


# Opening


def open_gpt(plan: GPTPlan, facts: Facts, loading: Loading) -> Opened:
    """Weights stored in another dtype are converted; others are a private mapping of the file: training does not write
    to it. In return the file must not be written over in place while the model lives; `save` puts a new file in the old
    one's place."""
    return _OpenedGPT(plan, facts, loading).opened()


class _OpenedGPT:
    """The parts of an opened GPT, which share their weights; each is built on first use."""

    def __init__(self, plan: GPTPlan, facts: Facts, loading: Loading) -> None:
        self.plan, self.facts, self.loading, self.tokenizer = plan, facts, loading, TaskTokenizer(plan.tokenizer)
        rows = max(plan.config.vocabulary_size, self.tokenizer.size)
        self.config = replace(GPTReaderConfig.of(plan.config, self.tokenizer.words), vocabulary_size=rows)
        self.sizes = sizes_of_gpt(self.config, self.config.words)
        if plan.heads and self.tokenizer.added:
            raise InputError(
                f"{plan.path} has a head for {' and '.join(plan.heads)}, and its vocabulary has no {DELIMITER}: it was "
                "not fine-tuned by qkv, and reads texts in another form. Begin from the GPT that it was made of."
            )
        self.outputs = max(
            (plan.stored_heads[f"{HEAD_TENSORS[head]}.weight"].shape[0] for head in plan.heads), default=2
        )
        self.labels = default_labels(self.outputs) if plan.labels is None else plan.labels
        if self.labels and len(self.labels) != self.outputs:
            raise InputError(
                f"{plan.path / CONFIG} names {len(self.labels)} labels, and the head has {self.outputs} outputs. "
                "One of the two files belongs to another model."
            )

    def opened(self) -> Opened:
        plan, facts, fields = self.plan, self.facts, self.plan.fields
        parts: dict[Ability[Any], Callable[[], Any]] = {
            HAS_TASK: lambda: HasTask(self.network, plan.heads),
            WRITES: self.writes,
            PREDICTS_NEXT: self.predicts_next,
            ENCODES: self.encodes,
            ATTENDS: lambda: self.network,
            SHOWS_LAYERS: lambda: self.network,
            TAKES_HEAD: self.takes_head,
        }
        return Opened(
            facts,
            self.tokenizer,
            self.config,
            self.labels,
            f"GPT with a head for {' and '.join(plan.heads)}" if plan.heads else "GPT",
            {"problem_type": fields["problem_type"]} if fields.get("problem_type") else {},
            notes=plan.notes,
            parts={one: parts[one] for one in facts.abilities},
            write=self.save_again if plan.heads else None,
        )

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """The weights of the GPT, by our names."""
        with reading(self.plan.path):
            return {ours: self._tensor(self.plan.names[theirs], theirs) for ours, theirs in self.plan.tensors.items()}

    def _tensor(self, stored: StoredTensor, name: str) -> Tensor:
        found = gather([stored], self.loading.dtype)
        return found.t() if name.endswith(TURNED) else found

    def writes(self) -> Writes:
        plan, loading = self.plan, self.loading
        with torch.device("meta"), SkipInit():
            model = GPT(plan.config)
        model.load_state_dict(self.state, strict=True, assign=True)
        model = set_precision(model.eval().to(loading.device), loading.precision)
        if loading.precision != "fp32":
            check_weights(model)
        return Writes(
            model,
            plan.tokenizer,
            plan.begin_id,
            plan.end_id,
            self.begins_documents,
            plan.config.max_length,
            never_written(plan.tokenizer, plan.config.vocabulary_size, plan.end_id),
        )

    @property
    def begins_documents(self) -> bool:
        return self.plan.begin_id is not None and begins_documents(self.plan.record)

    def predicts_next(self) -> PredictsNext:
        """A text is the beginning of a document where `qkv generate` takes it for one."""
        begin = self.plan.begin_id if self.begins_documents else None
        return PredictsNext(self.network, partial(_next_scores, self.network), begin, None, self.plan.config.max_length)

    @cached_property
    def network(self) -> GPTWithHeads:
        """The network for prediction. Rows of new tokens are zero."""
        return self._with_heads(0.0).to(self.loading.device)

    def encodes(self) -> Encodes:
        """The start token is the one used in pretraining. The end token counts in a mean only if a task trained it."""
        taught = bool(self.plan.heads)
        return Encodes(self.network, self.tokenizer, self.sizes, counts_marks=taught, pools_first=False)

    def takes_head(self) -> TakesHead:
        begun = self._with_heads(self.config.initial_std)
        return TakesHead(self.sizes, self.tokenizer, self.plan.path, begun, self._build, self._save)

    def _with_heads(self, std: float) -> GPTWithHeads:
        """`std` is the standard deviation of the rows of new tokens."""
        plan, added = self.plan, self.tokenizer.added
        state = {_below(name): tensor for name, tensor in self.state.items()}
        for name in (EMBEDDINGS["embedding.weight"], EMBEDDINGS["table"]):
            if name in state and added:
                state[name] = add_rows(state[name], self.config.vocabulary_size, added, std)
        with reading(plan.path):
            for ours in plan.heads:
                for kind in ("weight", "bias"):
                    if (theirs := f"{HEAD_TENSORS[ours]}.{kind}") in plan.stored_heads:
                        state[f"heads.{ours}.linear.{kind}"] = self._tensor(plan.stored_heads[theirs], theirs)
        with torch.device("meta"), SkipInit():
            network = GPTWithHeads(self.config, plan.heads, labels=self.outputs)
        network.load_state_dict(state, strict=True, assign=True)
        return network.eval()

    def _build(self, head: Head) -> GPTWithHeads:
        own = self.config
        config = replace(
            own,
            dropout=own.dropout if head.dropout is None else head.dropout,
            embedding_dropout=own.embedding_dropout if head.dropout is None else head.dropout,
            attention_dropout=head.attention_dropout,
        )
        return GPTWithHeads(config, [head.name], labels=head.outputs)

    def _save(self, target: Path, network: WithHeads, saving: Saving) -> Path:
        assert isinstance(network, GPTWithHeads)
        network.config = self.config
        return save_with_heads(target, network, self.tokenizer, saving, files=read_licences(self.plan.path))

    def save_again(self, target: Path, architecture: str | None) -> Path:
        own = class_of(self.plan.dialect, self.plan.heads)
        if architecture not in (None, own):
            raise InputError(f"{self.plan.path} is a {own}, and cannot be saved as {architecture}.")
        saving = Saving(self.labels, self.plan.record, self.plan.fields.get("problem_type"))
        return self._save(target, self.network, saving)


def _next_scores(network: GPTWithHeads, row: Encoded) -> dict[str, Tensor]:
    """(N, W), of the tokens of texts"""
    batch = Batch.of([row.ids])
    hidden, table, _ = network.encoder.before_words(network.encoder(**batch.inputs(), pool=False).hidden)
    return {"forward": functional.linear(hidden, table)}


def begins_documents(record: Mapping[str, Any]) -> bool:
    """Whether prompts are taken as the beginning of a document: only for models trained here."""
    return record.get("job") == "pretrain"


def add_rows(table: Tensor, rows: int, new: Sequence[int], std: float) -> Tensor:
    """A table (V, D) extended to this many rows; those of the `new` tokens are drawn."""
    draw = torch.Generator().manual_seed(0)
    grown = torch.zeros(rows, table.size(1), dtype=table.dtype)
    grown[: len(table)] = table
    grown[list(new)] = (torch.randn(len(new), table.size(1), generator=draw) * std).to(table.dtype)
    return grown


def _below(name: str) -> str:
    return EMBEDDINGS.get(name, f"encoder.{name}")


# Saving


def save(
    path: str | os.PathLike[str],
    model: GPT,
    tokenizer: Tokenizer,
    record: Mapping[str, Any] | None = None,
    *,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write a folder that transformers and qkv load, atomically; return its path.

    A folder that is already there is replaced if it is a model folder, and refused if it holds anything else. `files`
    are beside those of the model: its licence.
    """
    return _write(path, model, tokenizer, Saving(record=record or {}), {}, files or {})


def save_with_heads(
    path: str | os.PathLike[str],
    model: GPTWithHeads,
    tokenizer: TaskTokenizer,
    saving: Saving | None = None,
    *,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """`save` for a GPT with heads of tasks."""
    with torch.device("meta"), SkipInit():
        network = GPT(model.config.network)
    state = model.state_dict()
    network.load_state_dict({name: state[_below(name)] for name in network.state_dict()}, assign=True)
    heads = {
        f"{HEAD_TENSORS[head]}.{kind}": state[name]
        for head in model.heads
        for kind in ("weight", "bias")
        if (name := f"heads.{head}.linear.{kind}") in state
    }
    own = files_for_tasks(tokenizer, model.config.max_length) if heads else {}
    return _write(path, network, tokenizer.base, saving or Saving(), heads, {**(files or {}), **own})


def _write(
    path: str | os.PathLike[str],
    model: GPT,
    tokenizer: Tokenizer,
    saving: Saving,
    stored_heads: Mapping[str, Tensor],
    files: Mapping[str, str | bytes],
) -> Path:
    """`stored_heads`: further tensors, by their names in the file. `files` may replace others."""
    target, config = Path(os.path.expanduser(path)), model.config
    dialect = dialect_of(config)
    check_vocabulary(tokenizer, config.vocabulary_size, str(target))
    parameters, tensors = dict(model.named_parameters()), dict[str, Tensor]()
    for ours, theirs in names_of(config, dialect).items():
        tensor = parameters[ours].detach().cpu()
        name = theirs if theirs == SCORES_TENSOR else PREFIX + theirs
        tensors[name] = (tensor.t() if theirs.endswith(TURNED) else tensor).contiguous()
    tensors |= {name: tensor.detach().cpu().contiguous() for name, tensor in stored_heads.items()}
    heads = [ours for ours, theirs in HEAD_TENSORS.items() if f"{theirs}.weight" in stored_heads]
    end = tokenizer.sep_id if tokenizer.has_marks else None
    pad = tokenizer.pad_id if tokenizer.pad_id != tokenizer.unk_id else None  # one special token: no padding
    dtype = str(model.embedding.weight.dtype).removeprefix("torch.")
    fields = write_gpt_config(config, dialect, end, pad, dtype)
    fields |= {"architectures": [class_of(dialect, heads)], **write_labels(saving.labels)}
    if saving.problem is not None:
        fields["problem_type"] = saving.problem
    count = sum(tensor.numel() for tensor in tensors.values())
    texts: dict[str, str | bytes] = {
        **files_for_writing(tokenizer, config.max_length, begins=begins_documents(saving.record)),
        CONFIG: to_json(fields),
        OURS: to_json({"format": FOLDER_FORMAT, "record": dict(saving.record)}),
        CARD: _card(target.resolve().name, config, dialect, count, heads, saving),
        **files,
    }
    write_folder(target, texts, tensors)
    return target


def _card(name: str, config: GPTConfig, dialect: Dialect, parameters: int, heads: Sequence[str], saving: Saving) -> str:
    about = ABOUT[heads[0] if heads else config.order]
    python = "from transformers import AutoModelForCausalLM, AutoTokenizer"
    return write_card(
        Card(
            name,
            write_about(dialect.model_type, about.en, about.zh, parameters),
            tags=[dialect.model_type],
            library="transformers",
            pipeline=None if heads else "text-generation",
            sizes={size: getattr(config, size) for size in _CARD_SIZES},
            labels=saving.labels,
            notes=describe_scores(saving.record),
            command=f'qkv {"predict" if heads else "generate"} path/to/this/folder "TEXT"',
            python=[] if heads else [python],
        )
    )
