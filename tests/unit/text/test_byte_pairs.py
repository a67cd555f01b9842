"""Tokenizers of GPT and GPT-2 (src/qkv/text/backend.py): read, used and saved as they are."""

from pathlib import Path

import pytest
import transformers

from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import TEXTS, gpt2_backend, gpt_backend, write_tokenizer_json, write_two_files

NASTY = [
    *TEXTS[:3],
    "",
    " ",
    "\n\n",
    " a  b ",
    "한국어 ﷽ 👩‍👩‍👧",
    "<|endoftext|>",
    "[SEP]",
    "caf\u0065\u0301",
    "\u200bx",
]


@pytest.mark.parametrize("write", [write_tokenizer_json, write_two_files])
def test_bytes_are_given_back_exactly(tmp_path: Path, write: object) -> None:
    assert callable(write)
    tokenizer = Tokenizer.load(write(tmp_path / "gpt2", gpt2_backend()))
    assert (tokenizer.kind, tokenizer.size, tokenizer.has_marks) == ("byte-pair", 300, True)
    for text in NASTY:
        ids = tokenizer.encode_ids([text])[0]
        assert ids == gpt2_backend().encode(text).ids
        assert tokenizer.decode(ids, skip_special=False) == text
    mark = tokenizer.id("<|endoftext|>")
    assert tokenizer.sep_id == tokenizer.cls_id == tokenizer.pad_id == mark
    assert tokenizer.encode_ids(["<|endoftext|>"]) == [[mark]]


def test_offsets_are_spans_of_characters_without_the_space_before() -> None:
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    for text in TEXTS[:3]:
        found = tokenizer.encode(text)
        assert found.ids[0] == found.ids[-1] == tokenizer.sep_id and found.offsets[0] == (0, 0)
        for token, (start, end) in zip(found.tokens[1:-1], found.offsets[1:-1], strict=True):
            piece = text[start:end]
            assert piece == piece.strip() or not piece.strip(), token
        covered = {place for start, end in found.offsets for place in range(start, end)}
        assert {place for place, character in enumerate(text) if not character.isspace()} <= covered


def test_marks_around_a_pair() -> None:
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    one, two = tokenizer.encode_ids(["the cat", "the mat"])
    found = tokenizer.encode("the cat", "the mat")
    mark = tokenizer.sep_id
    assert found.ids == [mark, *one, mark, *two, mark]
    assert (found.ids, found.segments) == tokenizer.with_special(one, two)


@pytest.mark.parametrize("write", [write_tokenizer_json, write_two_files])
def test_lower_case_words_without_a_mark(tmp_path: Path, write: object) -> None:
    assert callable(write)
    tokenizer = Tokenizer.load(write(tmp_path / "gpt", gpt_backend()))
    assert (tokenizer.kind, tokenizer.has_marks, tokenizer.lowercase) == ("byte-pair", False, True)
    ids = tokenizer.encode_ids(["The CAT sat."])[0]
    assert ids == gpt_backend().encode("The CAT sat.").ids
    assert tokenizer.decode(ids) == "the cat sat ."
    for special in (lambda: tokenizer.encode("the cat"), lambda: tokenizer.with_special(ids)):
        with pytest.raises(InputError, match="has no special token for the start and end of a text"):
            special()


@pytest.mark.parametrize("backend", [gpt2_backend, gpt_backend])
def test_transformers_reads_what_is_saved(tmp_path: Path, backend: object) -> None:
    assert callable(backend)
    tokenizer = Tokenizer(backend(), "byte-pair")
    tokenizer.save(tmp_path / "saved", max_length=64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    for text in NASTY:
        expected = backend().encode(text).ids
        assert theirs(text)["input_ids"] == expected  # and no marks that its makers did not put there
        assert again.encode_ids([text])[0] == expected
    assert (again.sep_id, again.has_marks) == (tokenizer.sep_id, tokenizer.has_marks)
    if again.has_marks:
        assert theirs.eos_token_id == again.sep_id


@pytest.mark.parametrize("backend", [gpt2_backend, gpt_backend])
def test_two_files_are_what_transformers_makes_of_them(tmp_path: Path, backend: object) -> None:
    assert callable(backend)
    folder = write_two_files(tmp_path / "two", backend())
    kind = transformers.GPT2Tokenizer if backend is gpt2_backend else transformers.OpenAIGPTTokenizer
    theirs, ours = kind.from_pretrained(folder), Tokenizer.load(folder)
    for text in NASTY:
        assert ours.encode_ids([text])[0] == theirs(text)["input_ids"]


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    folder = write_two_files(tmp_path / "two", gpt2_backend())
    (folder / "merges.txt").write_text("#version: 0.2\nno such\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"vocab.json and merges.txt next to it cannot be read"):
        Tokenizer.load(folder)
