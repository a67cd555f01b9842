"""The check of labelled files: every planted fault is found, on its line, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.labelled.check import LABELLED_FINDINGS, LabelledReport, check_labelled
from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "to", "##m", "in", "paris", "tom", "a"]


def written(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def lines(report: LabelledReport) -> dict[str, list[int]]:
    return {kind: [one.line for one in report.findings if one.kind == kind] for kind in report.counts}


SOUND = ["text,label", *(f"sound text {n},{'yes' if n % 2 else 'no'}" for n in range(20))]


def test_a_sound_file(tmp_path: Path) -> None:
    report = check_labelled(written(tmp_path / "a.csv", SOUND))
    assert (report.task, report.examples, report.labels) == ("classify", 20, {"no": 10, "yes": 10})
    assert report.counts == {} and report.findings == [] and report.notes == [] and report.sound
    assert report.characters is not None and (report.characters.median, report.characters.longest) == (13, 13)
    assert report.tokens is None and report.numbers is None
    assert json.loads(json.dumps(report.to_dict()))["files"][0]["read_as"] == "csv, text = 'text', label = 'label'"


def test_every_fault_on_its_line(tmp_path: Path) -> None:
    train = written(
        tmp_path / "train.csv",
        [
            *SOUND,  # lines 1 to 21
            "sound text 0,no",  # 22
            "Sound  text １,no",  # 23: another label; full width
            "slip,Yes",
            ",no",  # 25
            "no cell",
            "no label,",
            "lost \ufffd here,no",  # 28
            "CafÃ© there,no",
            "a bell \x07 rings,no",
            "这个来吧,no",  # 31
            "這個來吧,no",
            "我们说，你们听,no",
            "他们说,你们听,no",  # 34: a comma that parts columns
            '"那你说,我听",no',  # 35
        ],
    )
    test = written(tmp_path / "test.csv", ["text,label", "sound text 3,yes", "new,maybe", "new,maybe"])
    report = check_labelled([train], against=[test])
    assert lines(report) == {
        "unusable": [26, 27, 34],
        "leak": [2],
        "conflict": [23],
        "label typo": [24],
        "unknown label": [3, 4],
        "empty text": [25],
        "repeated": [22, 4],
        "lost characters": [28],
        "mojibake": [29],
        "control": [30],
        "script": [32],
        "letters": [23],
        "marks": [35],
    }
    assert list(report.counts) == [kind for kind in LABELLED_FINDINGS if kind in report.counts]  # the gravest first
    assert [(one.examples, one.dropped, one.against) for one in report.files] == [(30, 4, False), (3, 0, True)]
    typo = next(one for one in report.findings if one.kind == "label typo")
    assert typo.message == "'Yes' (1): is 'yes' (11) meant? (case)"
    assert sum(count for count in report.counts.values()) == sum(map(len, lines(report).values()))


def test_only_some_findings_are_named(tmp_path: Path) -> None:
    report = check_labelled(written(tmp_path / "a.csv", [*SOUND, *SOUND[1:]]), named=3)
    assert report.counts == {"repeated": 20} and lines(report) == {"repeated": [22, 23, 24]}


def test_labels_that_cannot_be_learned_from(tmp_path: Path) -> None:
    one = check_labelled(written(tmp_path / "a.csv", ["text,label", "a,x", "b,x"]))
    assert one.notes == ["All 2 examples have one label, 'x': there is nothing to distinguish."]
    rows = ["text,label", *(f"text {n},common" for n in range(60)), "another,rare", "one more,rare"]
    first, second = check_labelled(written(tmp_path / "b.csv", rows)).notes
    assert first.startswith("'common' has 60 examples, 'rare' has 2") and "1 of 2 labels have fewer than 10" in second


def test_a_slip_is_told_once_however_often_it_was_made(tmp_path: Path) -> None:
    rows = ["text,label", *(f"text {n},{label}" for n, label in enumerate(["yes", "no"] * 30 + ["Yes", "NO"] * 4))]
    path = written(tmp_path / "a.csv", rows)
    other = written(tmp_path / "b.csv", ["text,label", *(f"new {n},maybe" for n in range(5))])
    for named in (1, 2, 20):
        report = check_labelled(path, against=[other], named=named)
        assert report.counts == {"label typo": 2, "unknown label": 5}
    assert [(one.line, one.message) for one in report.findings][:2] == [
        (63, "'NO' (4): is 'no' (30) meant? (case)"),
        (62, "'Yes' (4): is 'yes' (30) meant? (case)"),
    ]


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (["text,label", "a,x", "b,x"], "All 2 examples have one label, 'x'"),
        (["text,label", "a,x"], "The only example has the label 'x': there is nothing to distinguish."),
        (["id,text", "1,a", "2,b"], "No labels were found"),
        (["text,label"], "has 0 examples."),
    ],
)
def test_what_teaches_nothing_is_not_sound(tmp_path: Path, rows: list[str], note: str) -> None:
    report = check_labelled(written(tmp_path / "a.csv", rows), "classify")
    assert not report.counts and not report.sound and note in " ".join(report.notes)


def test_a_finding_says_its_place_once(tmp_path: Path) -> None:
    report = check_labelled(written(tmp_path / "a.csv", [*SOUND, "no label,", '"open,1']))
    assert [(one.kind, one.line, one.message[:16]) for one in report.findings] == [
        ("unreadable", 0, "line 23: the quo"),
        ("unusable", 22, "has no label: 'l"),
    ]


def test_numbers(tmp_path: Path) -> None:
    report = check_labelled(written(tmp_path / "a.csv", ["text,score", "a,1.0", "b,2.5", "c,2.50"]))
    assert report.numbers == {"smallest": 1.0, "mean": 2.0, "largest": 2.5} and report.labels == {}


def test_a_file_without_labels_is_looked_at_all_the_same(tmp_path: Path) -> None:
    report = check_labelled(written(tmp_path / "a.csv", ["id,text", "1,a", "2,a"]), "classify")
    assert report.counts == {"repeated": 1} and report.notes[0].startswith("No labels were found")


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    report = check_labelled(written(tmp_path / "a.csv", ["text,label", "a,1", "b,2", '"open,1']))
    assert report.counts == {"unreadable": 1} and report.examples == 2
    assert "line 4: the quote before 'open" in report.findings[0].message


def test_spans(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "Tom in Paris", "label": [[0, 3, "PER"], [7, 12, "LOC"]]},
        {"text": "Tom in Paris a", "label": [[0, 4, "PER"], [7, 12, "LOC"]]},
        {"text": "in Paris", "label": [[0, 8, "LOC"], [3, 8, "LOC"]]},
        {"text": "Tom a", "label": [[0, 2, "PER"]]},
        {"text": "Tom", "label": [[0, 9, "PER"]]},
    ]
    tokenizer = Tokenizer.from_vocabulary(TOKENS)
    path = written(tmp_path / "a.jsonl", list(map(json.dumps, rows)))
    report = check_labelled(path, tokenizer=tokenizer, max_length=5)
    assert report.task == "tag" and report.labels == {"LOC": 4, "PER": 3}
    assert lines(report) == {"span": [5], "span overlap": [3], "span blank": [2], "span cut": [2, 4], "long": [2]}
    assert report.tokens is not None and (report.tokens.longest, report.tokens.limit, report.tokens.over) == (6, 5, 1)
    spans = [[3 * n, 3 * n + 2, "B" if n else "A"] for n in range(21)]
    uneven = check_labelled(written(tmp_path / "b.jsonl", [json.dumps({"text": "ab " * 21, "label": spans})]))
    assert uneven.notes[0].startswith("'B' has 20 spans, 'A' has 1: look at the F1 of each") and uneven.sound
    assert "1 of 2 labels have fewer than 10 spans" in uneven.notes[1]
    none = check_labelled(written(tmp_path / "c.jsonl", [json.dumps({"text": "ab", "label": []})]), "tag")
    assert none.notes == ["No example has a span: there is nothing to find."] and not none.sound


def test_questions_and_choices(tmp_path: Path) -> None:
    rows = [
        {"question": "q", "context": "Tom in Paris", "answers": [{"text": "Paris", "answer_start": 6}]},
        {"question": "r", "context": "Tom in Paris", "answers": []},
    ]
    tokenizer = Tokenizer.from_vocabulary(TOKENS)
    report = check_labelled(written(tmp_path / "a.jsonl", list(map(json.dumps, rows))), tokenizer=tokenizer)
    assert (report.task, report.labels) == ("answer", {"answered": 1, "no answer": 1})
    assert lines(report) == {"answer": [1]} and report.files[0].mended == 1
    assert report.tokens is not None and report.tokens.longest == 7  # [CLS] q [SEP] tom in paris [SEP]
    row = {"question": "q", "choices": ["a", "b"], "answer": 1}
    report = check_labelled(written(tmp_path / "b.jsonl", [json.dumps(row)]), tokenizer=tokenizer)
    assert (report.task, report.labels) == ("choice", {"choice 2 of 2": 1})


def test_what_is_not_labelled(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", ["A corpus.", "Of lines."])
    with pytest.raises(InputError, match="does not look labelled"):
        check_labelled(path)
    with pytest.raises(InputError, match="no files were given"):
        check_labelled([])


def test_chnsenticorp(shared_data: Path) -> None:
    """What the README of the data says: 338 texts of dev also stand in train."""
    folder = shared_data / "chnsenticorp"
    assert check_labelled(folder / "train.tsv", against=[folder / "dev.tsv"], named=0).counts["leak"] == 338
