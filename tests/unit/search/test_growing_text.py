"""A growing text is what the whole decodes to, in whole characters."""

from collections.abc import Sequence

import pytest

from qkv.search import sampling
from qkv.search.sampling import REPLACEMENT, GrowingText, decode_continuation
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import gpt2_backend, gpt_backend
from tests.support.folders import make_tokenizer

TEXTS = ["the cat sat on the mat.", "他欠我100万元，我不欠他。the 😀!", "今天😀很好 the cat 。a"]


def tokenizers() -> list[Tokenizer]:
    return [
        make_tokenizer(),
        Tokenizer(gpt2_backend(), "byte-pair"),
        Tokenizer(gpt_backend(), "byte-pair"),
        Tokenizer.train(TEXTS, "character", 200, lowercase=False),
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_add_up_to_the_text(number: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_DECODED", 6)  # so that what was shown is let go of in between
    monkeypatch.setattr(sampling, "CONTEXT", 3)
    tokenizer = tokenizers()[number]
    ids = tokenizer.encode_ids([text])[0]
    for cut in range(len(ids) - 1):
        growing = GrowingText(tokenizer.decode, ids[:cut])
        pieces = [growing.add(id) for id in ids[cut:]]
        pieces.append(growing.rest())
        if not tokenizer.decode(ids[:cut]).endswith(REPLACEMENT):  # a prompt is whole characters
            assert "".join(pieces) == decode_continuation(tokenizer.decode, ids[:cut], ids[cut:])
            assert REPLACEMENT not in "".join(pieces)


def test_bytes_are_held_back_until_they_are_a_character() -> None:
    tokenizer = Tokenizer(gpt2_backend(), "byte-pair")
    ids = tokenizer.encode_ids(["鱼"])[0]
    assert len(ids) == 3
    growing = GrowingText(tokenizer.decode)
    assert [growing.add(id) for id in ids] == ["", "", "鱼"] and growing.rest() == ""
    cut = GrowingText(tokenizer.decode)
    assert [cut.add(id) for id in ids[:2]] == ["", ""] and cut.rest() == tokenizer.decode(ids[:2])


def test_only_some_tokens_are_decoded_each_time() -> None:
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "x" * len(ids)

    growing = GrowingText(decode)
    assert "".join(growing.add(1) for _ in range(1_000)) == "x" * 1_000
    assert longest <= sampling.MOST_DECODED + 1
