"""Folders of BERT and of networks of its kind, as transformers writes them: load, save, describe, and the family.

Loading checks the folder by names and shapes (plan.py), builds the network without memory for it, and hands every
parameter a view of the mapped file; only what transformers keeps in several tensors, or in another dtype, is copied,
once. `family_of_bert` makes a family of the table (models/table.py) of a record of names (likes.py).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.errors import InputError, listed, reading
from qkv.files import to_json
from qkv.models.bert.likes import BertLike
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.plan import LABELLED, Plan, make_plan
from qkv.models.encoder import WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    TASK_HEADS,
    Ability,
    EncoderSizes,
    Encodes,
    Facts,
    Family,
    Fills,
    HasTask,
    Head,
    JudgesPairs,
    Loading,
    Opened,
    Saving,
    TakesHead,
)
from qkv.models.folders.card import MARK, Card, write_card
from qkv.models.folders.codec import CARD, CONFIG, FORMAT, OURS, check_vocabulary, own_version, terms_of, write_folder
from qkv.models.folders.fields import default_labels
from qkv.models.folders.info import vocabulary_line
from qkv.models.folders.sentence import MODULES, SentenceFiles, write_sentence
from qkv.models.folders.weights import gathered
from qkv.text.tokenizer import Tokenizer

_ABOUT: dict[tuple[str, ...], tuple[str, str]] = {
    ("masked", "next_sentence"): (
        "an encoder with its two pre-training heads: masked words and next sentence",
        "编码器，带两个预训练头：被遮盖的词、下一句",
    ),
    ("masked", "sentence_order"): (
        "an encoder with its two pre-training heads: masked words and the order of two sentences",
        "编码器，带两个预训练头：被遮盖的词、两句的先后",
    ),
    ("masked",): ("an encoder that fills in masked words", "编码器，可填出被遮盖的词"),
    ("next_sentence",): ("an encoder that says whether one sentence follows another", "编码器，可判断两句是否相连"),
    ("replaced",): ("an encoder that finds replaced words", "编码器，可找出被替换的词"),
    ("sequence",): ("an encoder that classifies a text", "编码器，可给文本分类"),
    ("token",): ("an encoder that labels every token of a text", "编码器，可给每个词元打标签"),
    ("span",): ("an encoder that finds an answer in a text", "编码器，可在文本中找出答案"),
    ("choice",): ("an encoder that picks one of several choices", "编码器，可从几个选项中选一个"),
    (): ("an encoder", "编码器"),
}


@dataclass
class Folder:
    """A loaded model and all that its folder says about it."""

    model: BertWithHeads
    tokenizer: Tokenizer
    config: BertConfig
    labels: tuple[str, ...]  # by id; empty without a head that has labels
    architecture: str  # the class of transformers for what is really there, which may be more than the folder states
    path: Path
    pooling: str | None = None  # "mean" or "cls" when the folder says so
    normalize: bool = False
    foreign_pooling: str | None = None  # how the folder pools, where qkv cannot
    record: dict[str, Any] = field(default_factory=dict)  # from qkv.json
    carried: dict[str, Any] = field(default_factory=dict)  # fields of config.json that a save gives back
    files: dict[str, bytes] = field(default_factory=dict)  # small files that a save gives back
    notes: tuple[str, ...] = ()  # what the folder says and qkv does not do
    like: BertLike = field(kw_only=True)

    def save(self, path: str | Path, architecture: str | None = None) -> Path:
        """The same model in another folder (or this one), with everything that came with it."""
        return save_like(
            self.like,
            path,
            self.model,
            self.tokenizer,
            self.labels,
            architecture,
            pooling=self.pooling,
            normalize=self.normalize,
            foreign_pooling=self.foreign_pooling,
            record=self.record,
            carried=self.carried,
            files=self.files,
        )


def load_like(like: BertLike, path: str | Path, *, dtype: torch.dtype = torch.float32) -> Folder:
    """Load a folder for prediction. Weights stored in another dtype are converted.

    The weights are a private mapping of the file: training does not write to it. In return the file must not be
    written over in place while the model lives; a save never does that, it puts a new file in the old one's place.
    """
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        return loaded(folder, make_plan(like, folder, compare=True), dtype)


def loaded(folder: Path, plan: Plan, dtype: torch.dtype) -> Folder:
    state = {ours: gathered([plan.names[name] for name in theirs], dtype) for ours, theirs in plan.tensors.items()}
    plan.skeleton.load_state_dict(state, strict=True, assign=True)
    files = dict(plan.sentence.files)
    if (folder / CARD).is_file() and MARK.encode() not in (card := (folder / CARD).read_bytes()):
        files[CARD] = card
    files |= terms_of(folder)
    return Folder(
        model=plan.skeleton.eval(),
        tokenizer=plan.tokenizer,
        config=plan.skeleton.config,
        labels=plan.labels,
        architecture=plan.architecture,
        path=folder,
        pooling=plan.sentence.pooling,
        normalize=plan.sentence.normalize,
        foreign_pooling=plan.sentence.foreign,
        record=plan.record,
        carried=plan.stated.carried,
        files=files,
        notes=plan.notes,
        like=plan.like,
    )


def save_like(
    like: BertLike,
    path: str | Path,
    model: BertWithHeads,
    tokenizer: Tokenizer,
    labels: Sequence[str] = (),
    architecture: str | None = None,
    *,
    pooling: str | None = None,
    normalize: bool = False,
    foreign_pooling: str | None = None,
    record: Mapping[str, Any] | None = None,
    carried: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a folder that transformers and qkv load; return its path.

    Without `architecture`, every part of the model is written, under the class that holds the most of them. With one,
    exactly the parts of that class: transformers then finds no key too many or too few. A folder that is already
    there is replaced if it is a model folder, and refused if it holds anything else.
    """
    config, heads = model.config, set(model.heads)
    pooler = model.encoder.pooler is not None
    if architecture is not None:
        like.check_architecture(architecture, "save")
        needed = like.classes[architecture]
        if lacking := set(needed.heads) - heads:
            raise InputError(f"{architecture} needs the head {listed(lacking)}, which this model does not have.")
        heads, pooler = set(needed.heads), pooler and needed.pooler
    else:
        architecture = like.architecture_of(heads)
    labels = _labels_to_write(like, model, architecture, labels)
    target = Path(os.path.expanduser(path))
    check_vocabulary(tokenizer, config.vocabulary_size, str(target))
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for ours, theirs in like.tensors(config, heads, like.dense_of(architecture) if pooler else None).items():
        for name, part in zip(theirs, state[ours].detach().cpu().chunk(len(theirs)), strict=True):
            tensors[like.written(ours, name, architecture)] = part.contiguous()
    if "heads.masked.table" in state and "masked" in heads and like.decoder_bias is not None:
        tensors[like.decoder_bias] = tensors[like.masked_bias].clone()  # untied, transformers adds this one
    dtype = str(state["encoder.embedding.token.weight"].dtype).removeprefix("torch.")
    extra: dict[str, str | bytes] = {**(files or {}), **tokenizer.files(config.max_length)}
    if pooling and MODULES not in extra:
        extra |= write_sentence(pooling, normalize, config.width)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    extra.setdefault(CARD, make_card(like, target.resolve().name, config, architecture, labels, parameters, pooling))
    ours_alone: dict[str, Any] = {"format": FORMAT, "qkv": own_version(), "pooling": pooling, "normalize": normalize}
    if foreign_pooling is not None:
        ours_alone["foreign_pooling"] = foreign_pooling
    extra |= {
        CONFIG: to_json(like.write_config(config, architecture, labels, dtype, carried or {})),
        OURS: to_json(ours_alone | {"record": dict(record or {})}),
    }
    write_folder(target, extra, tensors)
    return target


