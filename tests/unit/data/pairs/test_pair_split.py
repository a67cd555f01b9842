import unicodedata

from qkv.data.pairs.files import folded, part_of, place


def test_shares_are_kept_and_nothing_moves() -> None:
    texts = [f"sentence number {number}" for number in range(4_000)]
    parts = [part_of(text, 0.1, 0.05) for text in texts]
    assert 320 < parts.count("dev") < 480 and 140 < parts.count("test") < 260
    # more for test takes from train alone
    more = [part_of(text, 0.1, 0.2) for text in texts]
    assert all(new == old for new, old in zip(more, parts, strict=True) if old != "train")
    assert set(map(place, ["……", "！！"])) <= {place("……"), place("！！")} and place("……") != place("！！")


def test_spellings_fall_together() -> None:
    assert place("Don't stop!") == place("don’t  STOP") == place("Ｄｏｎｔ ｓｔｏｐ")
    assert all(0 <= place(text) < 1 for text in ("", "a", "汉字"))


def test_letters_and_digits_alone() -> None:
    """Published splits hang on it: `str.isalnum` says what counts, also for marks, fractions and other scripts."""
    text = "A_b-c é ½ ² 汉字，々〇 ไทย नमस्ते ٣ 🐱 \u0301\u200b"
    assert folded(text) == "".join(one for one in unicodedata.normalize("NFKC", text).casefold() if one.isalnum())
    assert folded("_!") == "_!"
