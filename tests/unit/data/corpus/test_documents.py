"""Blocks of text: wherever they are cut, the documents are the same, and any block can be the first one read."""

import gzip
import json
import lzma
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from qkv.data.corpus import documents
from qkv.data.corpus.documents import Block, open_sources, read_blocks, read_documents
from qkv.errors import InputError

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
TEXT = "\n \nA title.\nFirst line.\r\n第二行。\n\n\nB\n\u3000\nC one\nC two\nC three\r\n\r\nD 𠮷\n  \n\nE"
DOCUMENTS = [["A title.", "First line.", "第二行。"], ["B"], ["C one", "C two", "C three"], ["D 𠮷"], ["E"]]


def joined(found: list[Block], field: str = "text") -> list[list[str]]:
    """The documents as lists of lines, put together as whoever reads blocks must."""
    result: list[list[str]] = []
    for block in found:
        text, begins, _ = read_documents(block, field)
        assert begins[0] == 0 and begins == sorted(begins)
        for number, (start, end) in enumerate(zip(begins, [*begins[1:], len(text)], strict=True)):
            lines = [line.strip() for line in text[start:end].split("\n") if line.strip()]
            if number or not block.goes_on or not result:
                result.append([])
            result[-1] += lines
    return [lines for lines in result if lines]


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("size", [*range(1, 40), 1000])
def test_the_cuts_change_nothing(tmp_path: Path, packing: str, size: int) -> None:
    file = tmp_path / f"a.txt{packing}"
    file.write_bytes(PACK[packing](TEXT.encode()))
    found = list(read_blocks(open_sources(file), size=size))
    assert b"".join(block.data for block in found) == TEXT.encode()
    assert joined(found) == DOCUMENTS
    for before, after in pairwise(found):
        assert before.after == after.place
        assert next(read_blocks(open_sources(file), after.place, size)) == after


def test_lines_and_shares_are_counted_over_several_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("1\n2\n\n4\n5", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"text": "x\\n\\ny"}\n\n{"text": ""}\n{"text": "z"}\n', encoding="utf-8")
    found = list(read_blocks(open_sources([tmp_path / "b.txt", str(tmp_path / "a.jsonl"), tmp_path / "b.txt"]), size=4))
    assert [(block.place.source, block.place.line) for block in found if block.place.source != 1] == [
        (0, 1), (0, 3), (0, 5), (2, 1), (2, 3), (2, 5)
    ]  # fmt: skip
    assert joined(found) == [["1", "2"], ["4", "5"], ["x", "y"], ["z"], ["1", "2"], ["4", "5"]]
    shares = [block.share for block in found]
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_an_object_is_a_document(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    rows = [{"body": "一\n\n二"}, {"body": "three", "text": 4}]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert joined(list(read_blocks(open_sources(file), size=5)), "body") == [["一", "二"], ["three"]]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf\n\xef\xbb\xbfa")
    [first, second] = read_blocks(open_sources(tmp_path / "a.txt"), size=4)
    assert read_documents(first) == ("\n", [0, 1], []) and read_documents(second)[0] == "\ufeffa"


@pytest.mark.parametrize("size", [3, 7, 1000])
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", "好\n好\n".encode() + "语言。\n".encode("gb18030") + b"ok\n", "line 3, byte 1 of the line .*GB18030"),
        ("a.txt", "a\n好".encode()[:-1], "line 2, byte 1 .*truncated"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": 3}\n', "line 3: field 'text' holds a number"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', "line 2 is not JSON"),
        ("a.jsonl", b'{"txt": "a"}\n', "line 1 has no field 'text', only 'txt'. Did you mean 'txt'"),
        ("a.txt.gz", gzip.compress(b"line\n" * 9999, mtime=0)[:-20], "damaged or truncated"),
        ("a.txt.xz", b"no xz", "damaged or truncated"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path: Path, name: str, data: bytes, message: str, size: int) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{name}.*{message}"):
        joined(list(read_blocks(open_sources(tmp_path / name), size=size)))


def test_wrong_names_show_at_once(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a")
    with pytest.raises(InputError, match="no file .*corpsu.txt. Did you mean 'corpus.txt'"):
        open_sources([tmp_path / "corpus.txt", tmp_path / "corpsu.txt"])
    with pytest.raises(InputError, match="is a folder; give the files in it"):
        open_sources(tmp_path)


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LONGEST_LINE", 1 << 20)
    (tmp_path / "a.txt").write_text("short\n" + "x" * (3 << 20))
    with pytest.raises(InputError, match="a.txt, line 2 is longer than 1 MB"):
        list(read_blocks(open_sources(tmp_path / "a.txt"), size=1 << 16))


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "utf-16-le"])
def test_other_encodings_in_blocks(tmp_path: Path, encoding: str) -> None:
    text = "".join(f"这是我们的第{number}个句子。\n你好，世界！\n\n" for number in range(400))
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    (tmp_path / "b.txt").write_bytes(text.encode())
    other, plain = ([*read_blocks(open_sources(tmp_path / name), size=1000)] for name in ("a.txt", "b.txt"))
    assert [block.data for block in other] == [block.data for block in plain] and len(plain) > 10
    again = [*read_blocks(open_sources(tmp_path / "a.txt"), other[7].place, size=1000)]
    assert [block.data for block in again] == [block.data for block in other[7:]], "resumed at a block"
