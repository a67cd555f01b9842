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
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.config import merge
from qkv.data.pairs.batching import Languages
from qkv.errors import InputError, reading
from qkv.files import read_object, to_json
from qkv.models.bert.folder import CARD
from qkv.models.bert.keys import listed
from qkv.models.bert.plan import FORMAT, check_vocabulary
from qkv.models.folders.card import Card, write_card
from qkv.models.folders.own import CONFIG, OURS, TRANSLATORS, WEIGHTS, model_type_of, write_folder
from qkv.models.folders.weights import read_header
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.marian import MODEL_TYPE as MARIAN
from qkv.models.transformer.marian import load_marian
from qkv.models.transformer.network import Transformer, TransformerConfig
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
        record = _record(folder)
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
    config, record = _sizes_of(folder), _record(folder)
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


def _record(folder: Path) -> dict[str, Any]:
    ours: dict[str, Any] = read_object(folder / OURS) if (folder / OURS).is_file() else {"format": FORMAT}
    if not isinstance(ours.get("format"), int) or ours["format"] > FORMAT:
        raise InputError(
            f"{folder / OURS} has format {ours.get('format')!r}; this qkv reads up to {FORMAT}. It was written by a "
            "newer qkv: upgrade, or delete the file to load the model without it."
        )
    return dict(ours.get("record") or {})


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