def make_card(
    like: BertLike,
    name: str,
    config: BertConfig,
    architecture: str,
    labels: Sequence[str],
    parameters: int,
    pooling: str | None,
) -> str:
    """README.md."""
    known = like.classes[architecture]
    english, chinese = _ABOUT[known.heads]
    size = f"{config.layers} × {config.width} × {config.heads}"
    return write_card(
        Card(
            name,
            (
                f"{like.title} ({architecture}): {english}. {config.layers} layers, width {config.width}, "
                f"{config.heads} attention heads, up to {config.max_length:,} tokens, {parameters:,} parameters.",
                f"{like.title}（{architecture}）：{chinese}。层数 × 宽度 × 注意力头数 = {size}，"
                f"最长 {config.max_length} 个词元，{parameters:,} 个参数。",
            ),
            tags=(like.name, "sentence-transformers") if pooling else (like.name,),
            library="transformers",
            pipeline="sentence-similarity" if pooling else known.pipeline,
            labels=labels,
            notes=[f"Sentence vectors / 句向量: {pooling} pooling"] if pooling else (),
            python=(
                'import qkv\n\nmodel = qkv.load("path/to/this/folder")',
                f"from transformers import AutoTokenizer, {known.auto_class}\n\n"
                'tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")\n'
                f'model = {known.auto_class}.from_pretrained("path/to/this/folder")',
            ),
        )
    )


