"""qkv embed and qkv info for what no task was put on, and vectors of tokens, as a person and as a program asks."""

import json
from pathlib import Path

import pytest

import qkv
from qkv.cli.main import main
from tests.support.below_readers import make_elmo, make_rnnlm
from tests.support.folders import make_folder
from tests.support.word_vectors import SMALL, make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("embed")
    made = {
        "word2vec": make_vectors_folder(folder / "word2vec"),
        "elmo": make_elmo(folder / "elmo"),
        "rnnlm": make_rnnlm(folder / "rnnlm"),
        "bert": make_folder(folder / "bert"),
    }
    return {name: str(path) for name, path in made.items()}


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(words) == 0
    out, err = capsys.readouterr()
    return out, err


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "Traceback" not in err
    return err


def test_texts_by_word_vectors(capsys: pytest.CaptureFixture[str], places: dict[str, str], tmp_path: Path) -> None:
    shown, beside = said(capsys, "embed", "king xyzzy", "king", "cat", "-m", places["word2vec"])
    assert "1.00   1.00   0.00" in shown
    assert beside == "text 1: 1 of 2 words have no vector and are not in the mean (--tokens shows which)\n"
    line = json.loads(said(capsys, "embed", "king xyzzy", "-m", places["word2vec"], "--json")[0])
    assert (line["n_tokens"], line["n_without_vector"], line["vector"]) == (2, 1, list(SMALL["king"]))
    (tmp_path / "a.txt").write_text("king xyzzy\nxyzzy\n")
    words = ("embed", "-f", str(tmp_path / "a.txt"), "-m", places["word2vec"], "-o", str(tmp_path / "v.npy"))
    assert "a.txt, line 2 has no vector: its only word is not among" in failed(capsys, *words)
    _, beside = said(capsys, *words, "--skip-empty")
    assert "1 of 2 words have no vector and are not in the means" in beside
    assert json.loads(said(capsys, *words, "--skip-empty", "--json")[0])["n_without_vector"] == 1
    assert "Text 1 has no vector" in failed(capsys, "embed", "xyzzy", "-m", places["word2vec"])


@pytest.mark.parametrize("name", ["elmo", "rnnlm"])
def test_texts_by_language_models(capsys: pytest.CaptureFixture[str], places: dict[str, str], name: str) -> None:
    line = json.loads(said(capsys, "embed", "the zebra", "-m", places[name], "--json")[0])
    assert line["vector"] == pytest.approx(qkv.load(places[name]).embed("the zebra").vectors[0].tolist(), rel=1e-6)
    assert line["n_tokens"] == 2 and "n_without_vector" not in line


def test_a_text_without_a_known_word_has_tokens(
    capsys: pytest.CaptureFixture[str], places: dict[str, str], tmp_path: Path
) -> None:
    """It has no mean; of its tokens, each is shown without a vector."""
    (tmp_path / "a.txt").write_text("xyzzy\n\nking\n")
    words = ("embed", "--tokens", "-f", str(tmp_path / "a.txt"), "-m", places["word2vec"], "--json")
    assert "a.txt, line 2 is empty" in failed(capsys, *words)
    lines = [json.loads(line) for line in said(capsys, *words, "--skip-empty")[0].splitlines()]
    assert [line["text"] for line in lines] == ["xyzzy", "king"] and lines[0]["tokens"][0]["vector"] is None


def test_a_file_is_not_written_over(capsys: pytest.CaptureFixture[str], places: dict[str, str], tmp_path: Path) -> None:
    file, other = tmp_path / "a.jsonl", tmp_path / "b.txt"
    file.write_text('{"text": "the cat"}\n')
    other.write_text("the cat\n")
    words = ("embed", "-f", str(other), "-f", str(file), "-m", places["bert"], "-o", str(file))
    assert "is also an input file" in failed(capsys, *words)
    assert file.read_text() == '{"text": "the cat"}\n'


def test_tokens_are_scaled_only_where_it_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A folder's own scaling is one of texts."""
    folder = qkv.load(make_folder(tmp_path / "bert")).save(tmp_path / "unit")
    record = json.loads((folder / "qkv.json").read_text())
    (folder / "qkv.json").write_text(json.dumps(record | {"pooling": "mean", "normalize": True}))

    def length(*words: str) -> float:
        line = json.loads(said(capsys, "embed", "the cat", "-m", str(folder), "--json", *words)[0])
        vector = line["tokens"][0]["vector"] if "tokens" in line else line["vector"]
        return float(sum(number * number for number in vector))

    assert length() == pytest.approx(1, abs=1e-3)
    assert length("--tokens") != pytest.approx(1, abs=1e-3)
    assert length("--tokens", "--normalize") == pytest.approx(1, abs=1e-3)
    assert "texts as in the model folder, tokens no" in " ".join(said(capsys, "embed", "--help")[0].split())


