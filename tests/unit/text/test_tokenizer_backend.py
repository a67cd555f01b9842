"""The parts of the Rust library: what a kind is made of, and how a file's kind is told."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, normalizers

from qkv.errors import InputError
from qkv.text.backend import build_backend, detect_kind, find_normalizer, special_ids, special_token_ids, state_of
from qkv.text.vocabulary import VOCABULARY_KINDS, Kind
from qkv.text.wordpiece import SPECIAL


@pytest.mark.parametrize("kind", VOCABULARY_KINDS)
def test_a_kind_is_recognised(kind: Kind) -> None:
    assert detect_kind(build_backend([*SPECIAL, "a"], kind, True), Path("here")) == kind


def test_a_run_of_chinese_is_one_word_when_it_is_not_cut() -> None:
    tokens = [*SPECIAL, "北京", "北", "京"]
    for cut, expected in ((True, ["北", "京"]), (False, ["北京"])):
        assert build_backend(tokens, "word", True, handle_chinese_chars=cut).encode("北京").tokens == expected


def test_a_foreign_kind_is_said() -> None:
    with pytest.raises(InputError, match="here holds a Unigram tokenizer"):
        detect_kind(tokenizers.Tokenizer(models.Unigram()), Path("here"))


def test_a_first_token_that_has_the_place_of_marks_is_none() -> None:
    for tokens, marks in ((["!", "a"], set()), (["!", "<|endoftext|>"], {1}), (["<unk>", "a"], {0})):
        ids = {token: number for number, token in enumerate(tokens)}
        backend = tokenizers.Tokenizer(models.BPE(ids, [], unk_token="<unk>" if "<unk>" in ids else None))
        assert special_token_ids(backend, special_ids(backend, "byte-pair", "here")[0]) == marks


def test_the_settings_of_a_normalizer() -> None:
    bert = state_of(normalizers.BertNormalizer(lowercase=False))
    assert bert["type"] == "BertNormalizer" and state_of(None) == {}
    for place in (bert, {"type": "Sequence", "normalizers": [{"type": "NFD"}, bert]}):
        assert find_normalizer(place, "BertNormalizer") == bert
    assert find_normalizer(None, "BertNormalizer") == find_normalizer(bert, "Lowercase") == {}
