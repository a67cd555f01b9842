"""Words counted in several processes: the same vocabulary as from one pass over the texts, byte by byte."""

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.main import main
from qkv.data.corpus.counting import count_files
from qkv.data.readers import stream_texts
from qkv.errors import InputError
from qkv.text import vocabulary
from qkv.text.folding import fold_text
from qkv.text.segmenter import find_segmenter
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import count_characters, count_words
from tests.unit.data.corpus.test_parts import material
from tests.unit.data.corpus.test_prepare import content


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    found = material(tmp_path_factory.mktemp("texts"))
    found[0].write_text("\ufeffＷｉｄｅ 😡😡\r" + found[0].read_text(encoding="utf-8"), encoding="utf-8")
    return found


@pytest.mark.parametrize(
    ("kind", "segmenter", "fold"),
    [("wordpiece", None, ()), ("wordpiece", None, ("width", "emoji")), ("character", None, ()), ("word", "rjieba", ())],
)
def test_the_same_counts(files: list[Path], kind: Any, segmenter: str | None, fold: tuple[str, ...]) -> None:
    texts = [fold_text(text, fold) for text in stream_texts(files)]
    seen: list[int] = []
    if kind == "character":
        expected = count_characters(texts, lowercase=True)
    else:
        expected = count_words(texts, True, None, None if segmenter is None else find_segmenter(segmenter))
    for workers in (1, 2):
        found = count_files(
            files, kind, True, segmenter=segmenter, fold=fold, workers=workers, block_bytes=2000, progress=seen.append
        )
        assert found == expected
        assert list(found) == list(expected), "in the same order"
        assert seen[-1] == len(texts)


def test_memory_is_bounded_alike(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rare words are dropped, the same ones are, whoever has counted."""
    monkeypatch.setattr(vocabulary, "MOST_CHUNKS", 20)
    monkeypatch.setattr(vocabulary, "_MOST_WORDS", 30)
    one, two = (count_files(files, "wordpiece", True, workers=workers, block_bytes=500) for workers in (1, 2))
    assert list(one.items()) == list(two.items()) and len(one) <= 30


def test_the_verb(files: list[Path], tmp_path: Path) -> None:
    words = "--vocab-size 300 --fold none"
    for workers in ("1", "2"):
        command = ["tokenizer", "train", *map(str, files), "--out", str(tmp_path / workers), *words.split()]
        assert main([*command, "--workers", workers]) == 0
    assert content(tmp_path / "1") == content(tmp_path / "2")
    Tokenizer.train(stream_texts(files), vocabulary_size=300).save(tmp_path / "whole")
    assert content(tmp_path / "whole") == content(tmp_path / "1")


def test_errors_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Fine.\n" * 500 + b"b\xe9d\nmore\n")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n\n{"body": "b"}\n')
    for workers in (1, 2):
        with pytest.raises(InputError, match="a.txt, line 501, byte 2"):
            count_files(tmp_path / "a.txt", "wordpiece", True, workers=workers, block_bytes=700)
        with pytest.raises(InputError, match=r"b.jsonl, line 3 has no field 'text'"):
            count_files(tmp_path / "b.jsonl", "wordpiece", True, workers=workers)
    with pytest.raises(InputError, match="workers is 0"):
        count_files(tmp_path / "a.txt", "wordpiece", True, workers=0)
    assert count_files([], "character", True) == Counter()


def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "a.txt")
    threading.Thread(target=pipe.write_text, args=("the cat\n我们\n",)).start()
    assert count_files(pipe, "wordpiece", True) == count_words(["the cat", "我们"], True)
