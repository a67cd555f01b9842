"""Folders of BERT and its variants, as transformers writes them: check, load, save, describe, and the family.

A plan (`make_plan`) checks a folder by names and shapes before a weight is read. Every error names its file: a missing
part, an unknown key, a shape that config.json contradicts, a tokenizer of another model. Loading builds the network
without allocating it and gives every parameter a view of the mapped file; only tensors that transformers splits, or
stores in another dtype, are copied. `family_of_bert` turns a record of names (likes.py) into an entry of
models/table.py.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.errors import InputError, listed, reading
from qkv.files import to_json
from qkv.models.bert.likes import WEIGHT_AND_BIAS, BertLike, FolderConfig
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.new_tokens import add_tokens
from qkv.models.encoder import READS_POOLED, WithHeads
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
    AddedTokens,
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
from qkv.models.folders.fields import MODULES, POOLINGS, SentenceFiles, default_labels, read_sentence, write_sentence
from qkv.models.folders.own import (
    CARD,
    CONFIG,
    FOLDER_FORMAT,
    MARK,
    OURS,
    Card,
    check_vocabulary,
    describe_scores,
    own_version,
    read_licences,
    read_ours,
    vocabulary_line,
    write_card,
    write_folder,
)
from qkv.models.folders.weights import SkipInit, StoredTensor, WeightFiles, are_equal, gather, open_weights
from qkv.text.tokenizer import Tokenizer

_TOLERATED = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Buffers that older files store and that say nothing: 0, 1, 2 … and 0, 0, 0 …"""
LABELLED = frozenset({"sequence", "token"})
"""Heads whose outputs have names."""
OWN_HEAD = "qkv_head"
"""The name of the tensors of a head that no class of transformers has: it reads a mean, or [CLS] without a pooler."""
SENTENCE_NAMES = {"mean": "mean", "first": "cls"}
"""Our poolings without a pooler, and what sentence-transformers calls them."""


@dataclass(frozen=True)
class FolderPlan:
    like: BertLike
    stated: FolderConfig
    weights: WeightFiles
    names: dict[str, StoredTensor]  # by canonical name
    skeleton: BertWithHeads  # on the meta device
    tensors: dict[str, tuple[str, ...]]  # the names that are used
    dense: str | None  # the name of the pooler's layer
    labels: tuple[str, ...]
    architecture: str
    tokenizer: Tokenizer
    sentence: SentenceFiles
    record: dict[str, Any]
    own_head: str | None  # the head that is stored as `OWN_HEAD`
    is_decoder_compared: bool  # False: a decoder is stored beside the token table, and was not compared
    notes: tuple[str, ...]


