"""What `qkv info` and `qkv look` say of a folder, as far as it is the same for several families."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qkv.files import read_object
from qkv.models.folders.codec import CONFIG, OURS
from qkv.models.folders.weights import open_weights

FACTS: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "encoder_layers", "layers"),
    "decoder_layers": ("decoder_layers",),
    "heads": ("num_attention_heads", "n_head", "encoder_attention_heads", "heads"),
    "width": ("hidden_size", "n_embd", "d_model", "width", "embedding_width"),
    "vocabulary": ("vocab_size", "vocabulary_size"),
    "positions": ("max_position_embeddings", "n_positions", "max_length"),
}
"""By fact, what config.json calls it; the first that is there and a number."""


def shown_facts(path: Path, kind: str) -> dict[str, int | str]:
    """Sizes of a model by names that all kinds share, from config.json and the headers of the weights; of a file of
    vectors how large it is."""
    if path.is_file():
        return {"bytes": path.stat().st_size}
    facts: dict[str, int | str] = {}
    config = read_object(path / CONFIG)
    shapes = [tensor.shape for tensor in open_weights(path, shapes_only=True).tensors.values()]
    for fact, names in FACTS.items():
        numbers = [config[name] for name in names if isinstance(config.get(name), int)]
        if numbers and not (fact == "positions" and kind in ("seq2seq", "reader")):
            facts[fact] = numbers[0]
    if isinstance(cell := config.get("cell", "lstm" if kind == "elmo" else None), str):
        facts["cell"] = cell
    if kind == "reader" and isinstance(made := config.get("kind"), str):
        facts["reader"] = made
    if shapes:
        facts["parameters"] = sum(math.prod(shape) for shape in shapes)
    record = read_object(path / OURS).get("record") if (path / OURS).is_file() else None
    told = record if isinstance(record, dict) else {}
    languages = {name: told.get(name) for name in ("source_language", "target_language")}
    return facts | {name: value for name, value in languages.items() if isinstance(value, str)}


def vocabulary_line(found: Mapping[str, Any]) -> str:
    chinese = f", Chinese by {found['segmenter']}" if found["segmenter"] else ""
    case = "lower case" if found["lowercase"] else "case kept"
    return f"{found['size']:,} tokens by {found['kind']}{chinese}, {case}"


OF_TEXTS = ("qkv embed TEXT --model {}", "qkv finetune TASK --model {} --train FILE --out RUN")
FOR = {
    **dict.fromkeys(("word2vec", "nnlm"), ("qkv similar WORD --model {}", *OF_TEXTS)),
    **dict.fromkeys(("rnnlm", "elmo"), OF_TEXTS),
    "reader": ("qkv predict {} TEXT",),
}
"""The verbs that take a folder of ours, by its model_type."""


def lines_of_ours(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    vocabulary, words = vocabulary_line(facts["vocabulary"]), facts["record"].get("words")
    return [
        ("folder", facts["path"]),
        ("model", f"{facts['model_type']}: {facts['about']}"),
        (
            "sizes",
            ", ".join(f"{name} {value}" for name, value in facts["config"].items() if not isinstance(value, dict)),
        ),
        ("features", _features(facts["config"].get("features"), facts["record"].get("mix"))),
        ("parameters", f"{facts['parameters']:,}"),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("vocabulary", vocabulary + ("" if words is None else f"; {words:,} words have a vector")),
        ("licence", facts["licence"] or ""),
        ("for", "; ".join(verb.format(facts["path"]) for verb in FOR.get(facts["model_type"], ()))),
    ]


def _features(sizes: dict[str, Any] | None, mix: dict[str, Any] | None) -> str:
    """What a reader stands on, if not on a table of vectors."""
    if not sizes:
        return ""
    text = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "model_type")
    shares = " ".join(f"{share:.2f}" for share in mix["shares"]) if mix else ""
    mixed = f"; its layers mixed {shares}, times {mix['gamma']:.2f}" if mix else ""
    return f"vectors of {sizes['model_type']} ({text}){mixed}"
