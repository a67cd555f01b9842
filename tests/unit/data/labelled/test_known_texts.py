"""Files of known texts."""

from pathlib import Path

import pytest

from qkv.data.labelled.examples import KnownTexts, hash_texts


def test_known_texts_are_found_again(tmp_path: Path) -> None:
    file = tmp_path / "texts.bin"
    KnownTexts.write(file, [("a", "b"), ("退款",), ("a", "b"), ("\ud800",)])
    known = KnownTexts.read(file)
    assert known is not None and file.stat().st_size == 24
    assert ("a", "b") in known and ("退款",) in known and ("ab",) not in known and ("b", "a") not in known
    assert hash_texts(("退款",)) == 0x1B3BC2C0F9624488, "the same on every machine"


@pytest.mark.parametrize("content", [None, b"", b"1234567"])
def test_files_that_are_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    assert KnownTexts.read(tmp_path / "a") is None
