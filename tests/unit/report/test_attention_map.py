"""The wire format: what goes out comes back, and what does not fit is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.files import write_text
from qkv.report.attention import AttentionMap, Token


def make_map(
    words: list[str] | None = None, layers: int = 2, heads: int = 3, second: list[str] | None = None
) -> AttentionMap:
    """Softmax weights over [CLS] words [SEP] (second [SEP])."""
    words = words or ["The", "animal", "it"]
    texts = tuple(" ".join(part) for part in (words, second) if part is not None)
    tokens = [Token("[CLS]", "", 0, 0, 0, True)]
    for segment, part in enumerate(filter(None, (words, second))):
        at = 0
        for word in part:
            tokens.append(Token(word.lower(), word, at, at + len(word), segment))
            at += len(word) + 1
        tokens.append(Token("[SEP]", "", 0, 0, segment, True))
    scores = np.random.default_rng(0).normal(size=(layers, heads, len(tokens), len(tokens))) * 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return AttentionMap(
        name="self" if second is None else "pair",
        attn=np.round(255 * weights).astype(np.uint8),
        layers=tuple(range(layers)),
        heads=tuple(range(heads)),
        left=tuple(tokens),
        right=tuple(tokens),
        texts=texts,
        model="tiny",
    )


def test_wire_format_is_json_and_comes_back() -> None:
    before = make_map(["他", "欠", "😀", "<b>", "e\u0301"], second=["x & y", "'"])
    data = json.loads(json.dumps(before.to_dict()))
    after = AttentionMap.from_dict(data)
    assert (after.attn == before.attn).all()
    assert after.left == before.left and after.right == before.right
    assert (after.name, after.layers, after.heads, after.texts) == ("pair", (0, 1), (0, 1, 2), before.texts)
    assert after.n_tokens == data["n_tokens"] == 10 and after.n_windows == data["n_windows"] == 1
    for token in after.left:
        assert token.special or after.texts[token.segment][token.start : token.end] == token.text


def test_one_byte_a_weight() -> None:
    before = make_map()
    assert len(before.to_dict()["attn"]) == -(-before.attn.size // 3) * 4, "base64 of the bytes and nothing else"
    assert np.abs(before.weights(1, 2).sum(axis=1) - 1).max() <= before.n_tokens / 510


def test_layers_and_heads_go_by_the_models_numbers() -> None:
    whole = make_map()
    part = AttentionMap("self", whole.attn[1:, [0, 2]], (1,), (0, 2), whole.left, whole.right, whole.texts)
    assert (part.bytes_of(1, 2) == whole.bytes_of(1, 2)).all()
    with pytest.raises(InputError, match="no layer 0 .* has layer 1 "):
        part.weights(0, 0)
    with pytest.raises(InputError, match="no head 3 .* 0 … 2"):
        part.weights(1, 3)


def test_labels_show_the_users_characters() -> None:
    assert Token("animal", "Animal", 0, 6).label == "Animal"
    assert Token("##s", "s", 6, 7).label == "##s"
    assert Token("[UNK]", "☃", 0, 1).label == "☃"
    assert Token("[CLS]", "", 0, 0, special=True).label == "[CLS]"
    assert Token("[MASK]", "[MASK]", 0, 6).label == "[MASK]"


def test_a_file_comes_back(tmp_path: Path) -> None:
    make_map().save(tmp_path / "new" / "map.json")
    assert (AttentionMap.load(tmp_path / "new" / "map.json").attn == make_map().attn).all()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["map.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "bertviz"}, "not an attention map"),
        ({"shape": [2, 3, 5, 6]}, "does not fit the shape"),
        ({"attn": "%%%"}, "damaged"),
        ({"shape": [-2, -3, 5, 5]}, "does not fit the shape"),
        ({"shape": [2, 3, 5, "many"]}, "damaged"),
        ({"shape": [2, 3, 25]}, "must be .* uint8"),
        ({"shape": [1e400, 3, 5, 5]}, "damaged"),
        ({"shape": [2**70, 3, 5, 5]}, "does not fit the shape"),
        ({"n_windows": "one"}, "damaged"),
        ({"left": [{"word": "x"}]}, "damaged"),
        ({"layers": [0]}, "must be .* uint8"),
    ],
)
def test_a_damaged_map_is_told(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AttentionMap.from_dict(make_map().to_dict() | change)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none.json is missing"):
        AttentionMap.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="bad.json is not valid JSON"):
        AttentionMap.load(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="holds a JSON list"):
        AttentionMap.load(tmp_path / "list.json")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        AttentionMap.load(tmp_path)


def test_writing_where_one_cannot_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="annot .*writ"):
        write_text(tmp_path / "file" / "below.txt", "text")
    with pytest.raises(InputError, match="annot .*writ"):
        write_text(tmp_path, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
