"""Files of SentencePiece, written byte by byte: what they hold, and what is wrong with damaged ones."""

from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.text.sentencepiece import NORMAL, UNKNOWN_KIND, UNUSED, VocabularyPiece, parse_model, read_model
from tests.unit.text.test_sentencepiece import CHARACTERS, MODEL, PIECES, charsmap, number, text


def test_a_file_gives_its_pieces_and_settings(tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(MODEL)
    model = read_model(tmp_path / "source.spm")
    assert len(model.pieces) == len(PIECES)
    assert model.pieces[0] == VocabularyPiece("<unk>", 0.0, UNKNOWN_KIND)
    assert model.pieces[4] == VocabularyPiece("▁chase", -4.0, NORMAL)
    assert model.pieces[17].kind == UNUSED
    assert model.charsmap == charsmap(CHARACTERS)
    assert model.add_dummy_prefix and model.remove_extra_whitespaces and not model.byte_fallback
    plain = parse_model(MODEL + text(3, number(3, 0) + number(4, 0)) + text(2, number(35, 1) + text(44, "?")))
    assert not plain.add_dummy_prefix and not plain.remove_extra_whitespaces
    assert plain.byte_fallback and plain.unknown_surface == "?"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a SentencePiece model (it holds no pieces)"),
        (MODEL[:-5], "is not a SentencePiece model (truncated: 5 bytes are missing)"),
        (b"just some text, not a model at all", "is not a SentencePiece model"),
        (b"\x80" * 20, "is not a SentencePiece model (invalid integer"),
        (number(1, 5), "is not a SentencePiece model (found the number 5 instead of text)"),
        (text(1, text(1, b"\xff")), "is not a SentencePiece model"),
        (MODEL + text(2, number(3, 2)), "a SentencePiece model of type byte-pair encoding; qkv reads unigram"),
        (MODEL + text(2, number(24, 1)), "with the space after a word"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "source.spm").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_model(tmp_path / "source.spm")
    assert message in str(caught.value) and "source.spm" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="source.spm cannot be read: No such file"):
        read_model(tmp_path / "source.spm")
