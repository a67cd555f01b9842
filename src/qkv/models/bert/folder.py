"""Folders of BERT and its variants, as transformers writes them: loaded, opened as a family's model, and saved.

A folder is checked first (plan.py). Loading builds the network without allocating it and gives every parameter a view
of the mapped file; only tensors that transformers splits, or stores in another dtype, are copied.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.errors import InputError, listed, reading
from qkv.files import to_json
from qkv.models.bert.likes import BERT_NAMES as BERT_NAMES
from qkv.models.bert.likes import WEIGHT_AND_BIAS, BertLike
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.new_tokens import add_tokens
from qkv.models.bert.plan import LABELLED, OWN_HEAD, FolderPlan, make_plan, sizes_of_bert
from qkv.models.encoder import SkipInit, WithHeads
from qkv.models.family import (
    ATTENDS,
    ENCODES,
    FILLS,
    HAS_TASK,
    JUDGES_PAIRS,
    SHOWS_LAYERS,
    TAKES_HEAD,
    Ability,
    AddedTokens,
    Encodes,
    Facts,
    Fills,
    HasTask,
    Head,
    JudgesPairs,
    Loading,
    Opened,
    Saving,
    TakesHead,
)
from qkv.models.folders.fields import MODULES, SentenceFiles, default_labels, write_sentence
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
    write_card,
    write_folder,
)
from qkv.models.folders.weights import gather
from qkv.text.tokenizer import Tokenizer

SENTENCE_NAMES = {"mean": "mean", "first": "cls"}
"""Our poolings without a pooler, and what sentence-transformers calls them."""


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
        return _load_planned(make_plan(like, folder, compare=True), dtype)


def _load_planned(plan: FolderPlan, dtype: torch.dtype) -> Folder:
    folder = plan.path
    with torch.device("meta"), SkipInit():
        model = BertWithHeads(plan.config, plan.heads, labels=plan.outputs, pooler=plan.dense is not None)
    state = {ours: gather([plan.names[name] for name in theirs], dtype) for ours, theirs in plan.tensors.items()}
    model.load_state_dict(state, strict=True, assign=True)
    files = dict(plan.sentence.files)
    if (folder / CARD).is_file() and MARK.encode() not in (card := (folder / CARD).read_bytes()):
        files[CARD] = card
    files |= read_licences(folder)
    return Folder(
        model=model.eval(),
        tokenizer=plan.tokenizer,
        config=plan.config,
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


# BERT itself

read_config = BERT_NAMES.read_config
load = partial(load_like, BERT_NAMES)


def save(
    path: str | Path,
    model: BertWithHeads,
    tokenizer: Tokenizer,
    labels: Sequence[str] = (),
    architecture: str | None = None,
    **rest: Any,
) -> Path:
    """Write a folder that transformers and qkv load; return its path (`save_like`)."""
    return save_like(BERT_NAMES, path, model, tokenizer, labels, architecture, **rest)


# Opening


def open_bert(plan: FolderPlan, facts: Facts, loading: Loading) -> Opened:
    like, folder = plan.like, _load_planned(plan, loading.dtype)
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
        return () if like.dense_of(like.architecture_of([head.name])) == plan.dense else ("encoder.pooler.",)

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
        partial(_extend, network, folder),
        partial(_shorten, network, folder.path),
    )


# partials of functions, not closures: a copy of what was opened changes its own network, and can be pickled


def _extend(network: BertWithHeads, folder: Folder, file: Path) -> AddedTokens:
    added = add_tokens(network, folder.tokenizer, file)
    folder.tokenizer = added.tokenizer
    return added


def _shorten(network: BertWithHeads, path: Path, layers: int) -> None:
    known = network.config
    if known.groups is not None:
        raise InputError(f"The layers of {path} share their weights: none can be dropped.")
    if not 1 <= layers <= known.layers:
        raise InputError(f"{path} has {known.layers} layers; {layers} of them cannot be kept.")
    network.encoder.blocks = network.encoder.blocks[:layers]
    network.config = network.encoder.config = replace(known, layers=layers)
