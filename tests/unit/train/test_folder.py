"""The folder of a run: what may become one, what is one, and what a killed process left in it."""

from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.train.run_folder import (
    add_line,
    begin,
    check_folder_sha256,
    folder_sha256,
    job_of,
    read_lines,
    remove_drafts,
    settings_of,
    write_settings,
)


def test_a_new_run_wants_a_place_of_its_own(tmp_path: Path) -> None:
    begin(tmp_path / "a" / "b" / "new", "finetune")
    assert not (tmp_path / "a").exists()  # nothing is made before there is something to write
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for out, message in (
        (tmp_path, "is not an empty folder"),
        (tmp_path / "file", "is not an empty folder"),
        (tmp_path / "file" / "run", "cannot be written"),
    ):
        with pytest.raises(InputError, match=message):
            begin(out, "finetune")
    (tmp_path / "config.toml").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="qkv curve --resume"):
        begin(tmp_path, "curve")


@pytest.mark.parametrize(
    ("settings", "verb", "message"),
    [
        ('model_type = "word2vec"', "finetune", "is a run of word2vec: qkv pretrain --resume"),
        ('model_type = "elmo"', "curve", "is a run of elmo: qkv pretrain --resume"),
        ('task = "classify"', "pretrain", "is a fine-tuning run: qkv finetune --resume"),
        ('[finetune]\ntask = "classify"', "finetune", "is a learning curve: qkv curve --resume"),
        ('task = "classify"', "finetune", "holds a run already. Go on with it: qkv finetune --resume"),
        ('model_type = "elmo"', "pretrain", "holds a run already. Go on with it: qkv pretrain --resume"),
    ],
)
def test_a_run_that_is_there_is_named_as_what_it_is(tmp_path: Path, settings: str, verb: str, message: str) -> None:
    (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        begin(tmp_path, verb)


@pytest.mark.parametrize(
    ("settings", "job"),
    [
        ('task = "tag"', "finetune"),
        ('draws = 3\n[finetune]\ntask = "tag"', "curve"),
        ('model_type = "seq2seq"\n[bitext]', "translate"),
        ('model_type = "gpt"', "pretrain"),
        ("[masking]", "pretrain"),
        ("# [bitext]\nrows = 3", None),
        ("# job: knitting\nrows = 3", None),
    ],
)
def test_which_job_a_run_was(tmp_path: Path, settings: str, job: str | None) -> None:
    """It is written down; of a run that began before that, its settings say so."""
    (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
    assert job_of(tmp_path) == job
    write_settings(tmp_path, "curve", settings)
    assert job_of(tmp_path) == "curve"
    with pytest.raises(InputError, match="is a learning curve: qkv curve --resume"):
        settings_of(tmp_path, "translate")


def test_what_a_killed_process_left_goes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".report.html.0a1b2c3d.part").write_text("half", encoding="utf-8")
    (tmp_path / ".model.0a1b2c3d.old").mkdir()
    (tmp_path / ".mine.part").write_text("kept", encoding="utf-8")
    remove_drafts(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [".mine.part"]


def test_lines_are_added_whole(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    assert read_lines(file) == []
    add_line(file, {"n": 1})
    add_line(file, {"n": 2})
    assert read_lines(file) == [{"n": 1}, {"n": 2}]


def test_a_run_and_its_model_are_recognised(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        settings_of(tmp_path, "finetune")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    before = folder_sha256(tmp_path)
    check_folder_sha256(tmp_path, before)
    check_folder_sha256(tmp_path, None)
    (tmp_path / "config.json").write_text("{ }", encoding="utf-8")
    with pytest.raises(InputError, match="has changed since the run began"):
        check_folder_sha256(tmp_path, before)
