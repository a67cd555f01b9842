"""The C tool's files: what is written comes back, what others write is read, and every fault names its place."""

import bz2
import gzip
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.errors import InputError
from qkv.models.word2vec.files import read_vector_file, write_vector_file

WORDS = ["</s>", "the", "café", "猫", "😀", "New_York", "\u3000", "a\u00a0b"]


def vectors(n: int = len(WORDS), width: int = 5) -> torch.Tensor:
    return torch.randn(n, width) * torch.logspace(-30, 30, width)


def record(word: bytes, *numbers: float) -> bytes:
    return word + b" " + struct.pack(f"<{len(numbers)}f", *numbers)


def refusal(path: Path, content: bytes | None = None, most: int | None = None) -> str:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_vector_file(path, most)
    message = str(caught.value)
    assert str(path) in message
    return message.replace(str(path), "FILE")


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin", "v.txt.gz", "v.bin.gz", "v.vec.bz2", "v.bin.xz"])
def test_what_is_written_comes_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    table = vectors()
    assert write_vector_file(tmp_path / name, WORDS, table) == tmp_path / name
    found = read_vector_file(tmp_path / name)
    assert found.words == WORDS and torch.equal(found.vectors, table) and found.notes == ()
    assert found.form == ("binary" if ".bin" in name else "text")
    assert read_vector_file(tmp_path / name, most=3).words == WORDS[:3]
    assert read_vector_file(tmp_path / name, most=99).words == WORDS
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_the_bytes_are_those_of_the_c_tool(tmp_path: Path) -> None:
    table = torch.tensor([[0.5, -2.0], [1.0, 0.25]])
    write_vector_file(tmp_path / "v.txt", ["a", "猫"], table)
    assert (tmp_path / "v.txt").read_bytes() == "2 2\na 0.5 -2\n猫 1 0.25\n".encode()
    write_vector_file(tmp_path / "v.bin", ["a", "猫"], table)
    expected = b"2 2\n" + record(b"a", 0.5, -2.0) + b"\n" + record("猫".encode(), 1.0, 0.25) + b"\n"
    assert (tmp_path / "v.bin").read_bytes() == expected