def make_plan(like: BertLike, folder: Path, compare: bool) -> FolderPlan:
    """Read everything but the weights. `compare`: look into the file whether a stored decoder is the token table."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    stated = like.read_config(folder / CONFIG)
    weights = open_weights(folder, shapes_only=not compare)
    where = str(weights.source)
    names: dict[str, StoredTensor] = {}
    for stored, tensor in weights.tensors.items():
        name = like.canonical(stored)
        if name in names:
            raise InputError(f"{where} holds {name} twice, with and without a prefix or under an older name.")
        if name not in _TOLERATED:
            names[name] = tensor
    ours = read_ours(folder)
    own_head, own_tensors = ours.get("head"), _take_own_head(ours, names, folder / OURS)
    heads = like.heads_held(names, stated.architecture, where)
    architecture = like.architecture_of(heads, stated.architecture)
    dense, notes = _dense_held(like, names, heads, architecture)
    repeated = stated.config.tied and f"{like.decoder}.weight" in names and like.token_table in names
    known = like.classes[architecture]
    config = replace(
        stated.config,
        tied=_resolve_decoder(like, names, stated.config.tied, compare),
        dense_activation=known.activation,
        drops_before_dense=known.drops_before,
    )
    linears = [f"{like.heads[head]['linear']}.weight" for head in heads if head in TASK_HEADS]
    outputs = [names[linear].shape[0] for linear in linears if linear in names and len(names[linear].shape) == 2]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = like.tensors(config, heads, dense, min(config.own_layers, len(names) + 1))
    _check_names(like, stated, weights, names, tensors, heads)
    if own_head is not None:
        heads, names = (*heads, own_head), names | own_tensors
        tensors |= {f"heads.{own_head}.linear.{kind}": (f"{OWN_HEAD}.{kind}",) for kind in WEIGHT_AND_BIAS}
        outputs.append(own_tensors[f"{OWN_HEAD}.weight"].shape[0])
    with torch.device("meta"), SkipInit():
        skeleton = BertWithHeads(config, heads, labels=max(outputs, default=2), pooler=dense is not None)
    _check_shapes(like, stated, weights, names, tensors, skeleton)

    labels = stated.labels if set(heads) & LABELLED else ()
    if labels is None:
        labels = default_labels(max(outputs))
    elif labels and len(labels) != max(outputs):
        raise InputError(
            f"{folder / CONFIG} names {len(labels)} labels, but the classifier in {weights.source.name} has "
            f"{max(outputs)} outputs. One of the two files belongs to another model."
        )
    tokenizer = Tokenizer.load(folder)
    notes = [*stated.notes, *notes, *check_vocabulary(tokenizer, config.vocabulary_size, str(folder))]
    if repeated and not compare:
        notes.append(
            f"{weights.source.name} holds {like.decoder}.weight too; whether it differs is seen when it is loaded"
        )
    if ours.get("pooling") not in (None, *POOLINGS):
        raise InputError(
            f"{folder / OURS}: pooling is {ours['pooling']!r}, where one of {', '.join(POOLINGS)} belongs."
        )
    sentence = read_sentence(folder)
    if not (folder / MODULES).is_file():
        sentence = SentenceFiles(ours.get("pooling"), bool(ours.get("normalize")), ours.get("foreign_pooling"))
    return FolderPlan(
        like=like,
        stated=stated,
        weights=weights,
        names=names,
        skeleton=skeleton,
        tensors=tensors,
        dense=dense,
        labels=labels,
        architecture=architecture,
        tokenizer=tokenizer,
        sentence=sentence,
        record=ours.get("record") or {},
        own_head=own_head,
        is_decoder_compared=compare or not repeated,
        notes=(*notes, *sentence.notes),
    )


def _take_own_head(ours: Mapping[str, Any], names: dict[str, StoredTensor], file: Path) -> dict[str, StoredTensor]:
    """Remove the tensors of a head of ours from `names` and return them; {} if qkv.json declares none."""
    head = ours.get("head")
    if head is None:
        return {}
    wanted = [f"{OWN_HEAD}.{kind}" for kind in WEIGHT_AND_BIAS]
    if head not in TASK_HEADS or any(name not in names or not names[name].shape for name in wanted):
        raise InputError(f"{file} declares the head {head!r}, and the weights have no {listed(wanted)} of one.")
    return {name: names.pop(name) for name in wanted}


def _dense_held(
    like: BertLike, names: dict[str, StoredTensor], heads: Collection[str], architecture: str
) -> tuple[str | None, list[str]]:
    """The name of the pooler's layer, and a note if one is unused; its tensors are removed from `names`."""
    bare = like.pooler if like.pooler and f"{like.pooler}.weight" in names else None
    if not set(heads) & READS_POOLED:
        return bare, []
    dense = like.dense_of(architecture)
    if bare is None or bare == dense:
        return dense, []
    for kind in WEIGHT_AND_BIAS:
        names.pop(f"{bare}.{kind}", None)
    return dense, [f"the head reads {dense}, so {bare} is not used"]


def _resolve_decoder(like: BertLike, names: dict[str, StoredTensor], tied: bool, compare: bool) -> bool:
    """Reduce the names that may repeat a tensor to those of the record; whether the decoder is the token table.

    As transformers 5 does it: a decoder stored beside the token table counts when it differs from it, whatever
    config.json says, and of two biases the decoder's is the one that is added.
    """
    if like.decoder_bias is not None and like.decoder_bias in names:
        names[like.masked_bias] = names.pop(like.decoder_bias)
    decoder, table = names.get(f"{like.decoder}.weight"), names.get(like.token_table)
    if not tied or decoder is None or table is None:
        return tied
    if compare and not are_equal(decoder, table):
        return False
    del names[f"{like.decoder}.weight"]
    return True


def _check_names(
    like: BertLike,
    stated: FolderConfig,
    weights: WeightFiles,
    names: Mapping[str, StoredTensor],
    tensors: Mapping[str, tuple[str, ...]],
    heads: Sequence[str],
) -> None:
    wanted = {name for theirs in tensors.values() for name in theirs}
    if missing := wanted - set(names):
        raise InputError(
            f"{weights.source} lacks {len(missing)} of the tensors that "
            f"{stated.architecture or like.architecture_of(heads)} with {stated.config.layers} layers needs: "
            f"{listed(missing)}. The file is incomplete, or config.json belongs to another model."
        )
    if unexpected := set(names) - wanted:
        raise InputError(
            f"{weights.source} holds {len(unexpected)} tensors that {like.about.en} of {stated.config.layers} layers "
            f"does not have: {listed(unexpected)}. The folder is of another architecture, or config.json of another "
            "model."
        )


