"""The Transformer (Vaswani et al. 2017) without torch: its sizes, the parameters of such a network, and folders.

Folders of translation models trained here are checked by names and shapes and described: a Transformer, or a recurrent
encoder-decoder (models/seq2seq). folder.py says what is in them, opens and saves them.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from qkv.config import apply_preset, check_known, check_least, check_shares, merge
from qkv.errors import InputError, listed
from qkv.files import read_object
from qkv.models.family import ATTENDS, RECURS, SHOWS_LAYERS, TRANSLATES, Ability, Facts, Family
from qkv.models.folders.own import CONFIG, WEIGHTS, check_vocabulary, read_record, vocabulary_line, weights_line
from qkv.models.folders.weights import StoredTensor, check_sizes, join_scales, name_dtype, read_header
from qkv.models.seq2seq.config import Seq2SeqConfig, shapes_of_seq2seq
from qkv.nn.shapes import ACTIVATIONS, Shapes, block, norm, numbered, parts, table, word_scores
from qkv.report.bilingual import Phrase
from qkv.text.messages import translate
from qkv.text.tokenizer import Tokenizer

_NORMS, _POSITIONS = ("post", "pre"), ("sinusoidal", "halved")


@dataclass(frozen=True)
class TransformerConfig:
    vocabulary_size: int  # of the target
    source_vocabulary_size: int | None = None  # None: one vocabulary, and one table, for both
    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    heads: int = 8
    inner_width: int = 2_048
    max_length: int = 512  # of a text in tokens; the waves go on for ever, but what was learned does not
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation: str = "relu"
    norm: str = "post"  # or "pre"
    norm_epsilon: float = 1e-5
    positions: str = "sinusoidal"  # or "halved", as Marian has them
    scaled: bool = True  # embeddings × √D
    alignment_layer: int | None = None  # whose look at the source `step` gives; None: see `alignment_layer`

    def __post_init__(self) -> None:
        check_known(self, activation=ACTIVATIONS, norm=_NORMS, positions=_POSITIONS)
        check_least(self, "vocabulary_size", "source_vocabulary_size", "encoder_layers", "decoder_layers")
        check_least(self, "width", "heads", "inner_width", "max_length")
        if self.width % self.heads:
            raise InputError(f"width {self.width} is not divisible by {self.heads} heads.")
        if self.width % 2:
            raise InputError(f"width {self.width} is odd, and positions are pairs of sine and cosine.")
        check_shares(self, "dropout", "attention_dropout")
        if self.alignment_layer is not None and not 0 <= self.alignment_layer < self.decoder_layers:
            raise InputError(
                f"alignment_layer counts the decoder's layers, 0 to {self.decoder_layers - 1}; "
                f"{self.alignment_layer} is none of them."
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        return cls(**apply_preset(PRESETS, name, changes))


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"encoder_layers": 2, "decoder_layers": 2, "width": 128, "heads": 4, "inner_width": 512},
    "small": {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "heads": 4, "inner_width": 1_024},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "heads": 8, "inner_width": 2_048},
    "big": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "width": 1_024,
        "heads": 16,
        "inner_width": 4_096,
        "dropout": 0.3,
    },
}


def shapes_of_transformer(config: TransformerConfig) -> Shapes:
    """The parameters of `Transformer` (network.py)."""
    width, is_pre, source = config.width, config.norm == "pre", config.source_vocabulary_size
    last = norm(width) if is_pre else {}
    return parts(
        embedding=table(config.vocabulary_size, width),
        source_embedding={} if source is None else table(source, width),
        encoder=numbered([block(width, config.inner_width, is_pre)] * config.encoder_layers),
        decoder=numbered([block(width, config.inner_width, is_pre, asks_source=True)] * config.decoder_layers),
        encoder_norm=last,
        decoder_norm=last,
        words=word_scores(config.vocabulary_size, width, tied=True),
    )


# Folders of translation models

SIDES = ("source", "target")
ABOUT_TYPES = {
    "qkv-transformer": Phrase("a Transformer that translates (Vaswani et al. 2017)", "翻译用的 Transformer 模型"),
    "qkv-seq2seq": Phrase(
        "a recurrent encoder and decoder that translates", "翻译用的循环编码器—解码器（seq2seq）模型"
    ),
}
ABOUT = Phrase("a model that translates", "翻译模型")
_LONGEST = 512  # tokens of a text, where neither the record nor the network says


@dataclass(frozen=True)
class TranslationPlan:
    """The content of a folder, checked by names and shapes before weights are read."""

    path: Path
    config: TransformerConfig | Seq2SeqConfig
    record: dict[str, Any]
    source: Tokenizer
    target: Tokenizer  # the same object where they share one
    tensors: Mapping[str, StoredTensor]

    @property
    def is_recurrent(self) -> bool:
        return isinstance(self.config, Seq2SeqConfig)

    @property
    def aligns(self) -> bool:
        """Whether the model gives attention for alignments."""
        return not isinstance(self.config, Seq2SeqConfig) or self.config.context == "attention"

    @cached_property
    def max_length(self) -> int:
        """Tokens of a text, with its end token."""
        longest = self.record.get("max_length")
        return longest if isinstance(longest, int) else getattr(self.config, "max_length", _LONGEST)


def plan_translation(folder: Path, compare: bool) -> TranslationPlan:
    """Check a folder. `compare` changes nothing: no tensor is stored twice."""
    config, record = _sizes_of(folder), read_record(folder)
    source, target = _tokenizers_of(folder)
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{folder} has no weights: {WEIGHTS} is missing. Copy it there.")
    plan = TranslationPlan(folder, config, record, source, target, join_scales(read_header(folder / WEIGHTS)))
    check_sizes(asdict(config), plan.tensors, folder / CONFIG)
    rows = {"source": config.source_vocabulary_size or config.vocabulary_size, "target": config.vocabulary_size}
    for side, tokenizer in zip(SIDES, (source, target), strict=True):
        check_vocabulary(tokenizer, rows[side], f"{folder} ({side})")
    wanted = shapes_of_seq2seq(config) if isinstance(config, Seq2SeqConfig) else shapes_of_transformer(config)
    if different := set(wanted) ^ set(plan.tensors):
        raise InputError(f"{folder / WEIGHTS} and {CONFIG} do not go together: {listed(sorted(different))}.")
    for name, shape in wanted.items():
        if (stored := plan.tensors[name].shape) != shape:
            raise InputError(
                f"{folder / WEIGHTS}: {name} has the shape {list(stored)}, and {CONFIG} says {list(shape)}."
            )
    return plan


def _sizes_of(folder: Path) -> TransformerConfig | Seq2SeqConfig:
    table = read_object(folder / CONFIG)
    start = Seq2SeqConfig(1) if table.pop("model_type", None) == "qkv-seq2seq" else TransformerConfig(1)
    plain = {name: value for name, value in table.items() if value is not None}
    # None is a field's own default only where it says "not given"; the vocabulary has to be said
    if "vocabulary_size" not in plain:
        raise InputError(f"{folder / CONFIG} has no vocabulary_size.")
    return merge(start, plain, str(folder / CONFIG))


def _tokenizers_of(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    if (folder / SIDES[0]).is_dir():
        return Tokenizer.load(folder / SIDES[0]), Tokenizer.load(folder / SIDES[1])
    joint = Tokenizer.load(folder)
    return joint, joint


def _facts(plan: TranslationPlan) -> Facts:
    model_type = "qkv-seq2seq" if plan.is_recurrent else "qkv-transformer"
    document = {
        "path": str(plan.path),
        "model_type": model_type,
        "about": ABOUT_TYPES[model_type].en,
        "config": {name: value for name, value in asdict(plan.config).items() if value is not None},
        "languages": [plan.record.get("source_language"), plan.record.get("target_language")],
        "max_length": plan.record.get("max_length"),
        "parameters": sum(math.prod(tensor.shape) for tensor in plan.tensors.values()),
        "dtype": name_dtype(plan.tensors),
        "weight_bytes": (plan.path / WEIGHTS).stat().st_size,
        "vocabularies": [
            {name: getattr(one, name) for name in ("size", "kind", "lowercase", "segmenter")}
            for one in ([plan.source] if plan.source is plan.target else [plan.source, plan.target])
        ],
        "scores": plan.record.get("scores"),
        "record": plan.record,
    }
    if plan.is_recurrent:
        return translation_facts("seq2seq", plan.path, document, (*((ATTENDS,) if plan.aligns else ()), RECURS))
    return translation_facts("transformer", plan.path, document)


def translation_facts(
    family: str, path: Path, document: dict[str, Any], shown: tuple[Ability[Any], ...] = (ATTENDS, SHOWS_LAYERS)
) -> Facts:
    """The facts of any translation model: its document, and what look shows."""
    kind = "transformer" if SHOWS_LAYERS in shown else "seq2seq"
    return Facts(
        family,
        document["model_type"],
        path,
        ABOUT,
        kind,
        (TRANSLATES, *shown),
        document,
        record=document["record"],
        notes=tuple(document.get("notes", ())),
    )


def lines_of_translation(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What `qkv info` shows."""
    source, target = (language or "?" for language in facts["languages"])
    vocabularies = [vocabulary_line(one) for one in facts["vocabularies"]]
    sides = vocabularies if len(vocabularies) == 1 else [f"source {vocabularies[0]}; target {vocabularies[1]}"]
    longest = facts["max_length"]
    scores = [
        f"{score['bleu']:.2f} on {name} ({score['bleu_signature']})"
        for name, score in (facts["scores"] or {}).items()
        if "bleu" in score
    ]
    return [
        ("folder", facts["path"]),
        ("model", f"{facts['model_type']}: {translate(facts['about'])}"),
        ("languages", f"{source} → {target}" if any(facts["languages"]) else ""),
        ("sizes", ", ".join(f"{name} {value}" for name, value in facts["config"].items())),
        ("longest text", f"{longest} tokens" if longest else ""),
        ("parameters", f"{facts['parameters']:,}"),
        ("weights", weights_line(facts) if "dtype" in facts else ""),
        ("vocabulary", sides[0]),
        ("BLEU", "; ".join(scores)),
        ("licence", facts["licence"] or ""),
        ("for", f"qkv translate {facts['path']} TEXT"),
    ]


TRANSFORMER = Family("transformer", ("qkv-transformer",), ABOUT, plan_translation, _facts, lines_of_translation)
SEQ2SEQ = Family("seq2seq", ("qkv-seq2seq",), ABOUT, plan_translation, _facts, lines_of_translation)
