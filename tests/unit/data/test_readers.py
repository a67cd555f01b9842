"""Reading lines: every kind of file, every way a file can be bad, and one line in memory at a time."""

import gzip
import io
import json
import lzma
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.data.readers import (
    encoding_note,
    numbered_lines,
    open_bytes,
    read_stdin,
    read_stdin_lines,
    read_texts,
    stream_placed_texts,
    stream_texts,
)
from qkv.errors import InputError

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
LINES = ["first", "", "第二行 with 𠮷 and 👩‍👧", "\u2028 and \x85 and \x0c are no line ends", "  spaces stay  "]


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("packing", PACK)
def test_text_line_by_line(tmp_path: Path, packing: str) -> None:
    file = write(tmp_path / f"a.txt{packing}", PACK[packing]("\n".join(LINES).encode()))
    assert list(stream_texts([file])) == LINES
    assert list(numbered_lines(file)) == list(enumerate(LINES, 1))


@pytest.mark.parametrize("packing", PACK)
def test_objects_line_by_line(tmp_path: Path, packing: str) -> None:
    rows = "\n\n".join(json.dumps({"id": 1, "text": line, "title": "t"}) for line in LINES)
    file = write(tmp_path / f"a.jsonl{packing}", PACK[packing](rows.encode()))
    assert list(stream_texts([file])) == LINES
    assert list(stream_texts([file], field="title")) == ["t"] * len(LINES)


def test_files_come_in_the_order_given_and_a_name_may_be_a_string(tmp_path: Path) -> None:
    b, a = write(tmp_path / "b.txt", "b1\nb2\n"), write(tmp_path / "a.TXT", "a1\n")
    assert list(stream_texts([str(b), a])) == ["b1", "b2", "a1"]
    assert list(stream_texts(b)) == list(stream_texts(str(b))) == ["b1", "b2"]
    assert list(stream_texts([])) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb", ["a", "\ufeffb"]),  # only at the beginning is it a byte order mark
        (b"\xef\xbb\xbf", [""]),
        (b"a\x00b\n", ["a\x00b"]),
    ],
)
def test_line_ends_and_byte_order_mark(tmp_path: Path, data: bytes, expected: list[str]) -> None:
    assert list(stream_texts([write(tmp_path / "a.txt", data)])) == expected


