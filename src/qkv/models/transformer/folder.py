"""Folders of translation models trained here, in the manner of the others (models/folders/own.py), with a tokenizer or
two.

    config.json          model_type "qkv-transformer" or "qkv-seq2seq", and the sizes
    model.safetensors    the weights
    qkv.json             the record of the training: languages, longest text, settings
    README.md            a card in two languages
    tokenizer.json …     of both sides, where they share one; else source/ and target/ have one each

What this file does NOT do: read the folders of others; marian.py does.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from qkv.models.folders.card import Card, write_card
from qkv.models.folders.codec import (
    CARD,
    CONFIG,
    FORMAT,
    OURS,
    TRANSLATORS,
    WEIGHTS,
    check_vocabulary,
    model_type_of,
    read_record,
    write_folder,
)
from qkv.models.folders.info import shown_facts, vocabulary_line
from qkv.models.folders.weights import read_header
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.marian import MODEL_TYPE as MARIAN
from qkv.models.transformer.marian import load_marian
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu.precision import check_precision, set_precision
from qkv.report.bilingual import Phrase
from qkv.search.options import GenerateConfig
from qkv.text.sentencepiece import MarianTokenizer
from qkv.text.tokenizer import Tokenizer

_SIDES = ("source", "target")
_ABOUT = {
    "qkv-transformer": ("a Transformer that translates (Vaswani et al. 2017)", "翻译用的 Transformer 模型"),
    "qkv-seq2seq": ("a recurrent encoder and decoder that translates", "翻译用的循环编码器—解码器（seq2seq）模型"),
}
"""Every `model_type` that a folder of a translation model may have."""


class TranslationFolder(NamedTuple):
    network: Transformer | Seq2Seq
    languages: Languages
    max_length: int  # tokens of a text, the mark at its end among them
    record: dict[str, Any]
    path: Path


def is_translation(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a model that translates, ours or another's."""
    return model_type_of(path) in TRANSLATORS


