import unicodedata

from qkv.data.pairs.files import choose_part, fold_to_letters, hash_to_unit


def test_shares_are_kept_and_nothing_moves() -> None:
    texts = [f"sentence number {number}" for number in range(4_000)]
    parts = [choose_part(text, 0.1, 0.05) for text in texts]
    assert 320 < parts.count("dev") < 480 and 140 < parts.count("test") < 260
    # more for test takes from train alone
    more = [choose_part(text, 0.1, 0.2) for text in texts]
    assert all(new == old for new, old in zip(more, parts, strict=True) if old != "train")
    assert set(map(hash_to_unit, ["……", "！！"])) <= {hash_to_unit("……"), hash_to_unit("！！")} and hash_to_unit(
        "……"
    ) != hash_to_unit("！！")


def test_spellings_fall_together() -> None:
    assert hash_to_unit("Don't stop!") == hash_to_unit("don’t  STOP") == hash_to_unit("Ｄｏｎｔ ｓｔｏｐ")
    assert all(0 <= hash_to_unit(text) < 1 for text in ("", "a", "汉字"))


def test_letters_and_digits_alone() -> None:
    """Published splits hang on it: `str.isalnum` says what counts, also for marks, fractions and other scripts."""
    text = "A_b-c é ½ ² 汉字，々〇 ไทย नमस्ते ٣ 🐱 \u0301\u200b"
    assert fold_to_letters(text) == "".join(
        one for one in unicodedata.normalize("NFKC", text).casefold() if one.isalnum()
    )
    assert fold_to_letters("_!") == "_!"
