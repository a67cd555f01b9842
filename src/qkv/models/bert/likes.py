"""Networks of BERT's kind, as transformers calls their parts: a record of names for each family.

A record (`BertLike`) says what transformers calls things: fields of config.json, tensors, heads, classes. It is read
from left to right to save and back to load. Names of tensors are written without the prefix (`bert.`, `roberta.`) that
every class but the bare one puts before the encoder's. BERT's own is at the end of the file; those of its relatives,
which take tables of it over, have a file each (models/roberta.py, …).

What this file does NOT do: check a folder (plan.py), read weights (folder.py), or compute anything (network.py).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import InputError, did_you_mean, listed
from qkv.files import read_object
from qkv.models.bert.config import BertConfig, is_projected
from qkv.models.folders.fields import NEUTRAL, Fields, read_labels, write_labels
from qkv.report.bilingual import Phrase

WEIGHT_AND_BIAS = ("weight", "bias")
_TABLES = ("embedding.token", "embedding.segment", "embedding.position", "embedding.task")
"""Parts of an encoder that have a weight and no bias."""
_OLDER_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # from TensorFlow


class Architecture(NamedTuple):
    """The heads of a class of transformers, and how a user loads it there."""

    heads: tuple[str, ...]
    pooler: bool
    auto_class: str
    pipeline: str | None  # the hub's name for the task
    # the layer between a row's first vector and its head, our pooler: its name in this class if it is not stored as
    # a pooler, and its activation
    dense: str | None = None
    activation: str = "tanh"
    drops_before: bool = False  # dropout comes before it, too


def usual_classes(name: str, pooler: bool = True, **changes: Architecture) -> dict[str, Architecture]:
    """The classes that every family has, by their suffixes; `changes` adds or replaces some."""
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


def classes_with_next_sentence(name: str) -> dict[str, Architecture]:
    return usual_classes(
        name,
        ForPreTraining=Architecture(("masked", "next_sentence"), True, "AutoModelForPreTraining", "fill-mask"),
        ForNextSentencePrediction=Architecture(("next_sentence",), True, "AutoModelForNextSentencePrediction", None),
    )


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
        """Every parameter of a network with these heads, and the stored tensors that are concatenated to it."""
        absent = {
            "embedding.segment": not config.segments,
            "embedding.task": not (config.adds_task_type and config.task_types),
            "embedding.project": not is_projected(config),
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
            for kind in (WEIGHT_AND_BIAS[:1] if ours.removeprefix("encoder.") in _TABLES else WEIGHT_AND_BIAS)
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
        """A stored name in the form of the record: no prefix, current suffixes."""
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
        """The heads of the stated class, and all other known heads in the file.

        Published folders hold more than they state: bert-base-uncased says BertForMaskedLM and has a pooler and the
        next sentence head as well. `stored` are canonical names; whether each part is whole is checked later.
        """
        heads = list(self.classes[stated or self.bare].heads)
        linears = Counter(parts.get("linear") for parts in self.heads.values())
        for head, parts in self.heads.items():
            names = {f"{theirs}.{kind}" for theirs in parts.values() for kind in WEIGHT_AND_BIAS}
            names |= {self.masked_bias, f"{self.decoder}.weight"} if head == "masked" else set()
            if head in heads or not names & set(stored):
                continue
            if linears[linear := parts.get("linear")] == 1 or linear is None:
                heads.append(head)
            elif not any(self.heads[one].get("linear") == linear for one in heads):
                raise self._unclaimed(linear, stated, where)
        return tuple(heads)

    def _unclaimed(self, linear: str, stated: str | None, where: str) -> InputError:
        """Heads stored under the same name can be told apart only by the class."""
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


# BERT's own names. One of our attention's products is theirs of query, key and value, which lie one under the other.

SIZES: dict[str, str] = {
    "vocab_size": "vocabulary_size",
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "heads",
    "intermediate_size": "inner_width",
    "max_position_embeddings": "max_length",
    "type_vocab_size": "segments",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "head_dropout",
    "hidden_act": "activation",
    "layer_norm_eps": "norm_epsilon",
    "initializer_range": "initial_std",
    "tie_word_embeddings": "tied",
    "pad_token_id": "pad_id",
}
FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "position_embedding_type": (("absolute", None), "qkv's BERT has learned absolute positions"),
    "is_decoder": ((False, None), "qkv's BERT reads in both directions"),
    "add_cross_attention": ((False, None), "qkv's BERT is an encoder alone"),
    "is_encoder_decoder": ((False, None), "qkv's BERT is an encoder alone"),
    "pruned_heads": (({}, None), "qkv's BERT keeps all heads of a layer"),
    "quantization_config": ((None,), "qkv reads float weights"),
    "per_layer_config": ((None, {}), "qkv's BERT has layers of one shape"),
}
_POOLERS = frozenset(
    {
        *("directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
        *("pooler_size_per_head", "pooler_type"),
    }
)
"""Of Google, for a pooler that was never used."""

_LAYER = "encoder.layer.{i}."
KEYS: dict[str, tuple[str, ...]] = {
    "embedding.token": ("embeddings.word_embeddings",),
    "embedding.segment": ("embeddings.token_type_embeddings",),
    "embedding.position": ("embeddings.position_embeddings",),
    "embedding.norm": ("embeddings.LayerNorm",),
    "blocks.{i}.attention.qkv": (
        f"{_LAYER}attention.self.query",
        f"{_LAYER}attention.self.key",
        f"{_LAYER}attention.self.value",
    ),
    "blocks.{i}.attention.out": (f"{_LAYER}attention.output.dense",),
    "blocks.{i}.attention_norm": (f"{_LAYER}attention.output.LayerNorm",),
    "blocks.{i}.feed_forward.up": (f"{_LAYER}intermediate.dense",),
    "blocks.{i}.feed_forward.down": (f"{_LAYER}output.dense",),
    "blocks.{i}.feed_forward_norm": (f"{_LAYER}output.LayerNorm",),
}
HEAD_KEYS: dict[str, dict[str, str]] = {
    "masked": {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"},
    "next_sentence": {"linear": "cls.seq_relationship"},
    "sequence": {"linear": "classifier"},
    "token": {"linear": "classifier"},
    "choice": {"linear": "classifier"},
    "span": {"linear": "qa_outputs"},
}

BERT_NAMES = BertLike(
    name="bert",
    title="BERT",
    prefix="bert.",
    fields=Fields(SIZES, fixed=FIXED, neutral=NEUTRAL | _POOLERS),
    classes=classes_with_next_sentence("Bert"),
    keys=KEYS,
    heads=HEAD_KEYS,
    masked_bias="cls.predictions.bias",
    decoder="cls.predictions.decoder",
    decoder_bias="cls.predictions.decoder.bias",
)