def _check_shapes(
    like: BertLike,
    stated: FolderConfig,
    weights: WeightFiles,
    names: Mapping[str, StoredTensor],
    tensors: Mapping[str, tuple[str, ...]],
    skeleton: BertWithHeads,
) -> None:
    rows, vocabulary = names[like.token_table].shape[0], stated.config.vocabulary_size
    if rows != vocabulary:
        raise InputError(
            f"{weights.source.parent / CONFIG} says vocab_size {vocabulary:,}, but the token table in "
            f"{weights.source.name} has {rows:,} rows. One of the two files belongs to another model."
        )
    for ours, parameter in skeleton.state_dict().items():
        theirs = tensors[ours]
        shape = (parameter.shape[0] // len(theirs), *parameter.shape[1:])
        for name in theirs:
            stored = names[name]
            if stored.shape != shape:
                raise InputError(
                    f"{stored.file}: {name} has the shape {list(stored.shape)}, but config.json asks for "
                    f"{list(shape)}. One of the two files belongs to another model."
                )
            if not stored.dtype.is_floating_point:
                raise InputError(f"{stored.file}: {name} is stored as {stored.dtype}; qkv reads float weights.")


# Loading and saving

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
    own_head: str | None = None  # the head that transformers has no class for
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
            own_head=self.own_head,
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
        return load_planned(folder, make_plan(like, folder, compare=True), dtype)


def load_planned(folder: Path, plan: FolderPlan, dtype: torch.dtype) -> Folder:
    state = {ours: gather([plan.names[name] for name in theirs], dtype) for ours, theirs in plan.tensors.items()}
    plan.skeleton.load_state_dict(state, strict=True, assign=True)
    files = dict(plan.sentence.files)
    if (folder / CARD).is_file() and MARK.encode() not in (card := (folder / CARD).read_bytes()):
        files[CARD] = card
    files |= read_licences(folder)
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
        own_head=plan.own_head,
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
    own_head: str | None = None,
    record: Mapping[str, Any] | None = None,
    carried: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a folder that transformers and qkv load; return its path.

    Without `architecture`, every part of the model is written, under the class that holds the most of them. With one,
    exactly the parts of that class: transformers then finds no key too many or too few. A folder that is already
    there is replaced if it is a model folder, and refused if it holds anything else. `own_head` is the head that
    transformers has no class for: it is stored as `OWN_HEAD` beside the other parts, and qkv.json declares it.
    """
    config, heads = model.config, set(model.heads) - {own_head}
    pooler = model.encoder.pooler is not None
    if architecture is not None:
        like.check_architecture(architecture, "save")
        needed = like.classes[architecture]
        if own_head in needed.heads:
            raise InputError(
                f"The head of this model reads a vector that {architecture} does not compute ({pooling} pooling, no "
                "pooler). Save it without another architecture, or train one with --set classify.pooling=cls."
            )
        if lacking := set(needed.heads) - heads:
            raise InputError(f"{architecture} needs the head {listed(lacking)}, which this model does not have.")
        heads, pooler = set(needed.heads), pooler and needed.pooler
        own_head = None
    else:
        architecture = like.architecture_of(heads)
    labels = _labels_to_write(model, {*like.classes[architecture].heads, own_head}, labels)
    target = Path(os.path.expanduser(path))
    check_vocabulary(tokenizer, config.vocabulary_size, str(target))
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for ours, theirs in like.tensors(config, heads, like.dense_of(architecture) if pooler else None).items():
        for name, part in zip(theirs, state[ours].detach().cpu().chunk(len(theirs)), strict=True):
            tensors[like.written(ours, name, architecture)] = part.contiguous()
    if "heads.masked.table" in state and "masked" in heads and like.decoder_bias is not None:
        tensors[like.decoder_bias] = tensors[like.masked_bias].clone()  # untied, transformers adds this one
    if own_head is not None:
        for kind in WEIGHT_AND_BIAS:
            tensors[f"{OWN_HEAD}.{kind}"] = state[f"heads.{own_head}.linear.{kind}"].detach().cpu().contiguous()
    dtype = str(state["encoder.embedding.token.weight"].dtype).removeprefix("torch.")
    extra: dict[str, str | bytes] = {**(files or {}), **tokenizer.files(config.max_length)}
    if pooling and MODULES not in extra:
        extra |= write_sentence(pooling, normalize, config.width)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    made_of = (config, architecture, labels, parameters, pooling, own_head, record or {})
    extra.setdefault(CARD, make_card(like, target.resolve().name, *made_of))
    ours_alone: dict[str, Any] = {"format": FOLDER_FORMAT, "qkv": own_version()}
    ours_alone |= {"pooling": pooling, "normalize": normalize}
    if foreign_pooling is not None:
        ours_alone["foreign_pooling"] = foreign_pooling
    if own_head is not None:
        ours_alone["head"] = own_head
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
    own_head: str | None = None,
    record: Mapping[str, Any] | None = None,
) -> str:
    """README.md."""
    known = like.classes[architecture]
    english, chinese = _ABOUT[known.heads if own_head is None else (own_head,)]
    notes = [f"Sentence vectors / 句向量: {pooling} pooling"] if pooling else []
    if own_head is not None:
        notes.append(
            f"The head (`{OWN_HEAD}`) reads the {pooling} vector, for which transformers has no class: AutoModel loads "
            f"the encoder, `qkv` all of it. / 任务头（`{OWN_HEAD}`）读取 {pooling} 向量，transformers 没有对应的类："
            "AutoModel 只读编码器，`qkv` 读取全部。"
        )
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
            pipeline="sentence-similarity" if pooling and own_head is None else known.pipeline,
            labels=labels,
            notes=[*notes, *describe_scores(record or {})],
            python=(
                'import qkv\n\nmodel = qkv.load("path/to/this/folder")',
                f"from transformers import AutoTokenizer, {known.auto_class}\n\n"
                'tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")\n'
                f'model = {known.auto_class}.from_pretrained("path/to/this/folder")',
            ),
        )
    )


def _labels_to_write(model: BertWithHeads, heads: Collection[str | None], labels: Sequence[str]) -> tuple[str, ...]:
    named = set(heads) & LABELLED
    if not named:
        return ()
    outputs = model.state_dict()[f"heads.{named.pop()}.linear.weight"].shape[0]
    if labels and len(labels) != outputs:
        raise InputError(f"{len(labels)} labels were given for a head of {outputs} outputs.")
    return tuple(labels) or default_labels(outputs)


def _describe_plan(folder: Path, plan: FolderPlan) -> dict[str, Any]:
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


def _lines_of_bert(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
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


# The family

_ABILITIES: dict[str, Ability[Any]] = {"masked": FILLS, "next_sentence": JUDGES_PAIRS}


def family_of_bert(like: BertLike) -> Family:
    def describe(path: Path) -> Facts:
        return _facts(like, path, make_plan(like, path, compare=False))

    def open_folder(path: Path, loading: Loading) -> Opened:
        plan = make_plan(like, path, compare=True)
        return _open_planned(
            like, _facts(like, path, plan), load_planned(path, plan, loading.dtype), plan.dense, loading
        )

    return Family(like.name, (like.name,), like.about, describe, open_folder, _lines_of_bert)


def sizes_of_bert(like: BertLike, config: BertConfig) -> EncoderSizes:
    return EncoderSizes(
        config.vocabulary_size,
        config.own_layers,
        config.width,
        config.max_length,
        pairs=config.segments > 1 if like.pairs is None else like.pairs,
        dropout=config.dropout,
    )


def _facts(like: BertLike, path: Path, plan: FolderPlan) -> Facts:
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
        _describe_plan(path, plan),
        heads,
        plan.record,
        plan.notes,
        stated,
        sizes_of_bert(like, config),
    )


def _open_planned(like: BertLike, facts: Facts, folder: Folder, dense: str | None, loading: Loading) -> Opened:
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
        return BertWithHeads(config, [head.name], labels=head.outputs, pooler=None if head.pooling == "cls" else False)

    def left_out(head: Head) -> tuple[str, ...]:
        """Do not initialise a head's own dense layer from the pooler."""
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
            like.architecture_of(list(trained.heads)) if saving.pooling == "cls" else None,
            pooling=None if saving.pooling == "cls" else SENTENCE_NAMES[saving.pooling],
            normalize=saving.normalize,
            own_head=None if saving.pooling == "cls" else next(iter(trained.heads), None),
            record=saving.record,
            carried={"problem_type": saving.problem} if saving.problem else {},
            files=read_licences(folder.path),
        )

    def extend(file: Path) -> AddedTokens:
        added = add_tokens(network, folder.tokenizer, file)
        folder.tokenizer = added.tokenizer
        return added

    parts: dict[Ability[Any], Callable[[], Any]] = {
        HAS_TASK: lambda: HasTask(network, facts.heads),
        FILLS: lambda: Fills(network, folder.tokenizer.mask_id),
        JUDGES_PAIRS: lambda: JudgesPairs(network),
        ENCODES: lambda: Encodes(network, folder.tokenizer, sizes, named_layers=folder.config.layers),
        ATTENDS: lambda: network,
        SHOWS_LAYERS: lambda: network,
        TAKES_HEAD: lambda: TakesHead(
            sizes, folder.tokenizer, folder.path, network, build, save, left_out=left_out, pools=True
        ),
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
        extend,
    )
