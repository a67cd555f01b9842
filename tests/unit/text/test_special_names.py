"""Vocabularies whose special tokens have other names than BERT's: RoBERTa's, XLM-R's, ALBERT's."""

import json
from pathlib import Path

import pytest
import tokenizers

from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import write_two_files
from tests.support.like_folders import TOKENIZERS, make_like_tokenizer


def test_two_files_of_byte_pairs_are_read_as_the_whole_is(tmp_path: Path) -> None:
    files = TOKENIZERS["roberta"]()
    bare = Tokenizer.load(write_two_files(tmp_path / "two", tokenizers.Tokenizer.from_str(files["tokenizer.json"])))
    whole = make_like_tokenizer("roberta")
    assert bare.marks == whole.marks and len(bare.marks.between) == 2 and bare.special_ids == whole.special_ids
    for text in ("the cat <mask> on", "to be, or not", "北京"):
        assert bare.encode(text, "a dog") == whole.encode(text, "a dog")


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "albert"])
def test_a_saved_one_is_the_same(tmp_path: Path, name: str) -> None:
    tokenizer = make_like_tokenizer(name)
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert (again.marks, again.kind, again.mask_id, again.pad_id) == (
        tokenizer.marks,
        tokenizer.kind,
        tokenizer.mask_id,
        tokenizer.pad_id,
    )
    given, written = TOKENIZERS[name](), {one.name: one.read_text() for one in (tmp_path / "saved").iterdir()}
    assert json.loads(written["tokenizer_config.json"]) == json.loads(given["tokenizer_config.json"])
    assert (
        json.loads(written["tokenizer.json"])["post_processor"] == json.loads(given["tokenizer.json"])["post_processor"]
    )
    assert "vocab.txt" not in written


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "albert"])
def test_offsets_leave_out_the_space_before_a_word(name: str) -> None:
    text, pair = "the  cat sat", "on the mat"
    found = make_like_tokenizer(name).encode(text, pair)
    sides = (text, pair)
    pieces = [sides[side][a:b] for side, (a, b) in zip(found.segments, found.offsets, strict=True) if a < b]
    assert all(piece and piece == piece.strip() for piece in pieces)
    assert {letter for piece in pieces for letter in piece} == set("thecatsatonthemat")
    assert found.segments[0] == 0 and found.segments[-1] == 1