def _labels_to_write(like: BertLike, model: BertWithHeads, architecture: str, labels: Sequence[str]) -> tuple[str, ...]:
    named = set(like.classes[architecture].heads) & LABELLED
    if not named:
        return ()
    outputs = model.state_dict()[f"heads.{named.pop()}.linear.weight"].shape[0]
    if labels and len(labels) != outputs:
        raise InputError(f"{len(labels)} labels were given for a head of {outputs} outputs.")
    return tuple(labels) or default_labels(outputs)


def describe_like(like: BertLike, path: str | Path) -> dict[str, Any]:
    """What a folder holds, without reading its weights: for people to look at and programs to read."""
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        return _described(folder, make_plan(like, folder, compare=False))


def _described(folder: Path, plan: Plan) -> dict[str, Any]:
    config, skeleton = plan.skeleton.config, plan.skeleton
    counts: dict[str, int] = {}
    for name, parameter in skeleton.named_parameters():
        top, part = name.split(".")[:2]
        part = part if top == "heads" else {"embedding": "embeddings", "blocks": "encoder"}.get(part, part)
        counts[part] = counts.get(part, 0) + parameter.numel()
    heads = list(skeleton.heads)
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in plan.names.values()}
    return {
        "path": str(folder),
        "architecture": plan.architecture,
        "stated_architecture": plan.stated.architecture,
        "heads": heads,
        "layers": config.layers,
        "width": config.width,
        "attention_heads": config.heads,
        "inner_width": config.inner_width,
        "max_length": config.max_length,
        "activation": config.activation,
        "tied": config.tied if plan.is_decoder_compared else None,  # None: not compared
        "parameters": {
            "total": sum(counts.values()),
            **{part: counts.get(part, 0) for part in ("embeddings", "encoder", "pooler")},
            "heads": {head: counts[head] for head in heads},
        },
        "dtype": " and ".join(sorted(dtypes)),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
        "weight_bytes": sum(file.stat().st_size for file in plan.weights.files),
        "vocabulary": {
            "size": plan.tokenizer.size,
            "rows": config.vocabulary_size,
            "kind": plan.tokenizer.kind,
            "lowercase": plan.tokenizer.lowercase,
            "segmenter": plan.tokenizer.segmenter,
        },
        "labels": list(plan.labels),
        "pooling": plan.sentence.pooling,
        "normalize": plan.sentence.normalize,
        "foreign_pooling": plan.sentence.foreign,
        "record": plan.record,
        "notes": list(plan.notes),
    }


