"""How a folder of the zoo is made (bench/zoo_folder.py): card, licence, seal, and no path of the machine."""

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from qkv.errors import InputError
from qkv.files import read_object
from qkv.models.folders import hub
from qkv.models.folders.own import add_to_record
from qkv.models.table import describe_model
from tests.golden.golden import MODELS
from tests.support.bench_modules import ROOT, bench_module

CARDS = sorted((ROOT / "bench" / "zoo_cards").glob("*.toml"))
FIGURES = """
[[figures]]
caption = "Words that people rated, Spearman."
columns = ["", "qkv-words"]
rows = [["WS-353", "0.61"]]
how = "qkv evaluate-vectors --data FOLDER"
"""


@pytest.fixture(scope="module")
def maker() -> Any:
    return bench_module("zoo_folder")


def make_run(folder: Path, model: str) -> Path:
    folder.mkdir()
    shutil.copytree(MODELS / model, folder / "model")
    add_to_record(folder / "model", {"config": {"data": str(folder / "shards")}})
    (folder / "log.jsonl").write_text('{"step": 50, "tokens": 3000000}\n{"step": 50, "evaluation": {"loss": 1.5}}\n')
    (folder / "sessions.jsonl").write_text('{"seconds": 90}\n{"seconds": 30}\n')
    (folder / "report.html").write_text(f"<p>{folder}/log.jsonl</p>")
    (folder / "recipe.toml").write_text('model_type = "word2vec"\n')
    return folder


@pytest.mark.parametrize(("name", "model", "dtype"), [("qkv-words", "word2vec", "int8"), ("qkv-gpt", "gpt", "float16")])
def test_a_folder_is_whole(
    maker: Any, name: str, model: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "FOLDER", tmp_path / "zoo")
    run = make_run(tmp_path / "run", model)
    words = (ROOT / "bench" / "zoo_cards" / f"{name}.toml").read_text(encoding="utf-8")
    (tmp_path / "card.toml").write_text(words + FIGURES, encoding="utf-8")
    card = maker.read_card(tmp_path / "card.toml")
    for _ in range(2):  # it may be made again
        maker.make_folder(card, [run, run], [run / "recipe.toml"] * 2, dtype, hub.FOLDER / name)
    folder = hub.locate(name)
    assert describe_model(folder).document["dtype"] == dtype
    files = {file.name for file in folder.iterdir()}
    assert {"LICENSE", "README.md", f"{name}.toml", f"{name}-2.toml", "log.jsonl", "log-2.jsonl"} < files
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "| WS-353 | 0.61 |" in text and "| steps | 50 | 50 |" in text and "| time | 2.0 minutes, " in text
    assert text.startswith("---\nlicense: cc-by-sa-4.0\nlanguage:\n- zh\n- en\n") and card["use"][0] in text
    licence = (folder / "LICENSE").read_text(encoding="utf-8")
    assert f'"{name}, from qkv"' in licence and "https://zh.wikipedia.org" in licence
    assert read_object(folder / "qkv.json")["record"]["config"]["data"] == "shards"
    assert all(str(tmp_path) not in (folder / one).read_text("utf-8") for one in ("qkv.json", "report.html"))


def test_what_is_refused(maker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, card = make_run(tmp_path / "run", "word2vec"), tmp_path / "card.toml"
    words = (ROOT / "bench" / "zoo_cards" / "qkv-words.toml").read_text(encoding="utf-8").partition("[[figures]]")[0]
    card.write_text(words, encoding="utf-8")
    with pytest.raises(InputError, match=r"card.toml lacks figures. Weights are measured before they ship."):
        maker.read_card(card)
    for old, new, message in (
        ('"qkv-words"', '"qkv-world"', "'qkv-world' is not in the table of the zoo"),
        ('"gutenberg"', '"books"', "no source is called books. Known: enwiki"),
    ):
        card.write_text(words.replace(old, new) + FIGURES, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            maker.read_card(card)
    card.write_text(words + FIGURES, encoding="utf-8")
    with pytest.raises(InputError, match="1 runs have 0 recipes"):
        maker.make_folder(maker.read_card(card), [run], [], "int8", tmp_path / "new")
    (run / "report.html").write_text(f"<p>{ROOT}/shards</p>")
    with pytest.raises(InputError, match="report.html names a path of this machine"):
        maker.make_folder(maker.read_card(card), [run], [run / "recipe.toml"], "int8", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="it is no folder of the zoo"):
        maker.make_folder(maker.read_card(card), [run], [run / "recipe.toml"], "int8", tmp_path / "mine")


def test_there_is_a_card_for_every_model(maker: Any) -> None:
    assert {file.stem for file in CARDS} == set(hub.ZOO) - {"qkv-mini"}, "whose card is older than the maker"


@pytest.mark.parametrize("page", ["zoo.md", "zoo.zh.md"])
def test_the_documents_list_what_is_shipped(maker: Any, page: str) -> None:
    file = ROOT / "docs" / page
    assert file.read_text(encoding="utf-8") == maker.write_table(file), "python bench/zoo_folder.py --table"
    assert all(f"| {name} |" in file.read_text(encoding="utf-8") for name in hub.ZOO)


def test_folders_travel_in_pieces(tmp_path: Path) -> None:
    """bench/zoo_gpu.py: under a limit, whole or refused."""
    travel = bench_module("zoo_gpu")
    content = Random(0).randbytes(50_000)  # packs to as much
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "weights").write_bytes(content)
    (tmp_path / "log.jsonl").write_text("{}\n")
    folders = travel.pack([tmp_path / "run", tmp_path / "log.jsonl"], tmp_path / "in", 30_000, 8_192, workers=1)
    assert len(folders) > 1 and [one.name for one in folders] == [f"in-{number + 1}" for number in range(len(folders))]
    sizes = [sum(file.stat().st_size for file in one.glob("*.xz")) for one in folders]
    assert all(size <= 30_000 for size in sizes)
    travel.unpack(folders, tmp_path / "out", workers=1)
    assert (tmp_path / "out" / "run" / "model" / "weights").read_bytes() == content
    assert (tmp_path / "out" / "log.jsonl").read_text() == "{}\n"
    with pytest.raises(SystemExit, match="name all of them"):
        travel.unpack(folders[1:], tmp_path / "other", workers=1)
    next(folders[0].glob("*.xz")).write_bytes(b"changed")
    with pytest.raises(SystemExit, match="is not what was packed"):
        travel.unpack(folders, tmp_path / "other", workers=1)
