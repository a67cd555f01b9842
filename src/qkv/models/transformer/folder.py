"""Folders of translation models trained here (models/folders/own.py), opened and saved, with one tokenizer or two: the
Transformer, and recurrent encoder-decoders (models/seq2seq).

    config.json          model_type "qkv-transformer" or "qkv-seq2seq", and the sizes
    model.safetensors    the weights
    qkv.json             the record of the training: languages, longest text, settings
    README.md            a card in two languages
    tokenizer.json …     of both sides, where they share one; else source/ and target/ have one each

config.py checks them. Folders of OPUS-MT, which marian.py checks, are opened here too; they are not written.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.data.pairs.batching import Languages, SentenceCase
from qkv.errors import InputError, reading
from qkv.files import to_json
from qkv.models.encoder import SkipInit
from qkv.models.family import TRANSLATES, Ability, Facts, Loading, Opened, Translates
from qkv.models.folders.own import CARD, CONFIG, FOLDER_FORMAT, OURS, Card, write_card, write_folder
from qkv.models.folders.weights import WeightFiles, gather
from qkv.models.seq2seq.network import Seq2Seq, Seq2SeqConfig
from qkv.models.transformer.config import ABOUT_TYPES, SIDES, TranslationPlan
from qkv.models.transformer.marian import POSITIONS, MarianPlan, plan_marian
from qkv.models.transformer.network import Transformer, TransformerConfig
from qkv.nn.cpu.precision import check_precision, set_precision
from qkv.nn.position import HalvedSinusoidalPositions
from qkv.search.options import GenerateConfig
from qkv.text.sentence_case import SENTENCE
from qkv.text.sentencepiece import MarianTokenizer
from qkv.text.tokenizer import Tokenizer

# Opening


def open_translation(plan: TranslationPlan, facts: Facts, loading: Loading) -> Opened:
    return _opened(facts, loading, lambda: _translates(plan), plan.source)


def _translates(plan: TranslationPlan) -> Translates:
    config, record = plan.config, plan.record
    network = Seq2Seq(config) if isinstance(config, Seq2SeqConfig) else Transformer(config)
    with reading(plan.path):
        state = {name: tensor.mapped().to(torch.float32) for name, tensor in plan.tensors.items()}
    network.load_state_dict(state, strict=False)
    made_with = record.get("config", {}).get("decoding", {})
    languages = Languages.of(plan.source, plan.target)
    if record.get("source_case") == SENTENCE:
        languages = languages._replace(source=SentenceCase(plan.source))
    return Translates(
        network.eval(),
        languages,
        plan.max_length,
        GenerateConfig.of({name: value for name, value in made_with.items() if value is not None}, str(plan.path)),
        str(record.get("source_language", "")),
        str(record.get("target_language", "")),
        plan.aligns,
        tuple(map(str, record.get("train_sha256", ()))),
    )


def _opened(
    facts: Facts, loading: Loading, load: Callable[[], Translates], tokenizer: Tokenizer | None = None
) -> Opened:
    """An opened translation model; without `tokenizer`, the source's is what reads its texts."""
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
    return Opened(facts, tokenizer or translates.languages.source, network.config, notes=facts.notes, parts=parts)


# OPUS-MT


class Marian(NamedTuple):
    """A loaded network, and the decoding settings of its folder (`MarianDecoding`)."""

    model: Transformer
    begin_id: int
    end_id: int
    pad_id: int
    banned: tuple[int, ...]  # tokens that are never to be written, the padding among them
    beams: int | None  # what its makers decode with
    longest: int | None  # tokens that they write at most, the end among them
    renormalise: bool  # the probabilities of what may be written add up to 1 again, whatever the banned ones had
    notes: tuple[str, ...]


def load_marian(path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32) -> Marian:
    """The network of a folder and how to decode with it, without its tokenizers. Weights stored in another dtype are
    converted; others are a private mapping of the file, which must not be written over in place while the model lives.
    """
    folder = Path(os.path.expanduser(path))
    with reading(folder):
        return _load_planned(plan_marian(folder, compare=True), dtype)


def _load_planned(plan: MarianPlan, dtype: torch.dtype) -> Marian:
    _check_positions(plan.weights, plan.config)
    state = {
        ours: gather([plan.names[name] for name in plan.tensors[ours]], dtype).view(shape)
        for ours, shape in plan.shapes.items()
    }
    with torch.device("meta"), SkipInit():
        model = Transformer(plan.config)
    model.load_state_dict(state, strict=True, assign=True)
    return Marian(model.eval(), *plan.decoding)


def _check_positions(weights: WeightFiles, config: TransformerConfig) -> None:
    """Check that stored positions, as in older files, are the sinusoids that are computed here."""
    for name in POSITIONS:
        if name in weights.tensors:
            stored = weights.tensors[name].mapped().float()
            waves = HalvedSinusoidalPositions(config.width)(torch.arange(stored.size(0)))
            # half precision is known to 3 digits
            if stored.shape != waves.shape or not torch.allclose(stored, waves, atol=2e-3):
                raise InputError(
                    f"{weights.source}: {name} is not the table of sines and cosines that Marian's models have. This "
                    "folder cannot be loaded."
                )


def open_marian(plan: MarianPlan, facts: Facts, loading: Loading) -> Opened:
    found = _load_planned(plan, torch.float32)
    return _opened(facts, loading, lambda: _translates_marian(plan.path, found))


def _translates_marian(path: Path, found: Marian) -> Translates:
    source, target = MarianTokenizer.load(path, "source"), MarianTokenizer.load(path, "target")
    languages = Languages(source, target, found.begin_id, found.end_id, found.end_id, found.banned)
    longest = found.model.config.max_length
    decoding = GenerateConfig(
        beams=found.beams or 4, max_length=min(longest, found.longest or longest), renormalise=found.renormalise
    )
    return Translates(found.model, languages, longest, decoding)


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
        for side, tokenizer in zip(SIDES, (source, target), strict=True):
            files |= {f"{side}/{name}": text for name, text in tokenizer.files().items()}
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in network.named_parameters()}
    write_folder(folder, files, stored, below=SIDES)
    return folder


def _card(name: str, model_type: str, network: Transformer | Seq2Seq, record: Mapping[str, Any]) -> str:
    english, chinese = ABOUT_TYPES[model_type]
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
