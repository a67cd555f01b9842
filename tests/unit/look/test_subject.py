"""What is opened to be looked into: the kind of every folder, its parts, and folders that are not whole."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.look.subject import (
    DEMO_RUN,
    VIEW_BY_ABILITY,
    VIEWS,
    Subject,
    describe_models,
    open_example_classifier,
    open_shipped,
    open_subject,
)
from qkv.look.wire import RefusalError
from qkv.models.family import HAS_TASK, Facts
from qkv.report.bilingual import Phrase
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import reader, translator
from tests.support.whole_zoo import whole_zoo
from tests.support.word_vectors import make_vectors_folder, small


def vectors_file(path: Path) -> Path:
    file = path.with_suffix(".vec")
    small().save(file)
    return file


MAKERS: dict[str, Callable[[Path], Path]] = {
    "bert": make_folder,
    "gpt": make_gpt,
    "transformer": lambda path: translator(path, "transformer").path,
    "seq2seq": lambda path: translator(path, "seq2seq").path,
    "elmo": make_elmo,
    "rnnlm": make_rnnlm,
    "nnlm": make_nnlm,
    "reader": lambda path: reader(path, "lstm").path,
    "table": make_vectors_folder,
    "table, a file": vectors_file,
}


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    work = tmp_path_factory.mktemp("subjects")
    return {name: open_subject(make(work / name.split(",")[0])) for name, make in MAKERS.items()}


@pytest.mark.parametrize("name", MAKERS)
def test_the_kind_of_a_folder(subjects: dict[str, Subject], name: str) -> None:
    assert subjects[name].kind == name.split(",")[0]


PARTS = {
    "model": ("bert", "gpt", "elmo", "rnnlm", "nnlm", "reader", "table", "table, a file"),
    "translator": ("transformer", "seq2seq"),
    "vectors": ("table", "table, a file", "nnlm"),
    "recurrent": ("rnnlm", "elmo", "reader", "seq2seq"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", MAKERS)
def test_a_part_is_there_or_refused(subjects: dict[str, Subject], name: str, part: str) -> None:
    subject = subjects[name]
    if name in PARTS[part]:
        assert getattr(subject, part) is getattr(subject, part)  # loaded once
    else:
        with pytest.raises(RefusalError) as caught:
            getattr(subject, part)
        assert caught.value.code.startswith("no_") and caught.value.about["kind"] == subject.kind
        assert subject.title in str(caught.value)


def test_every_view_but_positions_shows_what_a_model_can_be_asked() -> None:
    assert {*VIEW_BY_ABILITY.values(), "positions"} == set(VIEWS) and len(set(VIEWS)) == len(VIEWS) == 9


def test_titles(tmp_path: Path, subjects: dict[str, Subject]) -> None:
    assert subjects["bert"].title == "bert"
    run = tmp_path / "poems"
    make_folder(run / "model")
    (run / "config.toml").write_text("", encoding="utf-8")
    assert open_subject(run).title == "poems"
    assert open_subject().title == "qkv-mini"


@pytest.fixture
def folder(subjects: dict[str, Subject], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(subjects["bert"].path, tmp_path / "copy"))


def test_a_folder_without_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match="config.json"):
        open_subject(folder)


def test_a_config_that_is_cut_short(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "be', encoding="utf-8")
    with pytest.raises(InputError, match="config.json is not valid JSON"):
        open_subject(folder)


def test_a_name_that_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    with pytest.raises(InputError, match="Did you mean 'tiny'"):
        open_subject(tmp_path / "tinny")
    with pytest.raises(InputError, match="empty"):
        open_subject("")


@pytest.mark.parametrize(
    ("name", "path", "title"),
    [
        ("hf:owner/tiny-bert", "cache/models--owner--tiny-bert/snapshots/0a1b2c", "tiny-bert"),
        ("hf:owner/tiny-bert@main", "cache/models--owner--tiny-bert/snapshots/0a1b2c", "tiny-bert"),
        ("hf:gpt2", "cache/models--gpt2/snapshots/0a1b2c", "gpt2"),
        ("runs/乙", "runs/乙/model", "乙"),
    ],
)
def test_a_title_is_what_people_call_it(name: str, path: str, title: str) -> None:
    facts = Facts("bert", "bert", Path(path), Phrase("a BERT", "BERT"), "bert", (), {})
    assert Subject(name, facts).title == title


def test_the_models_that_came_with_qkv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default first, then what writes; last one with a task: the run of the demonstration, if it ran here and is
    whole, else the classifier of the example headlines."""
    whole_zoo(tmp_path, monkeypatch)
    found = [subject.title for subject in open_shipped()]
    assert found == ["qkv-mini", "qkv-gpt", "qkv-words", "qkv-elmo", "qkv-en-zh", "finetune"]
    shutil.rmtree(tmp_path / "zoo" / "qkv-gpt")  # a copy without it
    (tmp_path / DEMO_RUN / "model" / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match="finetune is left out of the page.*model.safetensors"):
        found = [subject.title for subject in open_shipped()]
    assert found == ["qkv-mini", "qkv-words", "qkv-elmo", "qkv-en-zh", "headlines"]
    shutil.rmtree(tmp_path / "qkv-demo")
    (tmp_path / "zoo" / "qkv-elmo" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="qkv-elmo.*is not the file that was shipped"):
        open_shipped()
    shutil.rmtree(tmp_path / "zoo")
    with pytest.raises(InputError, match="comes without"):
        open_shipped()


def test_the_classifier_of_example_headlines_is_fitted_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_zoo(tmp_path, monkeypatch)
    shutil.rmtree(tmp_path / "qkv-demo")
    (subject,) = (one for one in open_shipped() if one.has(HAS_TASK))
    assert "model" not in vars(subject), "not before it is looked at"
    assert describe_models([subject], {})["subjects"][0]["task"] == "classify"
    assert {"sport", "体育"} <= set(subject.model.labels) and len(subject.model.labels) == 10
    (result,) = subject.model.predict("A late goal decides the final")
    assert result.label in subject.model.labels
    shutil.rmtree(tmp_path / "zoo" / "qkv-mini")
    assert open_example_classifier() is None
