"""Vectors on disk: they come back exactly, part by part, and a failure leaves nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from qkv.api.embed_files import json_lines, token_lines, vector_file
from qkv.api.embedder import Embeddings, TokenVectors, scale_to_unit
from qkv.errors import InputError


def part(rows: int, seed: int = 0, width: int = 7) -> Embeddings:
    vectors = np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)
    return Embeddings(vectors, np.full(rows, 5), np.full(rows, 1), np.zeros(rows, np.int64))


def write(path: Path, parts: list[Embeddings]) -> list[str]:
    texts = [f'第{n} "text"\\\u2028' for n in range(sum(map(len, parts)))]
    with vector_file(path, 7) as writer:
        at = 0
        for one in parts:
            writer.add(texts[at : at + len(one)], one)
            at += len(one)
    return texts


@pytest.mark.parametrize("sizes", [[3], [4096, 1, 100_000], []])
def test_npy_of_unknown_length(tmp_path: Path, sizes: list[int]) -> None:
    parts = [part(size, seed) for seed, size in enumerate(sizes)]
    write(tmp_path / "v.npy", parts)
    found = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert found.shape == (sum(sizes), 7) and found.dtype == np.float32
    assert (np.asarray(found) == np.concatenate([one.vectors for one in [*parts, part(0)]])).all()


def test_jsonl_keeps_every_bit_and_the_text(tmp_path: Path) -> None:
    parts = [part(3), part(2, 1)]
    texts = write(tmp_path / "v.jsonl", parts)
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [row["text"] for row in rows] == texts
    assert {(row["n_tokens"], row["n_windows"]) for row in rows} == {(5, 1)}
    vectors = np.array([row["vector"] for row in rows], dtype=np.float32)
    assert (vectors == np.concatenate([one.vectors for one in parts])).all()


def test_what_has_no_vector_is_said() -> None:
    vectors = np.array([[0.1, 2], [0, 0]], dtype=np.float32)
    lines = list(
        json_lines(
            ["a", "b"], Embeddings(vectors, np.array([3, 4]), np.array([1, 1]), np.array([0, 1]), np.array([0, 2]))
        )
    )
    assert [json.loads(line)["n_without_vector"] for line in lines] == [0, 2]
    assert list(json.loads(lines[0])) == ["text", "n_tokens", "n_windows", "n_unknown", "n_without_vector", "vector"]
    found = TokenVectors(("he", "[UNK]"), ((0, 2), (3, 5)), vectors, np.array([True, False]), 2)
    (line,) = token_lines(["He \u2028?"], [found])
    assert json.loads(line) == {
        "text": "He \u2028?",
        "n_windows": 2,
        "n_unknown": 0,
        "tokens": [
            {"token": "he", "start": 0, "end": 2, "vector": [pytest.approx(0.1), 2.0]},
            {"token": "[UNK]", "start": 3, "end": 5, "vector": None},
        ],
    }


def test_tsv_keeps_every_bit(tmp_path: Path) -> None:
    one = part(4)
    write(tmp_path / "new" / "v.tsv", [one])
    assert (np.loadtxt(tmp_path / "new" / "v.tsv", delimiter="\t", dtype=np.float32) == one.vectors).all()


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(b"before")
    with pytest.raises(RuntimeError), vector_file(tmp_path / "v.npy", 7) as writer:
        writer.add([], part(3))
        raise RuntimeError
    assert (tmp_path / "v.npy").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


def test_names_are_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'v.json'. Did you mean '.jsonl'"), vector_file(tmp_path / "v.json", 7):
        pass
    with pytest.raises(InputError, match="it is a folder"), vector_file(tmp_path, 7):
        pass
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match="it is a folder"), vector_file(Path("~/"), 7):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="annot .*writ"), vector_file(tmp_path / "file" / "v.npy", 7):
        pass


def test_normalized_leaves_zeros() -> None:
    found = scale_to_unit(np.array([[3, 4], [0, 0]], dtype=np.float32))
    assert found.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
