import gzip
import string
from itertools import product
from pathlib import Path

import langcodes
import pytest

from qkv.errors import InputError
from qkv.metrics.translation import words_by
from qkv.text.languages import (
    COUNTRIES,
    LANGUAGE_CODES,
    LANGUAGE_NAMES,
    SLIPS,
    check_language,
    check_letters,
    detect_language,
    is_language,
)


@pytest.mark.parametrize("code", ["en", "DE", "zh", "zh-CN", "zh_Hans_CN", "pt-BR", "yue", "cmn", "und", " fr ", "kr"])
def test_codes(code: str) -> None:
    assert is_language(code)
    check_language(code, "--languages")
    words_by(code)  # whoever counts BLEU takes it as well


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("cn", "zh"),
        ("cn-zh", "zh"),
        ("jp", "ja"),
        ("CZ", "cs"),
        ("Chinese", "zh"),
        ("englisch", "en"),
        ("中文", "zh"),
        ("xx", None),
        ("e", None),
        ("", None),
        ("zh CN", None),
        ("12", None),
    ],
)
def test_what_is_none_is_refused(code: str, meant: str | None) -> None:
    with pytest.raises(InputError, match="is not a language code") as raised:
        check_language(code, "bitext.source_language")
    message = str(raised.value)
    assert message.startswith(f"bitext.source_language: '{code}'") and "zh (汉字), ja and ko" in message
    assert (f"Did you mean '{meant}'?" in message) if meant else ("Did you mean" not in message)


@pytest.mark.parametrize(
    ("code", "text", "meant"),
    [
        ("kr", "고양이가 자고 있다. OK!", "ko"),
        ("KR", "고양이", "ko"),
        ("tw", "貓在睡覺，還有 3 隻狗。", "zh-TW"),
        ("tw_TW", "貓", "zh-TW"),
        ("ch", "猫在睡觉", "zh"),
        ("kr", "Kǝla Kanuri-ye", None),
        ("kr", "猫在睡觉", None),
        ("tw", "Ɛte sɛn? 你好", None),
        ("tw", "1 2 3", None),
        ("zh", "고양이", None),
        ("und", "猫", None),
    ],
)
def test_a_code_that_the_letters_belie(code: str, text: str, meant: str | None) -> None:
    if meant is None:
        check_letters(code, [text], "--language")
        return
    with pytest.raises(InputError, match=f"^--language: '{code}' is .* Did you mean '{meant}'"):
        check_letters(code, ["", text], "--language")


def test_what_is_proposed_is_a_code() -> None:
    assert len(LANGUAGE_CODES) >= 184 and all(len(code) == 2 for code in LANGUAGE_CODES)
    assert {*LANGUAGE_NAMES.values(), *COUNTRIES.values()} <= LANGUAGE_CODES and not LANGUAGE_CODES & set(COUNTRIES)
    assert set(SLIPS) <= LANGUAGE_CODES and all(is_language(meant) for _, meant, _ in SLIPS.values())


def test_codes_of_two_letters_are_those_of_the_registry() -> None:
    pairs = ["".join(letters) for letters in product(string.ascii_lowercase, repeat=2)]
    assert {code for code in pairs if langcodes.tag_is_valid(code)} == LANGUAGE_CODES


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("zh", ["你好", "我爱 BERT", "東京大学", "他说：“OK！”"]),
        (
            "en",
            ["Tom", "What does 你好 mean?", "We flew to Los Angeles.", "Vincent van Gogh", "Come home.", "Die Hard"],
        ),
        ("en", ["Angela Merkel met Emmanuel Macron in Paris.", "The Rio de Janeiro carnival", "Nobody likes war."]),
        ("fr", ["Bonjour le monde", "Où est la gare ?", "Un homme en bleu avec son chien.", "Je ne sais pas"]),
        ("de", ["Guten Morgen!", "Drei Leute sitzen in einer Höhle.", "Wo ist der Bahnhof?", "Ich liebe dich"]),
        ("es", ["Dos hombres están jugando al fútbol en la playa.", "El perro come la manzana."]),
        ("it", ["Il gatto dorme sul divano e non si muove."]),
        ("pt", ["Quero um café, por favor, e não muito quente."]),
        ("ja", ["こんにちは", "東京は日本の首都です", "ＯＫです"]),
        ("zh", ["列奥纳多・达・芬奇的画", "奈雪の茶"]),
        ("ko", ["안녕하세요", "서울 is 서울입니다"]),
        ("ru", ["Привет, мир"]),
        ("", ["", "3 + 4 = 7", "😀!", "—", "π = 3.14"]),
    ],
)
def test_the_language_of_a_text(code: str, texts: list[str]) -> None:
    assert {text: detect_language(text) for text in texts} == dict.fromkeys(texts, code)


def test_english_is_not_taken_for_another_language(shared_data: Path) -> None:
    pairs = [
        line.split("\t") for line in (shared_data / "tatoeba_en_zh" / "cmn.txt").read_text("utf-8-sig").splitlines()
    ]
    few = [pair for pair in pairs if len(pair) > 1][::140]
    assert len(few) > 200
    assert [(pair[0], pair[1]) for pair in few if list(map(detect_language, pair[:2])) != ["en", "zh"]] == []
    for code, least in (("en", 1.0), ("fr", 0.99), ("de", 0.97)):
        lines = (
            gzip.decompress((shared_data / "multi30k" / f"test_2016_flickr.{code}.gz").read_bytes())
            .decode()
            .splitlines()
        )
        assert sum(detect_language(line) == code for line in lines[::5]) / len(lines[::5]) >= least, code
