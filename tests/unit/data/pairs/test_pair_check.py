"""Pairs before a training: everything that is wrong, by file and line, and nothing where nothing is."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from qkv.data.pairs.batching import Languages
from qkv.data.pairs.check import PAIR_FINDINGS, PairReport, check_pairs
from qkv.data.pairs.files import PairFiles
from qkv.errors import InputError
from qkv.text.subwords import train_subwords


def files(folder: Path, name: str, pairs: Sequence[tuple[str, str]]) -> PairFiles:
    for number, side in enumerate(("de", "en")):
        (folder / f"{name}.{side}").write_text("".join(pair[number] + "\n" for pair in pairs), encoding="utf-8")
    return PairFiles.of([folder / f"{name}.de", folder / f"{name}.en"])


def places(report: PairReport, kind: str) -> list[tuple[str, int]]:
    return [(Path(one.file).name, one.line) for one in report.findings if one.kind == kind]


GOOD = [(f"Ein Mann sieht {n} Hunde im Park.", f"A man sees {n} dogs in the park.") for n in range(30)]


def test_nothing_is_wrong(tmp_path: Path) -> None:
    report = check_pairs({"train": [files(tmp_path, "train", GOOD[:20])], "dev": [files(tmp_path, "dev", GOOD[20:])]})
    assert report.sound and report.pairs == 20 and not report.counts and not report.notes and not report.findings
    assert [(one.part, one.pairs, one.dropped) for one in report.files] == [("train", 20, 0), ("dev", 10, 0)]
    assert report.ratio is not None and 0.9 < report.ratio < 1.1 and report.several == 0
    source = report.characters["source"]
    assert source is not None and source.longest == 32 and report.tokens["source"] is None
    json.dumps(report.to_dict())


def test_everything_is_wrong(tmp_path: Path) -> None:
    train = [
        *GOOD[:20],
        ("", "Nothing on the other side."),  # 21
        ("ein mann sieht 3 hunde, im park", "A MAN sees 3 dogs in the park!"),  # 22, as line 4
        ("Ein Mann sieht 3 Hunde im Park.", "He sees three dogs."),  # 23, another translation
        ("This was never translated.", "This was never translated."),  # 24
        ("2 4 6 8 10 12 14", "2 4 6 8 10 12 14"),  # no letter: the same in all languages
        ("Ja", "This line belongs to some other sentence of the corpus."),  # 26
        ("Das ist schÃ¶n, sagt sie heute.", "That is nice, she says to\ufffdday."),  # 27
    ]
    dev = [("Ein Mann sieht 1 Hunde im Park.", "Other words for the same."), *GOOD[21:24]]
    test = [("Noch ein anderer Satz hier.", "A man sees 2 dogs in the park."), GOOD[21], *GOOD[24:26]]
    parts = {
        "train": [files(tmp_path, "train", train)],
        "dev": [files(tmp_path, "dev", dev)],
        "test": [files(tmp_path, "test", test)],
    }
    report = check_pairs(parts)
    assert set(report.counts) <= set(PAIR_FINDINGS) and not report.sound
    assert report.counts == {
        "empty": 1,
        "leak": 1,
        "leak of a reference": 1,
        "shared": 1,
        "repeated": 1,
        "untranslated": 1,
        "uneven": 1,
        "lost characters": 1,
        "mojibake": 1,
    }
    assert places(report, "empty") == [("train.de", 21)] and places(report, "leak") == [("dev.de", 1)]
    assert places(report, "leak of a reference") == [("test.de", 1)] and places(report, "shared") == [("test.de", 2)]
    assert places(report, "repeated") == [("train.de", 22)] and report.several == 1
    assert places(report, "untranslated") == [("train.de", 24)] and places(report, "uneven") == [("train.de", 26)]
    assert "train.de, line 4" in next(one.message for one in report.findings if one.kind == "repeated")
    assert len(check_pairs(parts, named=0).findings) == 0


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    """It is a finding, and what comes after it is looked at all the same."""
    train = files(tmp_path, "train", GOOD[:5])
    with (tmp_path / "train.de").open("a") as more:
        more.write("Eine Zeile zu viel.\n")
    report = check_pairs({"train": [train], "dev": [files(tmp_path, "dev", GOOD[:1])]})
    assert report.counts == {"unreadable": 1, "leak": 1, "leak of a reference": 1} and report.pairs == 5
    wrong = files(tmp_path, "other", [("a", "b")]).files[0]
    with pytest.raises(InputError, match="other.de, line 1: there is 1 text between tabs"):
        check_pairs({"train": [PairFiles.of(wrong)]})
    assert "line 6 of" in report.findings[0].message and report.findings[0].line == 0


def test_tokens_and_the_limit(tmp_path: Path) -> None:
    train = files(tmp_path, "train", [*GOOD[:10], (GOOD[10][0] * 2, GOOD[10][1])])
    bound = check_pairs({"train": [train]}, max_length=40)
    assert bound.notes[0].startswith("1 pairs have a side of 40 characters or more") and not bound.counts
    tokenizer = train_subwords([text for pair in GOOD for text in pair], 400)
    longest = len(tokenizer.encode_ids([GOOD[10][0] * 2])[0]) + 1
    languages = Languages.of(tokenizer, tokenizer)
    report = check_pairs({"train": [train]}, languages=languages, max_length=longest - 1)
    tokens = report.tokens["source"]
    assert tokens is not None and (tokens.longest, tokens.over, tokens.limit) == (longest, 1, longest - 1)
    assert report.counts == {"long": 1} and places(report, "long") == [("train.de", 11)]
    assert check_pairs({"train": [train]}, languages=languages, max_length=longest).sound


def test_nothing_at_all(tmp_path: Path) -> None:
    report = check_pairs({"train": [files(tmp_path, "train", [("x", ""), ("", "y")])]})
    assert report.pairs == 0 and not report.sound and report.ratio is None and "no pair with text" in report.notes[0]
