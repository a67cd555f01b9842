"""The demonstration removes what it made itself, and nothing of anybody else's."""

from pathlib import Path

import pytest

from qkv.cli.demo import _clear_pretraining, documents
from qkv.errors import InputError


def test_the_corpus_is_prose_from_the_standard_library() -> None:
    found, characters = 0, 0
    for paragraphs in documents():
        assert paragraphs and all("\n" not in paragraph for paragraph in paragraphs)
        found, characters = found + 1, characters + sum(map(len, paragraphs))
        if found > 100 and characters > 300_000:
            return  # reading the whole library takes seconds
    pytest.fail(f"{found} documents of {characters} characters")


def test_an_earlier_demonstration_makes_room(tmp_path: Path) -> None:
    _clear_pretraining(tmp_path / "nowhere", "text")
    (tmp_path / "corpus.txt").write_text("text")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").write_text("")
    _clear_pretraining(tmp_path, "text")
    assert list(tmp_path.iterdir()) == []


def test_other_peoples_files_stay(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("我自己的语料")
    with pytest.raises(InputError, match="another corpus, which is not from a demonstration"):
        _clear_pretraining(tmp_path, "text")
    (tmp_path / "corpus.txt").write_text("text")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="holds mine"):
        _clear_pretraining(tmp_path, "text")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["corpus.txt", "mine"]