def lines_of_bert(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    parameters, vocabulary = facts["parameters"], facts["vocabulary"]
    rows = vocabulary["rows"]
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    stated, found = facts["stated_architecture"], facts["architecture"]
    heads = ", ".join(f"{name} {number:,}" for name, number in parameters["heads"].items())
    labels = facts["labels"]
    shown = ", ".join(labels[:12]) + (f", … ({len(labels)} in all)" if len(labels) > 12 else "")
    pooling = facts["pooling"] and facts["pooling"] + (", scaled to length 1" if facts["normalize"] else "")
    return [
        ("folder", facts["path"]),
        ("architecture", found if stated in (None, found) else f"{found} (config.json says {stated})"),
        ("heads", ", ".join(facts["heads"]) or "none: embeds texts and shows attention"),
        (
            "layers",
            f"{facts['layers']} of width {facts['width']}, {facts['attention_heads']} attention heads, "
            f"feed-forward {facts['inner_width']}, {facts['activation']}",
        ),
        ("longest text", f"{facts['max_length']} tokens at once"),
        ("parameters", f"{parameters['total']:,}"),
        ("  embeddings", f"{parameters['embeddings']:,}"),
        ("  encoder", f"{parameters['encoder']:,}"),
        ("  pooler", f"{parameters['pooler']:,}" if parameters["pooler"] else ""),
        ("  heads", heads),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("labels", shown),
        ("pooling", pooling or ""),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("card", facts["card"] or ""),
    ]


# --- The family: what is asked of a folder from outside.

_ABILITIES: dict[str, Ability[Any]] = {"masked": FILLS, "next_sentence": JUDGES_PAIRS}


def family_of_bert(like: BertLike) -> Family:
    def describe(path: Path) -> Facts:
        return _facts(like, path, make_plan(like, path, compare=False))

    def open_folder(path: Path, loading: Loading) -> Opened:
        plan = make_plan(like, path, compare=True)
        return _opened(like, _facts(like, path, plan), loaded(path, plan, loading.dtype), plan.dense, loading)

    return Family(like.name, (like.name,), like.about, describe, open_folder, lines_of_bert)


def sizes_of_bert(like: BertLike, config: BertConfig) -> EncoderSizes:
    return EncoderSizes(
        config.vocabulary_size,
        config.own_layers,
        config.width,
        config.max_length,
        pairs=config.segments > 1 if like.pairs is None else like.pairs,
        dropout=config.dropout,
    )


def _facts(like: BertLike, path: Path, plan: Plan) -> Facts:
    config, heads = plan.skeleton.config, tuple(plan.skeleton.heads)
    abilities = [HAS_TASK] if set(heads) & set(TASK_HEADS) else list[Ability[Any]]()
    abilities += [ability for head, ability in _ABILITIES.items() if head in heads]
    stated = {
        "layers": config.layers,
        "heads": config.heads,
        "width": config.width,
        "positions": config.max_length,
    }
    return Facts(
        like.name,
        like.name,
        path,
        like.about,
        "bert",
        (*abilities, ENCODES, ATTENDS, SHOWS_LAYERS, TAKES_HEAD),
        _described(path, plan),
        heads,
        plan.record,
        plan.notes,
        stated,
        sizes_of_bert(like, config),
    )


def _opened(like: BertLike, facts: Facts, folder: Folder, dense: str | None, loading: Loading) -> Opened:
    sizes, network = sizes_of_bert(like, folder.config), folder.model.to(loading.device)

    def build(head: Head) -> BertWithHeads:
        known = like.classes[like.architecture_of([head.name])]
        config = replace(
            folder.config,
            dropout=folder.config.dropout if head.dropout is None else head.dropout,
            attention_dropout=head.attention_dropout,
            dense_activation=known.activation,
            drops_before_dense=known.drops_before,
        )
        return BertWithHeads(config, [head.name], labels=head.outputs)

    def left_out(head: Head) -> tuple[str, ...]:
        """A pooler is not where the dense layer of a head begins that lies elsewhere."""
        return () if like.dense_of(like.architecture_of([head.name])) == dense else ("encoder.pooler.",)

    def save(target: Path, trained: WithHeads, saving: Saving) -> Path:
        assert isinstance(trained, BertWithHeads)
        kept = folder.config
        trained.config = replace(trained.config, dropout=kept.dropout, attention_dropout=kept.attention_dropout)
        return save_like(
            like,
            target,
            trained,
            folder.tokenizer,
            saving.labels,
            like.architecture_of(list(trained.heads)),
            record=saving.record,
            carried={"problem_type": saving.problem} if saving.problem else {},
            files=terms_of(folder.path),
        )

    parts: dict[Ability[Any], Callable[[], Any]] = {
        HAS_TASK: lambda: HasTask(network, facts.heads),
        FILLS: lambda: Fills(network, folder.tokenizer.mask_id),
        JUDGES_PAIRS: lambda: JudgesPairs(network),
        ENCODES: lambda: Encodes(network, folder.tokenizer, sizes, named_layers=folder.config.layers),
        ATTENDS: lambda: network,
        SHOWS_LAYERS: lambda: network,
        TAKES_HEAD: lambda: TakesHead(sizes, folder.tokenizer, folder.path, network, build, save, left_out=left_out),
    }
    return Opened(
        facts,
        folder.tokenizer,
        folder.config,
        folder.labels,
        folder.architecture,
        folder.carried,
        SentenceFiles(folder.pooling, folder.normalize, folder.foreign_pooling),
        folder.notes,
        {one: parts[one] for one in facts.abilities},
        folder.save,
    )
