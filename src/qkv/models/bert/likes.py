"""Folders of BERT and of networks of its kind, as transformers writes them: one engine, and a record of names each.

A record (`BertLike`) says what transformers calls things in a family: fields of config.json, tensors, heads, classes.
The engine reads it from left to right to save and back to load, and everything that can be wrong with a folder is said
once, in a message that names the file. `family_of_bert` makes a family of the table (models/table.py) of it. Names of
tensors are written without the prefix (`bert.`, `roberta.`) that every class but the bare one puts before the
encoder's.

Loading checks the folder by names and shapes, builds the network without memory for it, and hands every parameter a
view of the mapped file; only what transformers keeps in several tensors, or in another dtype, is copied, once.

What this file does NOT do: know what a network computes (network.py), or how weights lie in a file (weights.py).
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.errors import InputError, did_you_mean, listed, reading
from qkv.files import read_object, to_json
from qkv.models.bert.network import BertConfig, BertWithHeads
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
from qkv.models.folders.codec import (
    CARD,
    CONFIG,
    FORMAT,
    OURS,
    check_vocabulary,
    own_version,
    read_ours,
    terms_of,
    write_folder,
)
from qkv.models.folders.fields import Fields, default_labels, read_labels, write_labels
from qkv.models.folders.info import shown_facts, vocabulary_line
from qkv.models.folders.sentence import MODULES, POOLINGS, SentenceFiles, read_sentence, write_sentence
from qkv.models.folders.weights import StoredTensor, Undrawn, Weights, gathered, open_weights, same
from qkv.report.bilingual import Phrase
from qkv.text.tokenizer import Tokenizer

_KINDS = ("weight", "bias")
_TABLES = ("embedding.token", "embedding.segment", "embedding.position", "embedding.task")
"""Parts of an encoder that have a weight alone."""
_OLDER_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow
_TOLERATED = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
"""Buffers that older files store and that say nothing: 0, 1, 2 … and 0, 0, 0 …"""
_LABELLED = frozenset({"sequence", "token"})
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


class Architecture(NamedTuple):
    """What a class of transformers holds on top of the encoder, and how a user reaches it there."""

    heads: tuple[str, ...]
    pooler: bool
    auto_class: str
    pipeline: str | None  # the hub's name for the task
    # the layer between a row's first vector and its head, which is a pooler to us: where this class has it, if not
    # where a pooler lies, and how it bends
    dense: str | None = None
    activation: str = "tanh"
    drops_before: bool = False  # dropout comes before it, too


def usual_classes(name: str, pooler: bool = True, **changes: Architecture) -> dict[str, Architecture]:
    """The classes that every family has, by their endings; `changes` are others, or in their place."""
    usual = {
        "ForMaskedLM": Architecture(("masked",), False, "AutoModelForMaskedLM", "fill-mask"),
        "ForSequenceClassification": Architecture(
            ("sequence",), True, "AutoModelForSequenceClassification", "text-classification"
        ),
        "ForTokenClassification": Architecture(
            ("token",), False, "AutoModelForTokenClassification", "token-classification"
        ),
        "ForQuestionAnswering": Architecture(("span",), False, "AutoModelForQuestionAnswering", "question-answering"),
        "ForMultipleChoice": Architecture(("choice",), True, "AutoModelForMultipleChoice", "multiple-choice"),
        "Model": Architecture((), pooler, "AutoModel", "feature-extraction"),
    }
    first = {ending: one for ending, one in changes.items() if ending not in usual}
    return {f"{name}{ending}": one for ending, one in (first | usual | changes).items()}


@dataclass(frozen=True)
class BertLike:
    name: str  # the model_type, and the line of the table
    title: str  # as its makers write it
    prefix: str
    fields: Fields
    classes: Mapping[str, Architecture]  # the bare one last
    keys: Mapping[str, tuple[str, ...]]  # parts of the encoder, ours → theirs, "{i}" the number of a block
    heads: Mapping[str, Mapping[str, str]]  # parts of each head, ours → theirs
    masked_bias: str
    decoder: str  # its weight may repeat the table of tokens, or take its place
    decoder_bias: str | None = None  # may repeat `masked_bias`
    pooler: str | None = "pooler.dense"  # None: the bare model has none
    shape: Mapping[str, Any] = field(default_factory=dict)  # values of BertConfig that no field says
    after_padding: bool = False  # positions are counted from the padding's id + 1
    pairs: bool | None = None  # whether two texts may stand in one row; None: where there are two segments

    @property
    def about(self) -> Phrase:
        article = "an" if self.title[0] in "AEIOUX" else "a"
        return Phrase(f"{article} {self.title}", self.title)

    @property
    def bare(self) -> str:
        return list(self.classes)[-1]

    def tensors(
        self, config: BertConfig, heads: Collection[str], dense: str | None, layers: int | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Every parameter of a network with these heads, and the tensors that it is stored in, one under the other."""
        absent = {
            "embedding.segment": not config.segments,
            "embedding.task": not (config.adds_task_type and config.task_types),
            "embedding.project": not (config.is_projected or config.table_width != config.width),
        }
        parts: dict[str, tuple[str, ...]] = {}
        for ours, theirs in self.keys.items():
            if absent.get(ours, False):
                continue
            for i in range(config.own_layers if layers is None else layers) if "{i}" in ours else (0,):
                parts[f"encoder.{ours}".replace("{i}", str(i))] = tuple(one.replace("{i}", str(i)) for one in theirs)
        if dense is not None:
            parts["encoder.pooler.dense"] = (dense,)
        for head in heads:
            parts |= {f"heads.{head}.{ours}": (theirs,) for ours, theirs in self.heads[head].items()}
        found = {
            f"{ours}.{kind}": tuple(f"{name}.{kind}" for name in theirs)
            for ours, theirs in parts.items()
            for kind in (_KINDS[:1] if ours.removeprefix("encoder.") in _TABLES else _KINDS)
        }
        if "masked" in heads:
            found["heads.masked.bias"] = (self.masked_bias,)
            if not config.tied:
                found["heads.masked.table"] = (f"{self.decoder}.weight",)
        return found

    @property
    def token_table(self) -> str:
        return f"{self.keys['embedding.token'][0]}.weight"

    def canonical(self, name: str) -> str:
        """A stored name as the record has it: no prefix, today's endings."""
        name = name.removeprefix(self.prefix)
        for old, new in _OLDER_ENDINGS.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def written(self, ours: str, name: str, architecture: str) -> str:
        """The name of a tensor of the parameter `ours` as this class stores it."""
        of_head = ours.startswith("encoder.pooler.") and not (self.pooler and name.startswith(f"{self.pooler}."))
        return self.prefix + name if ours.startswith("encoder.") and not of_head and architecture != self.bare else name

    def check_architecture(self, name: str, where: str) -> None:
        if name not in self.classes:
            raise InputError(
                f"{where}: architecture '{name}' is not one that qkv reads.{did_you_mean(name, self.classes)} "
                f"Known: {', '.join(self.classes)}."
            )

    def architecture_of(self, heads: Collection[str], stated: str | None = None) -> str:
        """The class of transformers that holds the most of these heads; among equals the stated one, then the first."""
        fitting = [name for name, known in self.classes.items() if set(known.heads) <= set(heads)]
        return max(fitting, key=lambda name: (len(self.classes[name].heads), name == stated))

    def dense_of(self, architecture: str) -> str | None:
        return self.classes[architecture].dense or self.pooler

    def heads_held(self, stored: Collection[str], stated: str | None, where: str) -> tuple[str, ...]:
        """What the stated class needs and every other known head that a file holds.

        Published folders hold more than they state: bert-base-uncased says BertForMaskedLM and has a pooler and the
        next sentence head as well. `stored` are canonical names; whether each part is whole is checked later.
        """
        heads = list(self.classes[stated or self.bare].heads)
        linears = Counter(parts.get("linear") for parts in self.heads.values())
        for head, parts in self.heads.items():
            names = {f"{theirs}.{kind}" for theirs in parts.values() for kind in _KINDS}
            names |= {self.masked_bias, f"{self.decoder}.weight"} if head == "masked" else set()
            if head in heads or not names & set(stored):
                continue
            if linears[linear := parts.get("linear")] == 1 or linear is None:
                heads.append(head)
            elif not any(self.heads[one].get("linear") == linear for one in heads):
                raise self._unclaimed(linear, stated, where)
        return tuple(heads)

    def _unclaimed(self, linear: str, stated: str | None, where: str) -> InputError:
        """Only the class tells apart heads that are stored under one name."""
        what = {"sequence": "texts", "token": "tokens", "choice": "choices"}
        sharing = [
            f'["{name}"] ({what[known.heads[0]]})'
            for name, known in self.classes.items()
            if len(known.heads) == 1 and self.heads[known.heads[0]].get("linear") == linear
        ]
        return InputError(
            f"{where}: it holds a classifier, and config.json says "
            f"{f'architecture {stated}' if stated else 'no architecture'}, so it is not known what it classifies. "
            f'Set "architectures" in config.json to {", ".join(sharing[:-1])} or {sharing[-1]}.'
        )

    # config.json

    def read_config(self, file: Path) -> "FolderConfig":
        if not file.exists():
            raise InputError(f"{file} is missing. A model folder has config.json, weights and a tokenizer.")
        said = read_object(file)
        self._check_model_type(said, file)
        values = {**self.fields.read(said, file), **self.shape}
        theirs = {ours: name for name, ours in self.fields.table.items()}
        width, heads = values.get("width", BertConfig.width), values.get("heads", BertConfig.heads)
        if width % heads:
            raise InputError(f"{file}: {theirs['width']} {width} is not divisible by {theirs['heads']} {heads}.")
        if self.after_padding:
            offset = values.get("pad_id", 0) + 1
            if values["max_length"] <= offset:
                raise InputError(f"{file}: of {values['max_length']} positions {offset} stand before the first token.")
            values |= {"position_offset": offset, "max_length": values["max_length"] - offset}
        try:
            config = BertConfig(**values)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        stated = said.get("architectures")
        architecture = None
        if isinstance(stated, list) and stated:
            architecture = str(stated[0])
            self.check_architecture(architecture, str(file))
        labels, notes = read_labels(file, said)
        if twice := sorted(name for name, count in Counter(labels).items() if count > 1):
            notes.append(f"{file.name}: more than one label is called {listed(twice)}; only their ids tell them apart")
        if unknown := self.fields.unknown(said):
            notes.append(f"{file.name}: {listed(unknown)} mean nothing to qkv and change nothing here")
        return FolderConfig(config, architecture, labels, self.fields.kept(said), tuple(notes))

    def _check_model_type(self, said: Mapping[str, Any], file: Path) -> None:
        kind, stated = said.get("model_type"), said.get("architectures")
        is_like = isinstance(stated, list) and stated and str(stated[0]) in self.classes
        # the first folders of 2019 have no model_type; those of Google's own release have no architectures either
        if kind == self.name or (kind is None and (is_like or (not stated and "type_vocab_size" in said))):
            return
        what = f"model_type '{kind}'" if kind else "no model_type"
        raise InputError(
            f"{file} says {what}, where {self.about.en} belongs: model_type '{self.name}' ({', '.join(self.classes)}). "
            f"What it is and holds: qkv info {file.parent}"
        )

    def write_config(
        self, config: BertConfig, architecture: str, labels: Sequence[str], dtype: str, carried: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The fields of a config.json that transformers reads as this network."""
        values = asdict(config) | {
            "max_length": config.max_length + config.position_offset,
            "embedding_width": config.table_width,
            "groups": config.own_layers,
        }
        fields = {"architectures": [architecture], "model_type": self.name, "dtype": dtype} | self.fields.write(values)
        return dict(carried) | fields | write_labels(labels)


@dataclass(frozen=True)
class FolderConfig:
    config: BertConfig
    architecture: str | None  # as stated
    labels: tuple[str, ...] | None  # None when config.json has none
    carried: dict[str, Any]  # what a save should write back as it was
    notes: tuple[str, ...]


# --- What is in a folder, found out and checked by names and shapes before a weight is read.


@dataclass(frozen=True)
class Plan:
    like: BertLike
    stated: FolderConfig
    weights: Weights
    names: dict[str, StoredTensor]  # by canonical name
    skeleton: BertWithHeads  # on the meta device
    tensors: dict[str, tuple[str, ...]]  # the names that are used
    dense: str | None  # where the pooler's layer lies
    labels: tuple[str, ...]
    architecture: str
    tokenizer: Tokenizer
    sentence: SentenceFiles
    record: dict[str, Any]
    is_decoder_compared: bool  # False: a decoder is stored beside the token table, and nobody looked whether it differs
    notes: tuple[str, ...]


def make_plan(like: BertLike, folder: Path, compare: bool) -> Plan:
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
    heads = like.heads_held(names, stated.architecture, where)
    architecture = like.architecture_of(heads, stated.architecture)
    dense, notes = _dense_held(like, names, heads, architecture)
    repeated = stated.config.tied and f"{like.decoder}.weight" in names and like.token_table in names
    known = like.classes[architecture]
    config = replace(
        stated.config,
        tied=_settle_decoder(like, names, stated.config.tied, compare),
        dense_activation=known.activation,
        drops_before_dense=known.drops_before,
    )
    linears = [f"{like.heads[head]['linear']}.weight" for head in heads if head in TASK_HEADS]
    outputs = [names[linear].shape[0] for linear in linears if linear in names and len(names[linear].shape) == 2]
    # more layers than tensors are missing in any case, and need not be counted one by one
    tensors = like.tensors(config, heads, dense, min(config.own_layers, len(names) + 1))
    _check_names(like, stated, weights, names, tensors, heads)
    with torch.device("meta"), Undrawn():
        skeleton = BertWithHeads(config, heads, labels=max(outputs, default=2), pooler=dense is not None)
    _check_shapes(like, stated, weights, names, tensors, skeleton)

    labels = stated.labels if set(heads) & _LABELLED else ()
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
    ours = read_ours(folder)
    if ours.get("pooling") not in (None, *POOLINGS):
        raise InputError(
            f"{folder / OURS}: pooling is {ours['pooling']!r}, where one of {', '.join(POOLINGS)} belongs."
        )
    sentence = read_sentence(folder)
    if not (folder / MODULES).is_file():
        sentence = SentenceFiles(ours.get("pooling"), bool(ours.get("normalize")), ours.get("foreign_pooling"))
    return Plan(
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
        is_decoder_compared=compare or not repeated,
        notes=(*notes, *sentence.notes),
    )


def _dense_held(
    like: BertLike, names: dict[str, StoredTensor], heads: Collection[str], architecture: str
) -> tuple[str | None, list[str]]:
    """Where the pooler's layer lies, and a note of one that nothing reads; its tensors are taken out of the names."""
    bare = like.pooler if like.pooler and f"{like.pooler}.weight" in names else None
    if not set(heads) & READS_POOLED:
        return bare, []
    dense = like.dense_of(architecture)
    if bare is None or bare == dense:
        return dense, []
    for kind in _KINDS:
        names.pop(f"{bare}.{kind}", None)
    return dense, [f"the head reads {dense}, so {bare} is not used"]


def _settle_decoder(like: BertLike, names: dict[str, StoredTensor], tied: bool, compare: bool) -> bool:
    """Reduce the names that may repeat a tensor to those of the record; whether the decoder is the token table.

    As transformers 5 does it: a decoder stored beside the token table counts when it differs from it, whatever
    config.json says, and of two biases the decoder's is the one that is added.
    """
    if like.decoder_bias is not None and like.decoder_bias in names:
        names[like.masked_bias] = names.pop(like.decoder_bias)
    decoder, table = names.get(f"{like.decoder}.weight"), names.get(like.token_table)
    if not tied or decoder is None or table is None:
        return tied
    if compare and not same(decoder, table):
        return False
    del names[f"{like.decoder}.weight"]
    return True


def _check_names(
    like: BertLike,
    stated: FolderConfig,
    weights: Weights,
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
    weights: Weights,
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


# --- Load, save, describe.


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
    named = set(like.classes[architecture].heads) & _LABELLED
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
    shown = shown_facts(path, "bert") | {
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
        shown,
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
