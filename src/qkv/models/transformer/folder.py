"""Folders of translation models trained here (models/folders/own.py), with one tokenizer or two: the Transformer, and
recurrent encoder-decoders (models/seq2seq).

    config.json          model_type "qkv-transformer" or "qkv-seq2seq", and the sizes
    model.safetensors    the weights
    qkv.json             the record of the training: languages, longest text, settings
    README.md            a card in two languages
    tokenizer.json …     of both sides, where they share one; else source/ and target/ have one each

What this file does NOT do: read the folders of others; marian.py does.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from qkv.config import merge
from qkv.data.pairs.batching import Languages
from qkv.errors import InputError, listed, reading
from qkv.files import read_object, to_json
from qkv.models.family import (
    ATTENDS,
    RECURS,
    SHOWS_LAYERS,
    TRANSLATES,
    Ability,
    Facts,
    Family,
    Loading,
    Opened,
    Translates,
)
from qkv.models.folders.own import (
    CARD,
    CONFIG,
    FOLDER_FORMAT,
    OURS,
    WEIGHTS,
    Card,
    check_vocabulary,
    read_record,
    vocabulary_line,
    weights_line,
    write_card,
    write_folder,
)
from qkv.models.folders.weights import SkipInit, StoredTensor, check_sizes, join_scales, name_dtype, read_header
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu.precision import check_precision, set_precision
from qkv.report.bilingual import Phrase
from qkv.search.options import GenerateConfig
from qkv.text.messages import translate
from qkv.text.tokenizer import Tokenizer

_SIDES = ("source", "target")
_ABOUT = {
    "qkv-transformer": Phrase("a Transformer that translates (Vaswani et al. 2017)", "翻译用的 Transformer 模型"),
    "qkv-seq2seq": Phrase(
        "a recurrent encoder and decoder that translates", "翻译用的循环编码器—解码器（seq2seq）模型"
    ),
}
ABOUT = Phrase("a model that translates", "翻译模型")
_LONGEST = 512  # tokens of a text, where neither the record nor the network says


@dataclass(frozen=True)
class _Plan:
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

    def network(self) -> Transformer | Seq2Seq:
        return Seq2Seq(self.config) if isinstance(self.config, Seq2SeqConfig) else Transformer(self.config)


def _make_plan(folder: Path) -> _Plan:
    config, record = _sizes_of(folder), read_record(folder)
    source, target = _tokenizers_of(folder)
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{folder} has no weights: {WEIGHTS} is missing. Copy it there.")
    plan = _Plan(folder, config, record, source, target, join_scales(read_header(folder / WEIGHTS)))
    check_sizes(asdict(config), plan.tensors, folder / CONFIG)
    rows = {"source": config.source_vocabulary_size or config.vocabulary_size, "target": config.vocabulary_size}
    for side, tokenizer in zip(_SIDES, (source, target), strict=True):
        check_vocabulary(tokenizer, rows[side], f"{folder} ({side})")
    with torch.device("meta"), SkipInit():
        wanted = {name: tuple(parameter.shape) for name, parameter in plan.network().named_parameters()}
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
    if (folder / _SIDES[0]).is_dir():
        return Tokenizer.load(folder / _SIDES[0]), Tokenizer.load(folder / _SIDES[1])
    joint = Tokenizer.load(folder)
    return joint, joint


def describe_translation(path: Path) -> Facts:
    with reading(path):
        return _facts(_make_plan(path))


def _facts(plan: _Plan) -> Facts:
    model_type = "qkv-seq2seq" if plan.is_recurrent else "qkv-transformer"
    document = {
        "path": str(plan.path),
        "model_type": model_type,
        "about": _ABOUT[model_type].en,
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


# Opening


def open_translation(path: Path, loading: Loading) -> Opened:
    with reading(path):
        plan = _make_plan(path)
        return make_opened(_facts(plan), loading, partial(_translates, plan))


def _translates(plan: _Plan) -> Translates:
    network, record = plan.network(), plan.record
    with reading(plan.path):
        state = {name: tensor.mapped().to(torch.float32) for name, tensor in plan.tensors.items()}
    network.load_state_dict(state, strict=False)
    made_with = record.get("config", {}).get("decoding", {})
    return Translates(
        network.eval(),
        Languages.of(plan.source, plan.target),
        plan.max_length,
        GenerateConfig.of({name: value for name, value in made_with.items() if value is not None}, str(plan.path)),
        str(record.get("source_language", "")),
        str(record.get("target_language", "")),
        plan.aligns,
        tuple(map(str, record.get("train_sha256", ()))),
    )


def make_opened(facts: Facts, loading: Loading, load: Callable[[], Translates]) -> Opened:
    """An opened translation model."""
    precision, device = loading.precision, loading.device
    check_precision(precision)
    if precision != "fp32" and device.type != "cpu":
        raise InputError(f"{precision} is for a CPU, not for {device}. Use device cpu, or precision fp32.")
    translates = load()
    network = translates.network.to(device)
    if isinstance(network, Transformer):
        set_precision(network, precision)
    elif precision != "fp32":
        raise InputError(
            f"Precision {precision} is for the Transformer, and {facts.path} is a recurrent network. Use fp32."
        )
    parts: dict[Ability[Any], Callable[[], Any]] = {one: lambda: network for one in facts.abilities}
    parts[TRANSLATES] = lambda: translates
    return Opened(facts, translates.languages.source, network.config, notes=facts.notes, parts=parts)


# Saving


def save_translation(
    path: str | os.PathLike[str],
    network: Transformer | Seq2Seq,
    source: Tokenizer,
    target: Tokenizer,
    record: Mapping[str, Any],
) -> Path:
    """Write a folder, atomically; return its path. The same tokenizer object on both sides is one vocabulary."""
    folder = Path(os.path.expanduser(path))
    model_type = "qkv-transformer" if isinstance(network, Transformer) else "qkv-seq2seq"
    files = {
        CONFIG: to_json({"model_type": model_type, **asdict(network.config)}),
        OURS: to_json({"format": FOLDER_FORMAT, "record": dict(record)}),
        CARD: _card(folder.resolve().name, model_type, network, record),
    }
    if source is target:
        files |= source.files()
    else:
        for side, tokenizer in zip(_SIDES, (source, target), strict=True):
            files |= {f"{side}/{name}": text for name, text in tokenizer.files().items()}
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in network.named_parameters()}
    write_folder(folder, files, stored, below=_SIDES)
    return folder


def _card(name: str, model_type: str, network: Transformer | Seq2Seq, record: Mapping[str, Any]) -> str:
    english, chinese = _ABOUT[model_type]
    parameters = sum(parameter.numel() for parameter in network.parameters())
    way = f"{record.get('source_language') or '?'} → {record.get('target_language') or '?'}"
    scores = [
        f"{title}: {found[f'{key}_signature']} = {found[key]:.2f} ({found['pairs']:,} pairs)"
        for title, found in (record.get("scores") or {}).items()
        for key in ("bleu", "chrf")
        if key in found
    ]
    sizes = asdict(network.config)
    return write_card(
        Card(
            name,
            (f"{way}: {english}. {parameters:,} parameters.", f"{way}：{chinese}，{parameters:,} 个参数。"),
            tags=["translation"],
            pipeline="translation",
            sizes={key: value for key, value in sizes.items() if isinstance(value, str | int | float)},
            notes=scores,
            command="qkv translate path/to/this/folder TEXT",
        )
    )


TRANSFORMER = Family(
    "transformer", ("qkv-transformer",), ABOUT, describe_translation, open_translation, lines_of_translation
)
SEQ2SEQ = Family("seq2seq", ("qkv-seq2seq",), ABOUT, describe_translation, open_translation, lines_of_translation)