def test_byte_order_mark_before_an_object(tmp_path: Path) -> None:
    assert list(stream_texts([write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "a"}\r\n')])) == ["a"]


@pytest.mark.parametrize("packing", PACK)
def test_memory_does_not_follow_the_file(tmp_path: Path, packing: str) -> None:
    peaks = []
    for n in (10_000, 40_000):
        file = write(tmp_path / f"a.txt{packing}", PACK[packing](("中文 and a line like others\n" * n).encode()))
        tracemalloc.start()
        assert sum(1 for _ in stream_texts([file])) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 50_000


BAD: dict[str, tuple[str, bytes, str]] = {
    "GB18030": (
        "a.txt",
        "好的\n".encode() + "abc 我们的中国\n".encode("gb18030"),  # mixed; a file of GB18030 alone is read
        r"a\.txt, line 2, byte 5 of the line \(0xce\) is not UTF-8\. The line looks like GB18030; "
        r"convert the file with: iconv -f gb18030 -t utf-8 .*a\.txt > a\.utf8\.txt$",
    ),
    "GB18030 packed": (
        "a.txt.xz",
        lzma.compress("好\n".encode() + "我们的中国".encode("gb18030")),
        r"line 2, byte 1 of .* with: xz -dc .*a\.txt\.xz \| iconv -f gb18030 -t utf-8 > a\.utf8\.txt$",
    ),
    "GB18030 in JSON": (
        "a.jsonl",
        '{"text": "中国"}\n'.encode() + '{"text": "中国"}'.encode("gb18030"),
        "line 2, byte 11 .*GB18030.* > a.utf8.jsonl$",
    ),
    "Big5": ("a.txt", "這個國家的人說".encode("big5"), "looks like BIG5; .*iconv -f big5"),
    "Shift-JIS": ("a.txt", "価格が高すぎると思う".encode("shift_jis"), "looks like SHIFT_JIS; .*iconv -f shift_jis"),
    "EUC-JP": ("a.txt", "カメラの画質は良い".encode("euc-jp"), "looks like EUC-JP; .*iconv -f euc-jp"),
    "EUC-KR": ("a.txt", "배송이 너무 늦어요".encode("euc-kr"), "looks like EUC-KR; .*iconv -f euc-kr"),
    "Latin": ("a.txt", "déjà vu".encode("latin-1"), r"byte 2 .*0xe9.* WINDOWS-1252; .*iconv -f windows-1252"),
    "UTF-16": ("a.txt", "hello\x01\n".encode("utf-16"), "byte 1 .*0xff.* looks like UTF-16; .*iconv -f utf-16"),
    "noise": ("a.txt", b"a\n\xff\x80\xff\xff\n", "line 2, byte 1 .*0xff.* No common encoding fits"),
    "cut inside a character": ("a.txt", "中文".encode()[:-1], "line 1, byte 4 .* ends inside a character"),
    "not gzip": ("a.txt.gz", b"plain text", "damaged or truncated: decompression stops after line 0 .*gzip -t"),
    "gzip cut": ("a.txt.gz", gzip.compress(bytes(range(97, 123)) * 99)[:-9], "damaged or truncated"),
    "gzip damaged": ("a.txt.gz", gzip.compress(b"abc" * 99)[:-8] + b"12345678", "damaged or truncated.*CRC"),
    "gzip rotten": ("a.txt.gz", gzip.compress(b"abc" * 99)[:12] + b"\xff" * 40, "damaged or truncated"),
    "not xz": ("a.txt.xz", b"plain text", "damaged or truncated: decompression stops after line 0 .*xz -t"),
    "xz cut": ("a.txt.xz", lzma.compress(b"a\nb\n")[:-9], "damaged or truncated"),
    "xz empty": ("a.txt.xz", b"", "damaged or truncated"),
    "ending": ("a.csv", b"a", r"a.csv: .csv is not supported; use one of .txt, .txt.gz, .txt.xz, .jsonl, "),
    "ending under packing": ("a.csv.gz", gzip.compress(b"a"), r".csv is not supported"),
    "packing alone": ("a.gz", gzip.compress(b"a"), "a.gz: a name without suffix is not supported"),
    "no ending": ("a", b"a", "a: a name without suffix is not supported"),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n{"text": }\n', "line 2 is not JSON, column 10: Expecting value"),
    "one JSON document": ("a.jsonl", b'[\n{"text": "a"}\n]', "line 1 is not JSON.* write one object per line"),
    "no object": ("a.jsonl", b'\n["a"]', r'line 2 holds a list; each line must be an object such as {"text": "…"}'),
    "no field": ("a.jsonl", b'{"txet": "a", "id": 1}', "no field 'text', only 'txet', 'id'. Did you mean 'txet'?"),
    "empty object": ("a.jsonl", b"{}", "line 1 has no field 'text', only no fields"),
    "no string": ("a.jsonl", b'{"text": null}', "line 1: field 'text' holds a null, not a string"),
    "half a character": (
        "a.jsonl",
        b'{"text": "\\ud83d"}',
        r"'text' has the lone surrogate \\ud83d: it was truncated",
    ),
    "endless nesting": ("a.jsonl", b"[" * 100_000, "line 1 is not JSON"),
    "endless number": ("a.jsonl", b"1" * 5000, "line 1 is not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: Path, name: str) -> None:
    filename, data, message = BAD[name]
    file = write(tmp_path / filename, data)
    with pytest.raises(InputError, match=message):
        list(stream_texts([file]))


def test_both_halves_are_a_character(tmp_path: Path) -> None:
    assert list(stream_texts([write(tmp_path / "a.jsonl", b'{"text": "\\uD83D\\uDE00"}')])) == ["😀"]


def test_lines_before_a_bad_one_are_given(tmp_path: Path) -> None:
    stream = stream_texts([write(tmp_path / "a.txt", b"good\n\xff\n")])
    assert next(stream) == "good"
    with pytest.raises(InputError, match="line 2"):
        next(stream)


@pytest.mark.parametrize("read", [lambda path: stream_texts([path]), numbered_lines])
def test_bad_paths_are_told_before_anything_is_read(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    write(tmp_path / "corpus.txt", "a")
    with pytest.raises(InputError, match=r"There is no file .*corpsu.txt. Did you mean 'corpus.txt'\?$"):
        read(tmp_path / "corpsu.txt")
    with pytest.raises(InputError, match="There is no file .*nowhere/a.txt.$"):
        read(tmp_path / "nowhere" / "a.txt")
    with pytest.raises(InputError, match=r"is a folder; give the files in it, for example .*\*.txt"):
        read(tmp_path)


def test_the_last_of_many_paths_is_looked_at_first(tmp_path: Path) -> None:
    good = write(tmp_path / "a.txt", "a")
    with pytest.raises(InputError, match="There is no file"):
        stream_texts([good, tmp_path / "missing.txt"])


def test_a_file_that_goes_away(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a")
    stream = stream_texts([file])
    file.unlink()
    with pytest.raises(InputError, match="a.txt cannot be read: No such file"):
        list(stream)


def test_a_text_knows_its_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = write(tmp_path / "a.jsonl", '{"text": "one"}\n\n\n{"text": "two"}\n')
    b = write(tmp_path / "b.txt", "\nthree\n")
    assert list(stream_placed_texts([a, b])) == [(a, 1, "one"), (a, 4, "two"), (b, 1, ""), (b, 2, "three")]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert list(stream_placed_texts("~/b.txt")) == [(b, 1, ""), (b, 2, "three")]


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """What standard input will have."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


@pytest.mark.parametrize("data", [b"", b"a", b"\xef\xbb\xbfa\n\xef\xbb\xbfb", "猫\r\n\n \u2028 x\r\n\n".encode()])
def test_lines_of_standard_input_are_those_of_a_file(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    type_in(monkeypatch, data)
    assert list(read_stdin_lines()) == list(numbered_lines(tmp_path / "a.txt"))
    type_in(monkeypatch, data)
    found = [(text, place.replace("Standard input", str(tmp_path / "a.txt"))) for text, place in read_texts("-")]
    assert found == list(read_texts(tmp_path / "a.txt"))


def test_all_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "\ufeff春眠\n不觉晓\r\n\n".encode())
    assert read_stdin() == "春眠\n不觉晓"
    type_in(monkeypatch, b"")
    assert read_stdin() == ""
    type_in(monkeypatch, "a\n他".encode("gbk"))
    with pytest.raises(InputError, match="^Standard input is not UTF-8: byte 2 cannot be read.$"):
        read_stdin()


def test_standard_input_is_read_up_to_a_line_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "a\nb 他\n".encode("gbk"))
    found = read_texts("-")
    assert next(found) == ("a", "Standard input, line 1")
    with pytest.raises(InputError, match="^Standard input, line 2 is not UTF-8 at byte 3.$"):
        next(found)


def test_the_first_field_that_a_line_has(tmp_path: Path) -> None:
    """Also where another field's text reads like the name of one."""
    file = tmp_path / "a.jsonl.gz"
    rows = [{"text": "1", "prompt": "2"}, {"text": "prompt"}, {"prompt": "3"}]
    file.write_bytes(gzip.compress("\n\n".join(map(json.dumps, rows)).encode()))
    assert list(read_texts(file, "prompt", "text")) == [
        ("2", f"{file}, line 1"),
        ("prompt", f"{file}, line 3"),
        ("3", f"{file}, line 5"),
    ]
    with pytest.raises(InputError, match="line 5 has no field 'text', only 'prompt'"):
        list(read_texts(file, "text"))


REVIEWS = "文本,标签\n快递太慢，等了三天。,差评\n质量很好，下次还来,好评\n"
FRENCH = "text,label\nÇa m’a déçu à Zürich,bad\nTrès bien, c’est réussi: 5 €,good\n"


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [
        (REVIEWS, "gb18030", "GB18030"),
        (REVIEWS, "gbk", "GB18030"),
        (REVIEWS, "utf-16", "UTF-16"),
        (REVIEWS, "utf-16-le", "UTF-16"),
        (REVIEWS, "utf-16-be", "UTF-16"),
        ("a line of ASCII\n" * 40_000 + REVIEWS, "gb18030", "GB18030"),  # beyond the first sample
        (FRENCH, "cp1252", "Windows-1252"),
        (FRENCH, "utf-16-le", "UTF-16"),
    ],
)
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_other_encodings_are_read(tmp_path: Path, text: str, encoding: str, name: str, packing: str) -> None:
    file = write(tmp_path / f"a.txt{packing}", (gzip.compress if packing else bytes)(text.encode(encoding)))
    assert encoding_note(file) == f"read as {name}"
    assert [(number, line) for _, number, line in stream_placed_texts(file)] == list(enumerate(text.splitlines(), 1)), (
        "lines keep their numbers"
    )


@pytest.mark.parametrize(
    "data",
    [
        REVIEWS.encode(),
        b"plain ASCII\n",
        "這個國家的人說這個\n".encode("big5"),
        "안녕하세요 저는 한국어를 공부합니다. 정말 재미있어요\n".encode("euc-kr"),
        "これは日本語の文章です。今日は良い天気です\n".encode("euc-jp"),
        "これは日本語の文章です。今日は良い天気です\n".encode("shift-jis"),
        "Привет, как дела? Хорошо, спасибо\n".encode("cp1251"),
        "Привет, как дела? Хорошо, спасибо\n".encode("koi8-r"),
        "Příliš žluťoučký kůň úpěl ďábelské ódy\n".encode("cp1250"),
        "Zażółć gęślą jaźń, był łoś\n".encode("cp1250"),
        "Árvíztűrő tükörfúrógép, nő\n".encode("cp1250"),
        "Işık ılık, çok şeker ağaç\n".encode("cp1254"),
        b"good\n" * 300 + b"b\xe9d\n",  # a stray byte
        REVIEWS.encode() + REVIEWS.encode("gb18030"),  # mixed
        b"PAR1\x15\x04\x15\xb0\xe9\xa4" * 50,  # binary
        b"a\t\x00\n",
        "Mr. Côté and Mr. Bédard met in Montréal; Chloé’s café is “très bien”. ".encode() + b"caf\xe9\n",  # damaged
        "the fiancée’s résumé, a naïve cliché\n".encode().replace(b"\xc3\xaf", b"\xef"),
        REVIEWS.replace("\n", " ").encode()[:-9] + b"\xe5\n",
    ],
)
def test_what_is_not_plainly_another_encoding_is_utf8(tmp_path: Path, data: bytes) -> None:
    assert encoding_note(write(tmp_path / "a.txt", data)) == ""


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """The encoding is not looked for where what is read is gone."""
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"one\ntwo\n"))
    writer.start()
    assert list(stream_texts(pipe)) == ["one", "two"]
    writer.join()


def test_an_encoding_that_ends_within_the_file_names_the_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", REVIEWS.encode("gb18030") * 5_000 + b"a\n\xff\xff\n")
    with pytest.raises(InputError, match=r"a\.txt, line 15002 is not GB18030, as the beginning of the file is"):
        list(stream_texts(file))


def test_memory_of_a_conversion_does_not_follow_the_file(tmp_path: Path) -> None:
    peaks = []
    for n in (10_000, 40_000):
        file = write(tmp_path / f"{n}.txt", (REVIEWS * n).encode("gb18030"))
        tracemalloc.start()
        assert sum(1 for _ in stream_texts([file])) == 3 * n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 50_000


def test_a_position_in_a_converted_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", (REVIEWS * 5_000).encode("gb18030"))
    whole = (REVIEWS * 5_000).encode()
    with open_bytes(file) as stream:
        for place in (300_000, 7, 123_456, 123_457):
            stream.seek(place)
            assert stream.read(20) == whole[place : place + 20]


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="Standard input is closed"):
        read_stdin()
    with pytest.raises(InputError, match="Standard input is closed"):
        list(read_stdin_lines())