def test_tokens_on_a_screen(capsys: pytest.CaptureFixture[str], places: dict[str, str]) -> None:
    """The same word twice: one vector of word2vec, two of the others (tests/project/test_polysemy.py has a trained
    ELMo)."""
    texts = ("xyzzy cat", "king cat")
    shown = [
        line.split() for line in said(capsys, "embed", "--tokens", *texts, "-m", places["word2vec"])[0].split("\n")
    ]
    assert shown[2] == ["1", "0–5", "xyzzy", "no", "vector"]
    assert shown[3][:3] == ["1", "6–9", "cat"] and shown[3][-1] == "…"
    assert shown[5][:3] == ["2", "5–8", "cat"] and shown[5][-1] == "1.00"
    for name in ("rnnlm", "bert"):
        last = said(capsys, "embed", "--tokens", "the cat", "tired 猫 cat", "-m", places[name])[0].splitlines()[-1]
        assert last.split()[2] == "cat" and float(last.split()[-1]) < 1, name
    lowest = said(capsys, "embed", "--tokens", "--layer", "0", "the cat", "tired 猫 cat", "-m", places["elmo"])[0]
    assert lowest.splitlines()[-1].endswith(" 1.00")


def test_tokens_for_a_program(capsys: pytest.CaptureFixture[str], places: dict[str, str], tmp_path: Path) -> None:
    line = json.loads(said(capsys, "embed", "--tokens", "cat xyzzy", "-m", places["word2vec"], "--json")[0])
    assert line["tokens"][0] == {"token": "cat", "start": 0, "end": 3, "vector": list(SMALL["cat"])}
    assert line["tokens"][1]["vector"] is None
    (tmp_path / "a.txt").write_text("the cat\n猫\n", encoding="utf-8")
    words = ("embed", "--tokens", "-f", str(tmp_path / "a.txt"), "-m", places["elmo"], "--layer", "2", "--json")
    lines = [json.loads(line) for line in said(capsys, *words)[0].splitlines()]
    assert [len(line["tokens"]) for line in lines] == [2, 1]
    expected = qkv.load(places["elmo"]).embed_tokens("the cat", layer=2)[0].vectors
    assert lines[0]["tokens"][1]["vector"] == pytest.approx(expected[1].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "a", "--out", "v.npy"], "--json > tokens.jsonl"),
        (["--tokens", "a", "--pooling", "mean"], "leave one of them out"),
        (["--tokens", "the cat " * 60], "More than 100 tokens"),
        (["--tokens", "a", " "], "Text 2 is empty"),
        (["--skip-empty", "a", " "], "--skip-empty is for files and standard input"),
        (["--layer", "9", "a"], "no layer 9: elmo has 2 layers"),
        (["--pooling", "cls", "a"], "no vector of a text at [CLS]"),
    ],
)
def test_what_cannot_be(
    capsys: pytest.CaptureFixture[str], places: dict[str, str], words: list[str], message: str
) -> None:
    assert message in failed(capsys, "embed", *words, "-m", places["elmo"])


def test_nothing_to_show(capsys: pytest.CaptureFixture[str], places: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n")
    words = ("embed", "--tokens", "-f", str(tmp_path / "a.txt"), "--skip-empty", "-m", places["elmo"])
    assert "no text to embed" in failed(capsys, *words)


@pytest.mark.parametrize("name", ["word2vec", "elmo", "rnnlm"])
def test_other_verbs_say_what_it_can_do(capsys: pytest.CaptureFixture[str], places: dict[str, str], name: str) -> None:
    assert f"qkv finetune classify --model {places[name]}" in failed(capsys, "predict", places[name], "a")
    for words in (["fill", "[MASK]", "-m", places[name]], ["attention", "a", "-m", places[name]]):
        assert "qkv embed TEXT --model" in failed(capsys, *words), words
    if name != "word2vec":
        assert "qkv embed TEXT --model" in failed(capsys, "similar", "cat", "-m", places[name])


@pytest.mark.parametrize("name", ["word2vec", "elmo", "rnnlm"])
def test_how_large_it_is(capsys: pytest.CaptureFixture[str], places: dict[str, str], name: str) -> None:
    size = (Path(places[name]) / "model.safetensors").stat().st_size
    shown, facts = said(capsys, "info", places[name])[0], json.loads(said(capsys, "info", places[name], "--json")[0])
    assert facts["weight_bytes"] == size and facts["parameters"] > 40
    assert f"parameters   {facts['parameters']:,}\n" in shown and f"{size / 1e6:,.1f} MB, float32" in shown
    assert f"qkv embed TEXT --model {places[name]}" in shown and ("qkv similar" in shown) == (name == "word2vec")
