"""The check of a corpus: every planted fault is found, on its line, and nothing else is."""

import gzip
import json
from pathlib import Path

import pytest

from qkv.data.corpus.check import CORPUS_FINDINGS, CorpusReport, check_corpus
from qkv.data.corpus.documents import BLOCK_BYTES
from qkv.data.same_texts import SameTexts
from qkv.errors import InputError
from tests.support.corpora import documents, write_corpus

LONG = "This line is long enough to be compared with others of its length."
SOUND = "The cat sat. 狗在这里。\nLine two.\n\nÅse è già naïve, café”…, ÆØÅ æøå.\n\n最后一个。Done."


def lines_of(report: CorpusReport, kind: str) -> list[int]:
    return [finding.line for finding in report.findings if finding.kind == kind]


def test_a_sound_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SOUND, encoding="utf-8")
    report = check_corpus(tmp_path / "a.txt")
    assert (report.files, report.documents, report.sentences) == (1, 3, 6)
    assert report.characters == sum(map(len, ["The cat sat.", "狗在这里。", "Line two.", "最后一个。", "Done."])) + len(
        "Åse è già naïve, café”…, ÆØÅ æøå."
    )
    assert report.bytes == len(SOUND.encode())
    assert report.counts == {} and report.findings == []
    assert report.single_sentence_documents == 1 and "1 of 3 documents have one sentence" in report.limits[0]
    assert sum(report.languages.values()) == pytest.approx(1, abs=1e-5)
    assert report.languages["zh"] == pytest.approx(8 / 44, abs=0.03)


FAULTY = [
    "The first document.",  # 1
    "It has lost \ufffd\ufffd something.",
    "",
    "CafÃ© and itâ€™s wrong.",  # 4
    "ä¸­å›½ too, and 锟斤拷.",
    "",
    "",
    "A bell \x07 and a NUL \x00.",  # 8
    LONG,
    "\u200b",
    "",
    "\u200b",  # 12
    "",
    "A sentence " + "without end " * 100,  # 14
    LONG + "\t",
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_fault_on_its_line(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(end.join(FAULTY).encode())
    report = check_corpus(tmp_path / "a.txt")
    assert {kind: lines_of(report, kind) for kind in report.counts} == {
        "lost characters": [2],
        "mojibake": [4, 5],
        "control": [8],
        "empty document": [12],
        "long sentence": [14],
        "repeated line": [15],
    }
    assert report.documents == 4
    assert [finding.message for finding in report.findings if finding.kind == "repeated line"] == [
        f"the same as {tmp_path / 'a.txt'}, line 9"
    ]


def test_objects(tmp_path: Path) -> None:
    rows = [json.dumps({"text": text}, ensure_ascii=False) for text in ("a\n\nb", "", "x \ufffd", "a\nb", LONG)]
    rows += ["{", '{"txt": 1}', "", json.dumps({"text": LONG})]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    report = check_corpus(tmp_path / "a.jsonl")
    assert {kind: lines_of(report, kind) for kind in report.counts} == {
        "object": [6, 7],
        "lost characters": [3],
        "empty document": [2],
        "repeated document": [4, 9],
        "repeated line": [9],
    }
    assert report.documents == 5


def test_bad_utf8_does_not_stop_it(tmp_path: Path) -> None:
    good = "好的一句。\n"
    (tmp_path / "a.txt").write_bytes((good * 3).encode() + good.encode("gb18030") * 2 + good.encode() + b"\xe5\xa5")
    report = check_corpus(tmp_path / "a.txt")
    assert lines_of(report, "encoding") == [4, 5, 7] and report.counts == {"encoding": 3}
    messages = [finding.message for finding in report.findings]
    assert "looks like GB18030; convert the file with" in messages[0] and "truncated" in messages[2]
    assert report.sentences > 3


def test_a_damaged_file_is_one_finding_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"line\n" * 9999)[:-9])
    (tmp_path / "b.txt").write_text("Fine.")
    report = check_corpus([tmp_path / "a.txt.gz", tmp_path / "b.txt"])
    assert report.counts["unreadable"] == 1 and "damaged or truncated" in report.findings[0].message
    assert report.sentences >= 1


def test_findings_are_counted_when_they_are_too_many_to_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("bad \ufffd\n" * 500, encoding="utf-8")
    report = check_corpus(tmp_path / "a.txt", named=3)
    assert report.counts["lost characters"] == 500 and lines_of(report, "lost characters") == [1, 2, 3]


def test_what_limits_pairs(tmp_path: Path) -> None:
    lines = [f"Line {number} is as long as a line can be that still counts as long." for number in range(150)]
    (tmp_path / "one.txt").write_text("\n".join(lines))
    report = check_corpus(tmp_path / "one.txt")
    assert report.documents == 1
    assert "one.txt has no blank line: its 150 long lines are one document" in report.limits[0]
    assert "one document only: negatives must come from the corpus" in report.limits[1]
    (tmp_path / "none.txt").write_text("\n\n \n")
    assert check_corpus(tmp_path / "none.txt").limits == ["there is no text to train on."]


def test_blocks_change_nothing(tmp_path: Path) -> None:
    """A file of several blocks, with a document larger than a block that comes a second time."""
    text = "\n".join(f"{number}: {LONG}" for number in range(40_000))
    assert len(text) > 2 * BLOCK_BYTES
    other = "\n\n".join(documents(13))
    (tmp_path / "a.txt").write_text(f"First.\n\n{text}\n\n{other}\n\n{text}\n\nBad \ufffd", encoding="utf-8")
    report = check_corpus(tmp_path / "a.txt")
    assert report.documents == 1 + 1 + 12 + 1 + 1
    assert lines_of(report, "long document") == [3, 3 + 40_000 + 1 + other.count("\n") + 2]
    assert lines_of(report, "repeated document") == lines_of(report, "long document")[1:]
    assert report.counts["repeated line"] == 40_000
    assert lines_of(report, "lost characters") == [report.findings[0].line]
    assert report.findings[0].line == (tmp_path / "a.txt").read_text(encoding="utf-8").count("\n") + 1


def test_it_is_told_and_can_be_written_down(tmp_path: Path) -> None:
    shares: list[float] = []
    report = check_corpus(
        [write_corpus(tmp_path / "a.txt"), write_corpus(tmp_path / "b.txt", seed=1)], progress=shares.append
    )
    assert shares == [0.5, 1.0]
    assert json.loads(json.dumps(report.to_dict(), ensure_ascii=False))["documents"] == report.documents == 78
    assert set(report.counts) <= set(CORPUS_FINDINGS)


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no files were given"):
        check_corpus([])
    with pytest.raises(InputError, match="There is no file"):
        check_corpus(tmp_path / "a.txt")


def test_texts_of_many_files() -> None:
    seen = SameTexts()
    for source in (0, 65_536, 1_000_000):
        seen.add(hash("a"), source, 1)
    assert [one.source for one in seen.repeated()] == [65_536, 1_000_000]


def test_repeated_texts_are_few_and_in_order() -> None:
    seen = SameTexts()
    assert list(seen.repeated()) == []
    for line, text in enumerate("abcabcxa"):
        seen.add(hash(text), line % 2, line)
    assert [(one.line, one.first_line) for one in seen.repeated()] == [(3, 0), (4, 1), (5, 2), (7, 0)]