@pytest.mark.parametrize(
    "content",
    [
        b"2 2\na 0.5 -2 \nb 1 0.25 \n",  # as the C tool has it, a space before the line end
        b"2 2\r\na 0.5 -2\r\nb 1e0 2.5E-1\r\n",
        b"2 2\na\t0.5\t-2\nb\t1\t.25",  # tabs, and no line end
        b"a 0.5 -2\nb 1 0.25\n\n",  # GloVe: no header
        b"2 2\n" + record(b"a", 0.5, -2.0) + record(b"b", 1.0, 0.25),  # gensim: no line ends
        b"2 2\n" + record(b"a", 0.5, -2.0) + b"\n" + record(b"b", 1.0, 0.25) + b"\n\n",
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_what_others_write(tmp_path: Path, content: bytes, pack: type[bytes]) -> None:
    (tmp_path / "vectors").write_bytes(pack(content))  # neither form nor packing is taken from the name
    found = read_vector_file(tmp_path / "vectors")
    assert found.words == ["a", "b"] and found.vectors.tolist() == [[0.5, -2.0], [1.0, 0.25]]


def test_words_with_spaces_in_text(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9\n")  # as in GloVe 840B
    assert read_vector_file(tmp_path / "v.txt").words == ["the", ". . .", "at name@domain.com"]
    (tmp_path / "v.txt").write_text("3 2\n1984 1 2\nsilicon valley 3 4\nnot nan 5 6\n")
    assert read_vector_file(tmp_path / "v.txt").words == ["1984", "silicon valley", "not nan"]


def test_records_across_the_pieces_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(50, 7)
    words = [f"word{number}" * (1 + number % 5) for number in range(50)]
    write_vector_file(tmp_path / "v.bin", words, table)
    for piece in (1, 2, 3, 28, 29, 64):
        monkeypatch.setattr("qkv.models.word2vec.files.PIECE", piece)
        found = read_vector_file(tmp_path / "v.bin")
        assert found.words == words and torch.equal(found.vectors, table)


@pytest.mark.parametrize("first", [b"1\n\0\0", b"\n234", b"1234", b"0.5 ", bytes(4)])
def test_numbers_whose_bytes_look_like_text(tmp_path: Path, first: bytes) -> None:
    number = struct.unpack("<f", first)[0]
    (tmp_path / "v.bin").write_bytes(b"2 2\n" + record(b"a", number, 1e-3) + b"\n" + record(b"b", 0.0, 1.5))
    found = read_vector_file(tmp_path / "v.bin")
    assert found.form == "binary" and found.vectors[0].tolist() == pytest.approx([number, 1e-3])


def test_many_words_without_a_header(tmp_path: Path) -> None:
    lines = [f"w{number} {number} {-number} 0\n" for number in range(3000)]
    (tmp_path / "v.txt").write_text("".join(lines))
    found = read_vector_file(tmp_path / "v.txt")
    assert len(found.words) == 3000 and found.vectors[2999].tolist() == [2999.0, -2999.0, 0.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "FILE is empty"),
        (b"hello world\n", "FILE, line 1 is 'hello world', where the number of words and the width of a vector belong"),
        (b"\x89PNG\r\n\x1a\n", "FILE, line 1 is "),
        (b"2 2 2 x\n", "FILE, line 1 is '2 2 2 x'"),
        (b"2\na 1 2\n", "FILE, line 1 is '2'"),
        (b"-2 2\na 1 2\n", "FILE, line 1 is '-2 2'"),
        (b"0 2\n", "FILE, line 1 says 0 words of 2 numbers"),
        (b"999999999999999 999999999999999\na 1 2\n", "FILE, line 1 says 999,999,999,999,999 words"),
        (b"3 2\na 1 2\nb 3 4\n", "FILE ends at line 3, after 2 words; its first line says 3"),
        (b"1 2\na 1 2\nb 3 4\n", "FILE, line 3: more words follow than the 1 that line 1 says"),
        (b"2 3\na 1 2\nb 3 4\n", "FILE, line 2 has a word and 2 numbers, where line 1 says 3"),
        (b"2 2\na 1 2\nb 3", "FILE, line 3 has a word and 1 numbers, where line 1 says 2"),
        (b"2 2\na 1 2\n\nb 3 4\n", "FILE, line 3 has a word and 0 numbers"),
        (b"a 1 2 3\nb 1 2\n", "FILE, line 2 has a word and 2 numbers, where line 1 has 3"),
        (
            b"2 2\na .1 .2 .3\nb .3 .4 .5\n",
            "FILE, line 2 has a word and 3 numbers, where line 1 says 2. The line is too",
        ),
        (b"2 2\na 1 2\nb 1 3 4\n", "FILE, line 3 has a word and 3 numbers, where line 1 says 2"),
        (b"a .1 .2\nb c .1 .2 .3\n", "FILE, line 2 has a word and 3 numbers, where line 1 has 2"),
        (b"2 3 0\na .1 .2 .3\nb .3 .4 .5\n", "FILE, line 1 is '2 3 0', where the number of words"),
        (b"2 3 0.5\na .1 .2 .3\nb .3 .4 .5\n", "FILE, line 2 has a word and 3 numbers, where line 1 has 2"),
        (b"2 2\na 1 2\nb 3 4x\n", "FILE, line 3: '4x' is not a number"),
        (b"2 2\na 1 2\nb 3 1,5\n", "FILE, line 3: '1,5' is not a number"),
        (b"2 2\na 1 2\nb nan 4\n", "FILE, line 3: the vector of 'b' holds NaN or infinity (1 such vectors in all)"),
        (b"2 2\na 1 1e99\nb 3 4\n", "FILE, line 2: the vector of 'a' holds NaN or infinity"),
        ("2 2\n中国 1 2\n国王 3 4\n".encode("gbk"), "FILE: 2 of 2 words are not UTF-8, the first at line 2"),
    ],
)
def test_faults_of_text_name_their_line(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refusal(tmp_path / "v.txt", content)


A, B = record(b"a", 1.0, 2.0) + b"\n", record(b"bb", 3.0, 4.0) + b"\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"3 2\n" + A + B, "FILE ends at byte 27, after 2 words; its first line says 3"),
        (b"2 2\n" + A + B[:-3], "FILE ends at byte 24, inside the vector of 'bb', after 1 words"),
        (b"2 2\n" + A + B[:1], "FILE ends at byte 16, inside a word, after 1 words"),
        (b"1 2\n" + A + B, "FILE, byte 14: 11 bytes or more follow the 1 words that line 1 says"),
        (b"2 2\n" + A + record(b"b", float("nan"), 0.0), "FILE, byte 15: the vector of 'b' holds NaN or infinity"),
        (b"2 2\n" + A + record(b"b", float("-inf"), 0.0), "FILE, byte 15: the vector of 'b' holds NaN"),
        (b"9 2\n" + b"x" * 5000 + A, "FILE, byte 4: no word begins here. The width on line 1 (2) is wrong"),
    ],
)
def test_faults_of_binary_name_their_byte(tmp_path: Path, content: bytes, message: str) -> None:
    found = refusal(tmp_path / "v.bin", content)
    assert message in found


