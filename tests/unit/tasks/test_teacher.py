"""A teacher's vectors: width, turn, and files that other runs find."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.data.pairs.groups import GroupFile, TextGroup, make_table
from qkv.models.table import open_model
from qkv.tasks.embed import GroupSource, TextArray, make_source, scale_to_unit
from qkv.tasks.teacher import Teacher, fit_width, teach, turn_towards
from tests.support.folders import make_folder, make_tokenizer


def test_a_teacher_of_another_width() -> None:
    draw = np.random.default_rng(0)
    narrow = draw.normal(size=(500, 8)).astype(np.float16)
    wide = (narrow.astype(np.float32) @ draw.normal(size=(8, 48))).astype(np.float16)
    matrix, kept = fit_width([wide], 32)
    assert matrix.shape == (48, 32) and kept > 0.999  # they lie in 8 directions
    turned = wide.astype(np.float32) @ matrix
    assert np.abs(turned[:, 8:]).max() < 0.05 * np.abs(turned).max()
    assert np.allclose(turned @ turned.T, wide.astype(np.float32) @ wide.astype(np.float32).T, rtol=1e-2, atol=1.0)
    matrix, kept = fit_width([narrow], 32)
    assert matrix.shape == (8, 32) and kept == pytest.approx(1.0)
    assert np.allclose(matrix @ matrix.T, np.eye(8), atol=1e-5)


def test_the_turn_brings_a_teacher_to_the_students_directions() -> None:
    draw = np.random.default_rng(0)
    aims = scale_to_unit(draw.normal(size=(200, 8)).astype(np.float32))
    rotation = np.linalg.qr(draw.normal(size=(8, 8)))[0].astype(np.float32)
    assert np.allclose(turn_towards(aims, aims @ rotation), rotation, atol=1e-5)
    turn = turn_towards(aims, aims @ rotation, widths=[4, 2])
    assert np.allclose(turn @ turn.T, np.eye(8), atol=1e-5)  # no cosine changes
    inside = np.zeros((8, 8), bool)
    for begin, end in ((0, 2), (2, 4), (4, 8)):
        inside[begin:end, begin:end] = True
    assert not turn[~inside].any()  # the first two numbers hold what they held


@pytest.fixture
def teacher(tmp_path: Path) -> Teacher:
    make_folder(tmp_path / "teacher", "BertModel", seed=1, width=48)
    return Teacher(open_model(tmp_path / "teacher"), torch.device("cpu"), 1_000, "one bf16")


def source_of(*texts: str) -> GroupSource:
    file = GroupFile("a", "texts", tuple(map(TextGroup, texts)), (), "")
    return make_source(make_table(file, make_tokenizer(), 16), taught=True, width=32)


def test_vectors_that_are_kept_are_found_by_another_run(
    teacher: Teacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def see(texts: Sequence[str]) -> TextArray:
        return np.random.default_rng(0).normal(size=(len(texts), 32)).astype(np.float32)

    def run(name: str, *sources: GroupSource, kept_in: Path | None = tmp_path / "kept") -> list[GroupSource]:
        folder = tmp_path / name
        folder.mkdir()
        return teach(sources, teacher, folder, 32, (8,), see, said.append, kept_in)

    (tmp_path / "kept").mkdir()
    first, second = source_of("the cat sat", "他 爱 鱼", "he owes me"), source_of("the dog", "paris street")
    found = run("a", first)[0].targets
    assert found.shape == (3, 32) and np.allclose(np.linalg.norm(found.astype(np.float32), axis=1), 1, atol=1e-2)
    alone = run("alone", first, kept_in=None)[0].targets
    assert np.array_equal(alone, found) and [one.name for one in (tmp_path / "alone").iterdir()] == ["targets-0.npy"]
    said.clear()
    monkeypatch.setattr("qkv.tasks.teacher.encode_texts", lambda texts, tokenizer: pytest.fail("computed again"))
    assert np.array_equal(run("b", first)[0].targets, found)
    assert said[0].startswith("3 vectors of the teacher are read")
    monkeypatch.undo()
    said.clear()
    run("c", first, second)
    assert said[0].startswith("3 vectors of the teacher are read") and said[1].startswith("computing 2 vectors")
    assert len(list((tmp_path / "kept").iterdir())) == 2
    other = Teacher(teacher.opened, teacher.device, teacher.tokens, "another bf16")
    assert other.name_of(["a"]) != teacher.name_of(["a"]) != teacher.name_of(["b"])
    assert teacher.name_of(["a", "b"]) != teacher.name_of(["ab"])
