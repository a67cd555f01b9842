"""Digits and the same reversed: right, different, the same for the same seed, and spread over the lengths."""

from collections import Counter
from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.jobs.translate.data import digit_pairs, write_digit_pairs


def test_every_target_is_its_source_reversed() -> None:
    pairs = digit_pairs(500, shortest=2, longest=7)
    for source, target in pairs:
        digits = source.split(" ")
        assert target.split(" ") == digits[::-1]
        assert 2 <= len(digits) <= 7 and all(digit in "0123456789" and len(digit) == 1 for digit in digits)
    assert len({source for source, _ in pairs}) == 500


def test_the_seed_decides() -> None:
    assert digit_pairs(50, seed=3) == digit_pairs(50, seed=3) != digit_pairs(50, seed=4)
    assert digit_pairs(80, seed=3)[:50] == digit_pairs(50, seed=3)


def test_every_length_is_there() -> None:
    lengths = Counter(len(source.split()) for source, _ in digit_pairs(1200, shortest=1, longest=6))
    assert lengths[1] == 10 and 80 < lengths[2] <= 100  # there are no more of them
    assert all(190 < lengths[length] < 360 for length in (3, 4, 5, 6))


def test_all_there_are_can_be_had() -> None:
    assert sorted(int(source) for source, _ in digit_pairs(10, shortest=1, longest=1)) == list(range(10))
    assert len(digit_pairs(110, shortest=1, longest=2)) == 110
    assert digit_pairs(0) == []
    assert {len(source.split()) for source, _ in digit_pairs(40, shortest=20, longest=22)} == {20, 21, 22}
    with pytest.raises(InputError, match="111 different rows of 1 to 2 digits were asked for, and there are 110"):
        digit_pairs(111, shortest=1, longest=2)
    for shortest, longest in ((0, 3), (4, 3)):
        with pytest.raises(InputError, match=f"Rows of {shortest} to {longest} digits cannot be"):
            digit_pairs(1, shortest=shortest, longest=longest)


def test_files_share_no_row(tmp_path: Path) -> None:
    files = write_digit_pairs(tmp_path / "digits", train=300, dev=40, test=40)
    rows = {name: file.read_text(encoding="utf-8").splitlines() for name, file in files.items()}
    assert {name: len(lines) for name, lines in rows.items()} == {"train": 300, "dev": 40, "test": 40}
    assert len(set().union(*rows.values())) == 380
    assert all(line.split("\t")[0] == line.split("\t")[1][::-1] for lines in rows.values() for line in lines)
    more = write_digit_pairs(tmp_path / "more", train=600, dev=40, test=40)
    assert more["test"].read_bytes() == files["test"].read_bytes()
    assert more["dev"].read_bytes() == files["dev"].read_bytes()
