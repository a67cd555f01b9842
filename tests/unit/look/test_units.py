"""What can be clicked: words, 汉字 and signs, whatever a text is made of. The page's own rule: tests/browser."""

import pytest

from qkv.look.recording import split_units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\u3000\ufeff", []),
        ("The cat's mat.", ["The", "cat's", "mat", "."]),
        (
            "Python是一种3.5元的don't-know，_x_",
            ["Python", "是", "一", "种", "3.5", "元", "的", "don't-know", "，", "_x_"],
        ),
        ("a-，-b", ["a", "-", "，", "-", "b"]),
        ("'a' x..y", ["'", "a", "'", "x", ".", ".", "y"]),
        ("cafe\u0301s naïve", ["cafe\u0301s", "naïve"]),
        ("𠮷野家々〇", ["𠮷", "野", "家", "々", "〇"]),
        ("[MASK]国[MASK] [mask]", ["国", "[", "mask", "]"]),
        ("😀 ok", ["😀", "ok"]),
        ("👨‍👩‍👧x👍🏽❤️🇨🇳🇨", ["👨‍👩‍👧", "x", "👍🏽", "❤️", "🇨🇳", "🇨"]),
        ("ひらがな カタカナ 한글", ["ひらがな", "カタカナ", "한글"]),
    ],
)
def test_units(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in split_units(text)] == expected
