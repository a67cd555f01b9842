"""Verbs without a model: which of qkv's own answers, what is a model and what a text, and languages no model knows."""

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.cli.main import main
from qkv.errors import InputError
from qkv.files import sha256_of
from qkv.models.family import NAMED_ABILITIES, RECURS, SHOWS_LAYERS
from qkv.models.folders import hub
from qkv.models.folders.hub import default_model, locate
from tests.stories.test_bad_input import fails
from tests.support.stand_in import make_zoo, use_zoo

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_zoo(tmp_path_factory.mktemp("made") / "zoo")


@pytest.fixture
def zoo(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return use_zoo(made, monkeypatch)


@pytest.fixture
def own_zoo(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that a test may damage."""
    return use_zoo(Path(shutil.copytree(made, tmp_path / "zoo")), monkeypatch)


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(list(words)) == 0
    found = capsys.readouterr()
    return found.out, found.err


def test_the_table_names_abilities() -> None:
    known = {one.name for one in (*NAMED_ABILITIES, RECURS, SHOWS_LAYERS)}
    assert {need for one in hub.ZOO.values() for need in one.default_for} <= known


def test_the_default_of_a_need(zoo: Path) -> None:
    assert default_model("encodes") == "qkv-sentences" and default_model("fills") == "qkv-mini"
    assert default_model("looks_up") == "qkv-words" and default_model("writes") == "qkv-gpt"
    assert default_model("translates", "en", "zh-CN") == default_model("translates", target="zh") == "qkv-en-zh"
    assert default_model("translates", "zh") == "qkv-zh-en"
    with pytest.raises(InputError, match=r"No model of qkv translates zh → fr\. There is en → zh, zh → en; for"):
        default_model("translates", "zh", "fr")


def test_a_copy_without_some_offers_what_it_has(own_zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("qkv-sentences", "qkv-en-zh", "qkv-zh-en", "qkv-words"):
        shutil.rmtree(own_zoo / name)
    assert default_model("encodes") == "qkv-mini" and default_model("translates", "en", "zh") == "qkv-en-zh-rnn"
    with pytest.raises(InputError) as error:
        locate("qkv-sentecnes")
    assert "Did you mean" not in str(error.value), "it is not offered"
    for name, instead in (("qkv-zh-en", "qkv train translate"), ("qkv-words", "qkv pretrain word2vec")):
        with pytest.raises(
            InputError, match=f"This copy of qkv comes without the model {name}.*--model FOLDER.*{instead}"
        ):
            locate(name)
    assert "comes without the model qkv-zh-en" in fails(capsys, "translate", "你好")
    assert "comes without the model qkv-words" in fails(capsys, "similar", "king")


def test_each_verb_answers(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = answers(capsys, "similar", "the", "-k", "1", "--json")
    assert json.loads(out)["neighbours"] and err == ""
    assert "is to" in answers(capsys, "analogy", "the", "cat", "a")[0]
    Path("pairs.tsv").write_text("the\tcat\t1\nthe\ta\t2\n")
    assert json.loads(answers(capsys, "evaluate-vectors", "-d", "pairs.tsv", "--json")[0])["model"] == "qkv-words"
    assert json.loads(answers(capsys, "embed", "the cat", "--json")[0])["vector"]
    Path("pairs.tsv").rename("pairs.txt")
    assert answers(capsys, "search", "index", "pairs.txt", "--out", "found", "--json")[0].count('"qkv-sentences"') == 1
    for words in (["the cat", "--max-length", "3"], ["the", "cat", "--model", "qkv-gpt"], ["--max-length", "3"]):
        out, err = answers(capsys, "generate", *words, "--json")
        assert json.loads(out.splitlines()[0])["texts"]
        assert ("qkv-gpt answers; another model: --model MODEL\n" in err) == ("--model" not in words)


def test_which_model_embeds(own_zoo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (own_zoo / "qkv-sentences" / "vocab.txt").write_text("damaged")
    assert "vocab.txt is not the file that was shipped" in fails(capsys, "embed", "the cat")
    assert json.loads(answers(capsys, "embed", "the cat", "--tokens", "--json")[0])["tokens"], "by qkv-mini"
    monkeypatch.setenv("QKV_MODEL", "qkv-mini")
    assert answers(capsys, "embed", "the cat", "--json")[0]


def test_translating_by_the_direction(
    zoo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["--beams", "1", "--max-length", "2", "--json"]
    for words, name in (
        (["The cat sleeps."], "qkv-en-zh"),
        (["你好"], "qkv-zh-en"),
        (["你好", "再见", "--to", "en"], "qkv-zh-en"),
        (["Angela Merkel met Emmanuel Macron in Los Angeles.", "--from", "en"], "qkv-en-zh"),
        (["Bonjour le monde", "--from", "en-GB"], "qkv-en-zh"),
        (["1 2 3 !", "--to", "zh"], "qkv-en-zh"),
    ):
        out, err = answers(capsys, "translate", *words, *few)
        texts = words[: 2 if "再见" in words else 1]
        assert f"{name} answers; another model: --model MODEL\n" in err
        assert [json.loads(line)["source"] for line in out.splitlines()] == texts
    file = Path("news.txt")
    file.write_text("Good morning.\nThe cat sleeps.\n")
    assert len(answers(capsys, "translate", "news.txt", *few)[0].splitlines()) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("3\n你好\n再见\n".encode()), encoding="utf-8"))
    out, err = answers(capsys, "translate", "-", *few)
    assert [json.loads(line)["source"] for line in out.splitlines()] == ["3", "你好", "再见"] and "qkv-zh-en" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Bonjour le monde", "--to", "zh"], "looks like French. No model of qkv translates fr → zh."),
        (["Bonjour le monde"], "If it is English, add --from en."),
        (["Guten Morgen, wie geht es dir?"], "looks like German"),
        (["こんにちは", "--to", "zh"], "looks like Japanese"),
        (["안녕하세요"], "looks like Korean"),
        (["Привет, мир", "--to", "en"], "looks like Russian"),
        (["你好", "--to", "fr"], "There is en → zh, zh → en; for others give a model: --model RUN"),
        (["你好", "--to", "zh"], "is Chinese already, which --to zh asks for"),
        (["你好", "--from", "en"], "looks like Chinese, not like English: leave --from en out"),
        (["Good morning.", "你好"], "Text 2 ('你好') looks like Chinese, and qkv-en-zh reads English alone."),
        (["12 + 3"], "has no letters to tell its language by: add --to zh or --to en."),
        (["Hello there.", "--to", "english"], "--to: 'english' is not a language code. Did you mean 'en'?"),
        (["qkv-en-zh", "你好"], "looks like Chinese, and qkv-en-zh reads English alone."),
        (["qkv-en-zh", "Hello.", "--to", "en"], "translates en → zh, not to English. Leave --to out"),
        (["qkv-en-zh"], "Give texts or a file"),
        (["Hello.", "--model", "here"], "There is no folder here."),
    ],
)
def test_what_no_model_translates(
    zoo: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, "translate", *words)


def test_lines_that_a_model_does_not_read_stay_as_they_are(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = ["你好", "Привет, мир", *(f"再见 {number}" for number in range(5))]
    lines = ["Good morning.", *foreign[:2], "The cat sleeps.", *foreign[2:]]
    Path("mixed.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    few = ["--beams", "1", "--max-length", "2", "--alignments"]
    out, err = answers(capsys, "translate", "mixed.txt", *few, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["source"] for one in found] == lines
    assert [one.get("foreign") for one in found] == [None, "zh", "ru", None, *["zh"] * 5]
    assert all(one["translation"] == one["source"] for one in found if "foreign" in one)
    assert "'Привет, мир' looks like Russian, which qkv-en-zh does not read: it stays as it is" in err
    assert "再见 2" in err and "再见 3" not in err and "and 2 more texts stay as they are, 7 in total" in err
    assert answers(capsys, "translate", "mixed.txt", *few)[0].count("has no attention") == 2  # of what was translated
    answers(capsys, "translate", "mixed.txt", *few[:4], "--out", "out.txt")
    assert len(Path("out.txt").read_text(encoding="utf-8").splitlines()) == len(lines)
    Path("all.txt").write_text("你好\n再见\n", encoding="utf-8")
    told = fails(capsys, "translate", "--model", "qkv-en-zh", "all.txt")
    assert "all.txt, line 1 ('你好') looks like Chinese, and qkv-en-zh reads English alone." in told


def test_languages_of_words_and_prompts(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = fails(capsys, "similar", "bonjour")
    assert "'bonjour' is not among the" in told and "These are words in Chinese and English." in told
    assert "looks like Russian, and qkv-gpt reads Chinese and English alone." in fails(
        capsys, "generate", "Привет, мир"
    )
    with pytest.raises(InputError) as error:
        qkv.load_vectors(zoo / "qkv-words")["bonjour"]
    assert "These are words in" in str(error.value)


def test_what_is_a_model_and_what_a_text(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").symlink_to(zoo / "qkv-gpt")
    few = ["--max-length", "2", "--json"]
    for words, prompt in ((["run", "the cat"], "the cat"), (["run"], ""), (["./run", "他"], "他")):
        out, err = answers(capsys, "generate", *words, *few)
        assert json.loads(out)["prompt"] == prompt and "answers" not in err
    for words, prompt in (
        (["cat"], "cat"),
        (["the: cat/dog"], "the: cat/dog"),
        (["猫"], "猫"),
        (["他他", "猫"], "他他"),
    ):
        out, err = answers(capsys, "generate", *words, *few)
        assert json.loads(out.splitlines()[0])["prompt"] == prompt and "qkv-gpt answers" in err
        assert ("there is no folder 'cat' here, so it is taken as a text" in err) == (words == ["cat"])
    for words, message in (
        (["rnu"], "There is no folder rnu. Did you mean 'run'?"),
        (["rnu", "the cat"], "Did you mean 'run'?"),
        (["other", "the cat"], "There is no folder other."),
        (["runs/gpt"], "There is no folder runs/gpt."),
        (["~/nowhere"], "nowhere."),
    ):
        told = fails(capsys, "generate", *words)
        assert message in told and told.endswith(" If it is a text, add --model qkv-gpt.\n")
    Path("prompts.txt").write_text("the cat\n")
    assert "There is no folder rnu" in fails(capsys, "generate", "rnu", "--file", "prompts.txt")
    assert "The name of the model is empty." in fails(capsys, "generate", "", "the cat")
    assert "prompts.txt is a file. Give the folder" in fails(capsys, "generate", "prompts.txt")
    assert answers(capsys, "generate", "--file", "prompts.txt", *few)[0]


def test_in_python(zoo: Path) -> None:
    assert qkv.load("qkv-sentences").name == "qkv-sentences" and qkv.load().name == "qkv-mini"
    assert qkv.Generator().path.name == "qkv-gpt" and len(qkv.load_vectors()) == len(qkv.load_vectors("qkv-words"))
    assert qkv.load_translator("qkv-en-zh").target_language == "zh"
    assert qkv.load_translator(source="zh").path.name == "qkv-zh-en"
    assert qkv.load_translator(source="en", target="zh").path.name == "qkv-en-zh"
    index = qkv.SearchIndex.build(["the cat", "他"], "index")
    assert index.facts["model"]["name"] == "qkv-sentences"
    for how, message in (
        ({}, "Name a model, or a language"),
        ({"target": "fr"}, "No model of qkv translates … → fr"),
        ({"name": "qkv-en-zh", "target": "fr"}, "translates en → zh, not to French"),
        ({"source": "cn"}, "Did you mean 'zh'?"),
    ):
        with pytest.raises(InputError) as error:
            qkv.load_translator(**dict[str, Any](how))
        assert message in str(error.value)


def test_a_file_is_hashed_once(own_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []

    def hash_and_note(path: Path) -> str:
        hashed.append(path)
        return sha256_of(path)

    monkeypatch.setattr(hub, "sha256_of", hash_and_note)
    for _ in range(3):
        locate("qkv-gpt")
    assert len(hashed) == len(set(hashed)) > 0 and {path.parent.name for path in hashed} == {"qkv-gpt"}
    (own_zoo / "qkv-gpt" / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"config.json is not the file that was shipped"):
        locate("qkv-gpt")


def test_alignments_without_a_segmenter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Chinese words are those of qkv-words, where rjieba is not installed."""
    monkeypatch.setattr("qkv.text.segmenter.is_installed", lambda name: False)
    out, _ = answers(capsys, "translate", "Tom chases Jerry.", "--alignments")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["Tom", "汤姆"],
        ["chases", "追逐"],
        ["Jerry", "杰瑞"],
    ]
