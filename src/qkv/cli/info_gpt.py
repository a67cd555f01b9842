"""qkv info, for folders of GPT and GPT-2."""

from collections.abc import Mapping
from typing import Any

from qkv.cli.info_data import vocabulary_line


def lines_of_gpt(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    sizes, vocabulary, path = facts["config"], facts["vocabulary"], facts["path"]
    rows = vocabulary["rows"]
    first = f"qkv generate {path} TEXT; qkv embed TEXT --model {path}"
    first = f"qkv predict {path} TEXT" if facts["heads"] else first
    spare = f", table of {rows:,} rows" if rows != vocabulary["size"] else ""
    return [
        ("folder", path),
        ("model", f"{facts['model_type']}: {facts['about']}"),
        (
            "layers",
            f"{sizes['layers']} of width {sizes['width']}, {sizes['heads']} attention heads, feed-forward "
            f"{sizes['inner_width']}, {sizes['activation']}, {sizes['order']}-norm",
        ),
        ("longest text", f"{facts['max_length']} tokens, prompt and all"),
        ("parameters", f"{facts['parameters']:,}"),
        ("vocabulary", vocabulary_line(vocabulary) + spare),
        ("weights", f"{facts['weight_bytes'] / 1e6:,.1f} MB, {facts['dtype']}"),
        ("licence", ", ".join(part for part in (facts["licence"], facts["licence_file"]) if part)),
        ("note", "; ".join(facts["notes"])),
        ("heads", ", ".join(facts["heads"])),
        ("labels", ", ".join(facts["labels"][:12]) + (" …" if len(facts["labels"]) > 12 else "")),
        ("for", f"{first}; qkv finetune TASK --model {path} --train FILE --out RUN"),
    ]