@pytest.mark.parametrize("width", [3, 7, 13])
def test_a_wrong_width_is_no_silent_nonsense(tmp_path: Path, width: int) -> None:
    write_vector_file(tmp_path / "v.bin", [f"word{number}" for number in range(100)], torch.randn(100, 8))
    content = (tmp_path / "v.bin").read_bytes().replace(b"100 8\n", f"100 {width}\n".encode(), 1)
    assert refusal(tmp_path / "v.bin", content)


@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_words_that_stand_twice_or_cannot_be_read_are_told(tmp_path: Path, name: str) -> None:
    words = [f"w{number}" for number in range(300)]
    table = torch.randn(303, 2)
    write_vector_file(tmp_path / name, [*words, "QQ", "QR", "w9x"], table)
    content = (tmp_path / name).read_bytes()
    # two words doubled, and one cut in the middle of a character, as the C tool does to long ones
    content = content.replace(b"\nQQ ", b"\nw3 ").replace(b"\nQR ", b"\nw4 ").replace(b"\nw9x ", b"\n\xe7\x8c? ")
    (tmp_path / name).write_bytes(content)
    found = read_vector_file(tmp_path / name)
    assert found.words == words and torch.equal(found.vectors, table[:300])
    unit = "line" if name == "v.txt" else "byte"
    twice, broken = found.notes
    assert twice.startswith(f"{tmp_path / name}, {unit} ")
    assert f"'w3' stands at {unit} " in twice and "the first one counts (1 more like it)" in twice
    assert broken.startswith(f"{tmp_path / name}, {unit} ") and "not UTF-8 and is left out" in broken
    if unit == "line":
        assert ", line 302: 'w3' stands at line 5 already" in twice and ", line 304: " in broken


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_that_was_cut(tmp_path: Path, pack: type[bytes]) -> None:
    content = b"500 3\n" + b"".join(record(b"w%d" % number, *np.random.randn(3)) for number in range(500))
    assert "cannot be unpacked to its end" in refusal(tmp_path / "v.gz", pack(content)[:-40])


def test_damage_inside_a_packed_file(tmp_path: Path) -> None:
    content = b"500 3\n" + b"".join(record(b"w%d" % number, *np.random.randn(3)) for number in range(500))
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        packed = bytearray(pack(content))
        packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
        assert "damaged" in refusal(tmp_path / "v", bytes(packed))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "v.txt")
    (tmp_path / "folder").mkdir()
    assert "cannot be read" in refusal(tmp_path / "folder")
    with pytest.raises(InputError, match="must be at least 1"):
        read_vector_file(tmp_path / "v.txt", 0)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for word in ("New York", "", "a\nb"):
        with pytest.raises(InputError, match="cannot stand in a file of word vectors"):
            write_vector_file(tmp_path / "v.txt", ["a", word], torch.ones(2, 2))
    with pytest.raises(InputError, match=r"Cannot tell what to write into 'v\.npy'"):
        write_vector_file(tmp_path / "v.npy", ["a"], torch.ones(1, 2))
    with pytest.raises(InputError, match=r"Did you mean '\.bin'\?"):
        write_vector_file(tmp_path / "v.bim.gz", ["a"], torch.ones(1, 2))
    with pytest.raises(InputError, match="cannot be written"):
        (tmp_path / "file").write_text("")
        write_vector_file(tmp_path / "file" / "v.bin", ["a"], torch.ones(1, 2))
    with pytest.raises(ValueError, match="each word needs its vector"):
        write_vector_file(tmp_path / "v.txt", ["a"], torch.ones(2, 2))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
