"""qkv info, for models that translate."""

from collections.abc import Mapping
from typing import Any

from qkv.cli.info_data import vocabulary_line


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