def save_translation(
    path: str | os.PathLike[str],
    network: Transformer | Seq2Seq,
    source: Tokenizer,
    target: Tokenizer,
    record: Mapping[str, Any],
) -> Path:
    """Write a folder, whole or not at all; return its path. The same object for both sides is one vocabulary."""
    folder = Path(os.path.expanduser(path))
    model_type = "qkv-transformer" if isinstance(network, Transformer) else "qkv-seq2seq"
    sizes = asdict(network.config)
    files = {
        CONFIG: to_json({"model_type": model_type, **sizes}),
        OURS: to_json({"format": FORMAT, "record": dict(record)}),
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


def load_translation(path: str | os.PathLike[str]) -> TranslationFolder:
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        if not (folder / CONFIG).is_file():
            held = listed(entry.name for entry in folder.iterdir()) if folder.is_dir() else ""
            rest = f"no {CONFIG}, only {held}" if held else f"no {CONFIG}"
            raise InputError(f"{folder} is not a model folder: it has {rest}.")
        model_type = model_type_of(folder)
        if model_type not in _ABOUT:
            raise InputError(
                f"{folder} holds a model of type {model_type}, which does not translate. Give a run of qkv train "
                "translate, or the folder of an OPUS-MT model."
            )
        config = _sizes_of(folder)
        record = read_record(folder)
        source, target = tokenizers_of(folder)
        if not (folder / WEIGHTS).is_file():
            raise InputError(f"{folder} has no weights: {WEIGHTS} is missing. Copy it there.")
        tensors = {name: tensor.mapped() for name, tensor in read_header(folder / WEIGHTS).items()}
    _check_vocabularies(folder, config, source, target)
    network: Transformer | Seq2Seq
    network = Transformer(config) if isinstance(config, TransformerConfig) else Seq2Seq(config)
    wanted = {name: parameter.shape for name, parameter in network.named_parameters()}
    if different := set(wanted) ^ set(tensors):
        raise InputError(f"{folder / WEIGHTS} and {CONFIG} do not go together: {listed(sorted(different))}.")
    for name, shape in wanted.items():
        if tensors[name].shape != shape:
            raise InputError(
                f"{folder / WEIGHTS}: {name} has the shape {list(tensors[name].shape)}, and {CONFIG} says "
                f"{list(shape)}."
            )
    network.load_state_dict({name: tensor.to(torch.float32) for name, tensor in tensors.items()}, strict=False)
    longest = record.get("max_length")
    longest = longest if isinstance(longest, int) else getattr(config, "max_length", 512)
    return TranslationFolder(network.eval(), Languages.of(source, target), longest, record, folder)


def _sizes_of(folder: Path) -> TransformerConfig | Seq2SeqConfig:
    table = read_object(folder / CONFIG)
    model_type = table.pop("model_type", None)
    plain = {name: value for name, value in table.items() if value is not None}
    start = TransformerConfig(1) if model_type == "qkv-transformer" else Seq2SeqConfig(1)
    # None is a field's own default only where it says "not given"; the vocabulary has to be said
    if "vocabulary_size" not in plain:
        raise InputError(f"{folder / CONFIG} has no vocabulary_size.")
    return merge(start, plain, str(folder / CONFIG))


def tokenizers_of(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Of source and target; the same object where they share one."""
    if (folder / _SIDES[0]).is_dir():
        return Tokenizer.load(folder / _SIDES[0]), Tokenizer.load(folder / _SIDES[1])
    joint = Tokenizer.load(folder)
    return joint, joint


def describe_translation(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a folder holds, for people to look at and programs to read. Of the weights of ours only the header is read;
    those of OPUS-MT are loaded."""
    folder = Path(os.path.expanduser(path))
    model_type = str(model_type_of(folder))
    if model_type == MARIAN:
        return _describe_marian(folder)
    config, record = _sizes_of(folder), read_record(folder)
    source, target = tokenizers_of(folder)
    weights = read_header(folder / WEIGHTS)
    return {
        "path": str(folder),
        "model_type": model_type,
        "about": _ABOUT[model_type][0],
        "config": {name: value for name, value in asdict(config).items() if value is not None},
        "languages": [record.get("source_language"), record.get("target_language")],
        "max_length": record.get("max_length"),
        "parameters": sum(tensor.mapped().numel() for tensor in weights.values()),
        "vocabularies": [
            {name: getattr(one, name) for name in ("size", "kind", "lowercase", "segmenter")}
            for one in ([source] if source is target else [source, target])
        ],
        "scores": record.get("scores"),
        "record": record,
    }


def _describe_marian(folder: Path) -> dict[str, Any]:
    found = load_marian(folder)
    vocabulary = {"size": found.model.config.vocabulary_size, "kind": "sentencepiece"}
    return {
        "path": str(folder),
        "model_type": MARIAN,
        "about": "a Transformer that translates, as OPUS-MT publishes them",
        "config": {name: value for name, value in asdict(found.model.config).items() if value is not None},
        "languages": [None, None],
        "max_length": found.model.config.max_length,
        "parameters": sum(parameter.numel() for parameter in found.model.parameters()),
        "vocabularies": [vocabulary | {"lowercase": False, "segmenter": None}],
        "scores": None,
        "record": {},
        "notes": list(found.notes),
    }


def _check_vocabularies(
    folder: Path, config: TransformerConfig | Seq2SeqConfig, source: Tokenizer, target: Tokenizer
) -> None:
    rows = {"source": config.vocabulary_size, "target": config.vocabulary_size}
    if config.source_vocabulary_size is not None:
        rows["source"] = config.source_vocabulary_size
    for side, tokenizer in (("source", source), ("target", target)):
        check_vocabulary(tokenizer, rows[side], f"{folder} ({side})")


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


def lines_of_translation(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
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
        ("model", f"{facts['model_type']}: {facts['about']}"),
        ("languages", f"{source} → {target}" if any(facts["languages"]) else ""),
        ("sizes", ", ".join(f"{name} {value}" for name, value in facts["config"].items())),
        ("longest text", f"{longest} tokens" if longest else ""),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", sides[0]),
        ("BLEU", "; ".join(scores)),
        ("licence", facts["licence"] or ""),
        ("for", f"qkv translate {facts['path']} TEXT"),
    ]


# --- The families: what is asked of a folder that translates from outside.

_ABOUT_FAMILY = Phrase("a model that translates", "翻译模型")


def _facts(family: str, path: Path) -> Facts:
    document = describe_translation(path)
    recurrent = document["config"].get("context") is not None
    kind = "seq2seq" if family == "seq2seq" else "transformer"
    shown: tuple[Ability[Any], ...] = (ATTENDS, SHOWS_LAYERS) if kind == "transformer" else (RECURS,)
    if recurrent and document["config"]["context"] == "attention":
        shown = (ATTENDS, *shown)
    return Facts(
        family,
        document["model_type"],
        path,
        _ABOUT_FAMILY,
        kind,
        (TRANSLATES, *shown),
        document,
        record=document["record"],
        notes=tuple(document.get("notes", ())),
        shown=shown_facts(path, kind),
    )


def _open(family: str, path: Path, loading: Loading) -> Opened:
    facts = _facts(family, path)
    check_precision(loading.precision)
    if loading.precision != "fp32" and loading.device.type != "cpu":
        raise InputError(
            f"{loading.precision} is for a CPU, not for {loading.device}. Use device cpu, or precision fp32."
        )
    translates, notes = _marian(path) if family == "marian" else (_ours(path), ())
    network = translates.network.to(loading.device)
    if isinstance(network, Transformer):
        set_precision(network, loading.precision)
    elif loading.precision != "fp32":
        raise InputError(
            f"Precision {loading.precision} is for the Transformer, and {path} is a recurrent network. Use fp32."
        )
    parts: dict[Ability[Any], Callable[[], Any]] = {one: lambda: network for one in facts.abilities}
    parts[TRANSLATES] = lambda: translates
    return Opened(facts, translates.languages.source, network.config, notes=notes, parts=parts)


def _ours(path: Path) -> Translates:
    found = load_translation(path)
    record = found.record
    made_with = record.get("config", {}).get("decoding", {})
    return Translates(
        found.network,
        found.languages,
        found.max_length,
        GenerateConfig.of({name: value for name, value in made_with.items() if value is not None}, str(path)),
        str(record.get("source_language", "")),
        str(record.get("target_language", "")),
        isinstance(found.network, Transformer) or found.network.config.context == "attention",
        tuple(map(str, record.get("train_sha256", ()))),
    )


def _marian(path: Path) -> tuple[Translates, tuple[str, ...]]:
    found = load_marian(path)
    source, target = MarianTokenizer.load(path, "source"), MarianTokenizer.load(path, "target")
    languages = Languages(source, target, found.begin_id, found.end_id, found.end_id, found.banned)
    longest = found.model.config.max_length
    decoding = GenerateConfig(
        beams=found.beams or 4, max_length=min(longest, found.longest or longest), renormalise=found.renormalise
    )
    return Translates(found.model, languages, longest, decoding), found.notes


def _family(name: str, model_type: str) -> Family:
    return Family(name, (model_type,), _ABOUT_FAMILY, partial(_facts, name), partial(_open, name), lines_of_translation)


TRANSFORMER, SEQ2SEQ, MARIAN_FAMILY = (
    _family("transformer", "qkv-transformer"),
    _family("seq2seq", "qkv-seq2seq"),
    _family("marian", MARIAN),
)
