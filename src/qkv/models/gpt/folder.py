"""Folders of GPT and GPT-2 as transformers writes them: described, opened, saved, with the head of a task or without.

Opening builds the network without allocating it, checks every stored name and shape with the table of dialects.py, and
gives the network views of the mapped file. Matrices are stored transposed; a view turns them, which is also the fast
layout for products with few rows (nn/cpu/precision.py). Saving uses the same table backwards. qkv.json holds what
only qkv reads.

A GPT as it was pretrained writes; for a task it gets special tokens (tokenizer.py): new tokens, and a new row each
in its table, drawn as all rows once were, and alike in every seed. One that was fine-tuned is saved with all of that as
transformers' class for the task, so that `AutoModelForSequenceClassification` and the like open it (dialects.py).

Shapes: N tokens of a row, V vocabulary, W words (V without tokens of tasks), D width.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from qkv.data.batch import Batch
from qkv.errors import InputError, reading
from qkv.files import read_object, to_json
from qkv.models.encoder import WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    HAS_TASK,
    PREDICTS_NEXT,
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
    PredictsNext,
    Saving,
    TakesHead,
    Writes,
)
from qkv.models.folders.fields import default_labels, read_labels, write_labels
from qkv.models.folders.own import (
    CARD,
    CONFIG,
    FOLDER_FORMAT,
    OURS,
    Card,
    check_vocabulary,
    describe_scores,
    read_licences,
    read_record,
    vocabulary_line,
    write_about,
    write_card,
    write_folder,
)
from qkv.models.folders.weights import (
    SkipInit,
    StoredTensor,
    WeightFiles,
    are_equal,
    check_names,
    check_tensor,
    gather,
    open_weights,
)
from qkv.models.gpt.dialects import (
    DIALECTS,
    HEAD_TENSORS,
    PREFIX,
    SCORES_TENSOR,
    TURNED,
    Dialect,
    class_of,
    dialect_of,
    names_of,
    read_gpt_config,
    write_gpt_config,
)
from qkv.models.gpt.encoder import GPTReaderConfig, GPTWithHeads
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.tokenizer import DELIMITER, TaskTokenizer, files_for_tasks, files_for_writing, never_written
from qkv.nn.cpu.precision import check_weights, set_precision
from qkv.report.bilingual import Phrase
from qkv.text.messages import translate
from qkv.text.tokenizer import Encoded, Tokenizer

EMBEDDINGS = {
    "embedding.weight": "encoder.embedding.token.weight",
    "position.weight": "encoder.embedding.position.weight",
    "table": "encoder.table.weight",
}
"""Parameters of a GPT and their names below heads; all others have theirs after "encoder."."""


# Checking a folder by names and shapes, before a weight is read

_ABOUT = {
    "pre": Phrase("a language model that writes on from a text (Radford et al. 2019)", "语言模型：接着一段文字往下写"),
    "post": Phrase("a language model that writes on from a text (Radford et al. 2018)", "语言模型：接着一段文字往下写"),
    "sequence": Phrase("a GPT that classifies a text (Radford et al. 2018, §3.2)", "GPT，可给文本分类"),
    "token": Phrase("a GPT that labels every token of a text", "GPT，可给每个词元打标签"),
    "span": Phrase("a GPT that finds an answer in a text", "GPT，可在文本中找出答案"),
    "choice": Phrase("a GPT that picks one of several choices", "GPT，可从几个选项中选一个"),
}
"""What a card says: of a language model by its order, of one that was made for a task by its head."""
_WRITER = Phrase("a GPT, which writes on from a text", "GPT，可接着一段文字往下写")
_OF_A_TASK = Phrase("a GPT that was made for a task", "为一个任务训练而成的 GPT")
_CARD_SIZES = ("vocabulary_size", "layers", "width", "heads", "inner_width", "max_length", "order")
"""What the card of a GPT lists."""


@dataclass(frozen=True)
class _Plan:
    path: Path
    fields: dict[str, Any]  # of config.json
    dialect: Dialect
    weights: WeightFiles
    names: dict[str, StoredTensor]  # by their names, without the prefix
    stored_heads: dict[str, StoredTensor]  # of tasks, by their names
    tensors: dict[str, str]  # ours → theirs
    skeleton: GPT  # on the meta device
    tokenizer: Tokenizer
    record: dict[str, Any]
    notes: tuple[str, ...]
    begin_id: int | None  # the special token before a text, and
    end_id: int | None  # after it; None: the vocabulary has none, as that of OpenAI's first GPT

    @property
    def config(self) -> GPTConfig:
        return self.skeleton.config

    @cached_property
    def heads(self) -> tuple[str, ...]:
        return tuple(ours for ours, theirs in HEAD_TENSORS.items() if f"{theirs}.weight" in self.stored_heads)

    @cached_property
    def labels(self) -> tuple[str, ...] | None:
        """None if config.json has no labels."""
        return read_labels(self.path / CONFIG, self.fields)[0] if {"sequence", "token"} & set(self.heads) else ()


def _make_plan(folder: Path, compare: bool) -> _Plan:
    """Check a folder before reading weights. `compare`: read the file to see whether a stored output table equals the
    token table."""
    file = folder / CONFIG
    fields = read_object(file)
    config, dialect, notes = read_gpt_config(fields, file)
    weights = open_weights(folder, shapes_only=not compare)
    names = {
        plain: tensor for name, tensor in weights.tensors.items() if not _is_mask(plain := name.removeprefix(PREFIX))
    }
    heads = {name: names.pop(name) for name in list(names) if name.rpartition(".")[0] in HEAD_TENSORS.values()}
    if config.tied and SCORES_TENSOR in names:
        # as transformers 5 does it: one that is stored beside the tokens counts where it differs
        if compare and dialect.tables[0] in names and not are_equal(names[SCORES_TENSOR], names[dialect.tables[0]]):
            config = replace(config, tied=False)
        else:
            del names[SCORES_TENSOR]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = names_of(replace(config, layers=min(config.layers, len(names) + 1)), dialect)
    check_names(weights, names, tensors.values(), f"a {dialect.classes[0]} of {config.layers} layers")
    with torch.device("meta"), SkipInit():
        skeleton = GPT(config)
    for ours, parameter in skeleton.state_dict().items():
        theirs = tensors[ours]
        check_tensor(names[theirs], theirs, parameter.shape[::-1] if theirs.endswith(TURNED) else parameter.shape)
    tokenizer = Tokenizer.load(folder)
    notes += check_vocabulary(tokenizer, config.vocabulary_size, str(folder))
    own = tokenizer.sep_id if tokenizer.has_marks else None
    end = _mark(fields, "eos_token_id", tokenizer, own, notes)
    begin = _mark(fields, "bos_token_id", tokenizer, end, notes)
    found = weights, names, heads, tensors, skeleton, tokenizer, read_record(folder), tuple(notes)
    return _Plan(folder, fields, dialect, *found, begin, end)


def _mark(fields: Mapping[str, Any], name: str, tokenizer: Tokenizer, own: int | None, notes: list[str]) -> int | None:
    """The token that config.json names for a purpose; `own` if it names none."""
    number = fields.get(name)
    if number is None or number == own:
        return own
    if isinstance(number, int) and number in tokenizer.vocabulary.values():
        return number
    taken = "none" if own is None else f"{tokenizer.token(own)} ({own})"
    notes.append(f"{CONFIG}: {name} {number!r} is no token of the vocabulary; {taken} is taken")
    return own


def _is_mask(name: str) -> bool:
    """Whether a name is that of an attention mask, which older files store as a buffer."""
    return name.endswith((".attn.bias", ".attn.masked_bias"))


def describe_gpt(path: Path) -> Facts:
    with reading(path):
        return _facts(_make_plan(path, compare=False))


def _facts(plan: _Plan) -> Facts:
    config, tokenizer, folder = plan.config, plan.tokenizer, plan.path
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in plan.names.values()}
    document = {
        "path": str(folder),
        "model_type": plan.dialect.model_type,
        "about": _OF_A_TASK.en if plan.heads else _ABOUT[config.order].en,
        "config": {name: value for name, value in vars(config).items() if name != "vocabulary_size"},
        "parameters": sum(parameter.numel() for parameter in plan.skeleton.parameters()),
        "max_length": config.max_length,
        "dtype": " and ".join(sorted(dtypes)),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
        "weight_bytes": sum(file.stat().st_size for file in plan.weights.files),
        "vocabulary": {
            "size": tokenizer.size,
            "rows": config.vocabulary_size,
            "kind": tokenizer.kind,
            "lowercase": tokenizer.lowercase,
            "segmenter": tokenizer.segmenter,
        },
        "heads": list(plan.heads),
        "labels": list(plan.labels or ()),
        "record": plan.record,
        "notes": list(plan.notes),
    }
    return Facts(
        "gpt",
        plan.dialect.model_type,
        folder,
        _OF_A_TASK if plan.heads else _WRITER,
        "gpt",
        (*((HAS_TASK,) if plan.heads else (WRITES, PREDICTS_NEXT)), ENCODES, ATTENDS, SHOWS_LAYERS, TAKES_HEAD),
        document,
        plan.heads,
        plan.record,
        plan.notes,
        sizes=_sizes_of(config, config.vocabulary_size),
    )


def _sizes_of(config: GPTConfig, words: int) -> EncoderSizes:
    sizes = config.vocabulary_size, config.layers, config.width, config.max_length
    return EncoderSizes(*sizes, pairs=True, dropout=config.dropout, words=words)


def lines_of_gpt(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `qkv info` shows."""
    sizes, vocabulary, path = facts["config"], facts["vocabulary"], facts["path"]
    rows = vocabulary["rows"]
    first = f"qkv generate {path} TEXT; qkv embed TEXT --model {path}"
    first = f"qkv predict {path} TEXT" if facts["heads"] else first
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    return [
        ("folder", path),
        ("model", f"{facts['model_type']}: {translate(facts['about'])}"),
        (
            "layers",
            f"{sizes['layers']} of width {sizes['width']}, {sizes['heads']} attention heads, feed-forward "
            f"{sizes['inner_width']}, {sizes['activation']}, {sizes['order']}-norm",
        ),
        ("longest text", f"{facts['max_length']} tokens, prompt and all"),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("heads", ", ".join(facts["heads"])),
        ("labels", ", ".join(facts["labels"][:12]) + (" …" if len(facts["labels"]) > 12 else "")),
        ("for", f"{first}; qkv finetune TASK --model {path} --train FILE --out RUN"),
    ]


# Opening


def open_gpt(path: Path, loading: Loading) -> Opened:
    """Weights stored in another dtype are converted; others are a private mapping of the file: training does not write
    to it. In return the file must not be written over in place while the model lives; `save` puts a new file in the old
    one's place."""
    with reading(path):
        return _OpenedGPT(_make_plan(path, compare=True), loading).opened()


class _OpenedGPT:
    """The parts of an opened GPT, which share their weights; each is built on first use."""

    def __init__(self, plan: _Plan, loading: Loading) -> None:
        self.plan, self.loading, self.tokenizer = plan, loading, TaskTokenizer(plan.tokenizer)
        rows = max(plan.config.vocabulary_size, self.tokenizer.size)
        self.config = replace(GPTReaderConfig.of(plan.config, self.tokenizer.words), vocabulary_size=rows)
        self.sizes = _sizes_of(self.config, self.config.words)
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
        plan, fields = self.plan, self.plan.fields
        facts = _facts(plan)
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
    about = _ABOUT[heads[0] if heads else config.order]
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


GPT_FAMILY = Family("gpt", tuple(DIALECTS), _WRITER, describe_gpt, open_gpt, lines_of_gpt)
