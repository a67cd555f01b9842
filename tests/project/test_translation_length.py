"""BLEU by length: groups, figures that are sacrebleu's, a model that forgets and one that does not, the program."""

import gzip
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from qkv.errors import InputError
from qkv.metrics.translation import bleu
from tests.support.bench_modules import bench_module

bench = bench_module("translation_length")

DRAW = np.random.default_rng(0)
REFERENCES = [" ".join(f"w{DRAW.integers(300)}" for _ in range(length)) for length in range(4, 24) for _ in range(12)]
SOURCES = REFERENCES  # a language of which nothing has to be known


def forgets(text: str, keeps: int) -> str:
    """Only the first words are remembered."""
    words = text.split()
    return " ".join([*words[:keeps], *("x" for _ in words[keeps:])])


SYSTEMS = {
    "fixed": [[forgets(text, 9) for text in REFERENCES]],
    "attention": [[forgets(text, 21) for text in REFERENCES], [forgets(text, 22) for text in REFERENCES]],
}


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    result: dict[str, object] = bench.measured(SOURCES, REFERENCES, SYSTEMS, "en")
    return result


def test_lengths() -> None:
    assert bench.length("Ein Mann, der liest .") == 5
    assert bench.length("一个人在读书 ok") == 7
    assert bench.length(" ") == 0


def test_groups_hold_every_sentence_once_and_none_is_too_small() -> None:
    lengths = np.array([3] * 30 + [9] * 25 + [11] * 4 + [13] * 40 + [40] * 5)
    found = bench.groups(lengths, bench.EDGES)
    assert sorted(np.concatenate([group["rows"] for group in found]).tolist()) == list(range(len(lengths)))
    assert [(group["from"], group["to"], group["sentences"]) for group in found] == [
        (3, 3, 30),
        (9, 11, 29),
        (13, 40, 45),
    ]
    assert bench.groups(np.array([2, 2]), [30])[0]["sentences"] == 2


def test_the_figures_are_those_of_the_sentences_of_a_group(found: dict[str, object]) -> None:
    systems, groups = found["systems"], found["groups"]
    assert isinstance(systems, dict) and isinstance(groups, list)
    for number, group in enumerate(groups):
        rows = [n for n, text in enumerate(SOURCES) if group["from"] <= bench.length(text) <= group["to"]]
        assert len(rows) == group["sentences"]
        texts = SYSTEMS["fixed"][0]
        expected = bleu([texts[n] for n in rows], [REFERENCES[n] for n in rows], "en").value
        score = systems["fixed"]["by_length"][number]
        assert score["bleu"] == pytest.approx(expected) and score["low"] <= expected + 1e-6 <= score["high"] + 1e-5
    everything = bleu(SYSTEMS["fixed"][0], REFERENCES, "en")
    assert systems["fixed"]["all"]["bleu"] == pytest.approx(everything.value)
    assert found["signature"] == everything.signature
    assert systems["attention"]["seeds"] == 2


def test_who_forgets_is_seen(found: dict[str, object]) -> None:
    systems = found["systems"]
    assert isinstance(systems, dict) and found["base"] == "fixed"
    fixed, attention = systems["fixed"], systems["attention"]
    assert fixed["kept"]["high"] < 0.75 < 0.9 < attention["kept"]["low"]
    first, *_, last = attention["above_base"]
    assert first["difference"] == pytest.approx(0, abs=1e-9) and first["p"] == 1
    assert last["low"] > 20 and last["p"] < 0.01
    assert all(one["difference"] == 0 for one in fixed["above_base"])


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(InputError, match="2 sources and 1 references"):
        bench.measured(["a", "b"], ["a"], {"fixed": [["a", "b"]]}, "en")
    with pytest.raises(InputError, match="fixed, file 2: 1 translations of 2 sources"):
        bench.measured(["a", "b"], ["a", "b"], {"fixed": [["a", "b"], ["a"]]}, "en")
    with pytest.raises(InputError, match="No translations were given"):
        bench.measured(["a"], ["a"], {}, "en")


def test_runs_hold_their_own_test_set(tmp_path: Path) -> None:
    for name, lines in (("a", ["s\tr\tt", "S\tR\tT"]), ("b", ["s\tr\tu", "S\tR\tU"]), ("c", ["s\tr\tu", "S\tQ\tU"])):
        (tmp_path / name).mkdir()
        text = "\n".join(["source\treference\ttranslation", *lines, ""])
        (tmp_path / name / "translations.tsv").write_text(text, encoding="utf-8")
    a, b, c = (str(tmp_path / name) for name in "abc")
    found = bench.gathered([f"one={a}", f"two={b}", f"one={b}"], None, None)
    assert found == (["s", "S"], ["r", "R"], {"one": [["t", "T"], ["u", "U"]], "two": [["u", "U"]]})
    with pytest.raises(InputError, match="c was judged by other references"):
        bench.gathered([f"one={a}", f"two={c}"], None, None)
    (tmp_path / "file.txt").write_text("x\ny\n", encoding="utf-8")
    assert bench.gathered([f"one={a}", f"two={tmp_path / 'file.txt'}"], None, None)[2]["two"] == [["x", "y"]]
    with pytest.raises(InputError, match="--source FILE --reference FILE"):
        bench.gathered([f"two={tmp_path / 'file.txt'}"], None, None)
    (tmp_path / "a" / "translations.tsv").write_text("source\treference\ttranslation\nx\ty\n", encoding="utf-8")
    with pytest.raises(InputError, match="translations.tsv, line 2: 2 columns where the first line names 3"):
        bench.of_run(tmp_path / "a")
    (tmp_path / "a" / "translations.tsv").write_text("x\ty\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 1: no column reference, source, translation"):
        bench.of_run(tmp_path / "a")
    with pytest.raises(InputError, match="cannot be read"):
        bench.of_run(tmp_path / "lost")


def test_the_program_writes_numbers_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["translation_length.py", *arguments])
        bench.main()
        return capsys.readouterr().out

    (tmp_path / "test.de.gz").write_bytes(gzip.compress("\n".join([*SOURCES, ""]).encode()))
    (tmp_path / "test.en").write_text("\n".join([*REFERENCES, ""]), encoding="utf-8")
    names: list[str] = []
    for name, seeds in [*SYSTEMS.items(), ("<mine> & 我的", SYSTEMS["fixed"])]:
        for number, texts in enumerate(seeds):
            file = tmp_path / f"{len(names)}-{number}.txt"
            file.write_text("\n".join([*texts, ""]), encoding="utf-8")
            names.append(f"{name}={file}")
    given = ["--source", str(tmp_path / "test.de.gz"), "--reference", str(tmp_path / "test.en")]
    printed = run(*names, *given, "--out", str(tmp_path / "out"))
    assert "BLEU by words of the source" in printed and "Above fixed" in printed
    numbers = json.loads((tmp_path / "out" / "translation_length.json").read_text(encoding="utf-8"))
    assert set(numbers["systems"]) == {"fixed", "attention", "<mine> & 我的"}
    for name, words in (("translation_length.svg", "words of the source"), ("translation_length.zh.svg", "原文的词数")):
        tree = ElementTree.parse(tmp_path / "out" / name)
        texts = ["".join(node.itertext()) for node in tree.iter("{http://www.w3.org/2000/svg}text")]
        assert words in texts and any("<mine> & 我的" in text for text in texts)
    with pytest.raises(SystemExit, match="2"):
        run("fixed", *given)
    assert "'fixed' is not name=RUN or name=FILE" in capsys.readouterr().err
    assert "Nothing was given to measure" in run()  # `make bench` runs every file without arguments
