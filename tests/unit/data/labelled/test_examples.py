"""The example data that comes with the package is what its README says."""

import csv
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import qkv

FOLDER = Path(qkv.__file__).parent / "zoo" / "examples"
LANGUAGES = ["en", "zh"]
LABELS = set(
    "track_order cancel_order return_item refund_status change_address payment_problem product_question "
    "complaint_service account_access invoice_request".split()
)


DESKS = {"en": "sport economy science health culture".split(), "zh": "体育 财经 科技 健康 文化".split()}


def read(name: str) -> list[tuple[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, strict=True))
    assert rows[0] == ["text", "label"]
    assert all(len(row) == 2 for row in rows)
    return [(text, label) for text, label in rows[1:]]


def messages(language: str) -> list[tuple[str, str]]:
    return read(f"intents.{language}.csv")


def headlines(language: str) -> list[tuple[str, str]]:
    """Those to train on, then those to test on."""
    return [*read(f"news.{language}.csv"), *read(f"news.{language}.test.csv")]


def labels_of(rows: list[tuple[str, str]]) -> Counter[str]:
    return Counter(label for _, label in rows)


Kind = Callable[[str], list[tuple[str, str]]]


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split()).casefold()


def grams(text: str, size: int) -> set[str]:
    return {text[start : start + size] for start in range(len(text) - size + 1)}


def terms(text: str, language: str) -> set[str]:
    """What a rule could look for: words in English, one or two characters in Chinese."""
    return set(re.findall(r"\w+", text.lower())) if language == "en" else grams(text, 1) | grams(text, 2)


@pytest.mark.parametrize("name", [path.name for path in sorted(FOLDER.iterdir()) if path.is_file()])
def test_files_are_plain_utf8(name: str) -> None:
    raw = (FOLDER / name).read_bytes()
    text = raw.decode("utf-8")
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert "\r" not in text and "\ufeff" not in text and "\ufffd" not in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_label_has_enough_messages(language: str) -> None:
    counts = labels_of(messages(language))
    assert set(counts) == LABELS
    assert min(counts.values()) >= 30


@pytest.mark.parametrize("name", [f"{kind}.{language}" for kind in ("intents", "news") for language in LANGUAGES])
def test_labels_are_mixed(name: str) -> None:
    labels = [label for _, label in read(f"{name}.csv")]
    assert sum(a == b for a, b in pairwise(labels)) < len(labels) / 4
    assert set(labels[: len(labels) // 4]) == set(labels)


@pytest.mark.parametrize("language", LANGUAGES)
def test_headlines_of_every_desk(language: str) -> None:
    assert labels_of(read(f"news.{language}.csv")) == dict.fromkeys(DESKS[language], 40)
    assert labels_of(read(f"news.{language}.test.csv")) == dict.fromkeys(DESKS[language], 15)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", [messages, headlines])
def test_texts_are_clean_and_of_sane_length(kind: Kind, language: str) -> None:
    texts = [text for text, _ in kind(language)]
    assert all(text and text == text.strip() and text.isprintable() for text in texts)
    mean = sum(map(len, texts)) / len(texts)
    low, high = {"en": (40, 140), "zh": (12, 45)}[language]
    assert low < mean < high
    assert min(map(len, texts)) >= 4 and max(map(len, texts)) <= 400
    chinese = [bool(re.search(r"[\u4e00-\u9fff]", text)) for text in texts]
    assert all(chinese) if language == "zh" else not any(chinese)


def test_no_text_twice() -> None:
    counts = Counter(
        folded(text) for kind in (messages, headlines) for language in LANGUAGES for text, _ in kind(language)
    )
    assert [text for text, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("kind", "most"), [(messages, 0.4), (headlines, 0.2)])
def test_no_text_nearly_twice(kind: Kind, most: float, language: str) -> None:
    """Between the headlines to train on and to test on neither."""
    size = {"en": 4, "zh": 2}[language]
    parts = [(text, grams(folded(text), size)) for text, _ in kind(language)]
    near = [(a, b) for (a, in_a), (b, in_b) in combinations(parts, 2) if len(in_a & in_b) > most * len(in_a | in_b)]
    assert near == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", [messages, headlines])
def test_no_single_word_gives_a_label_away(kind: Kind, language: str) -> None:
    """No term that mostly means one label is in half of its texts."""
    rows = [(terms(text, language), label) for text, label in kind(language)]
    sizes = Counter(label for _, label in rows)
    overall = Counter(term for found, _ in rows for term in found)
    within = Counter((term, label) for found, label in rows for term in found)
    telling = [
        (term, label, count)
        for (term, label), count in within.items()
        if count >= sizes[label] / 2 and count > overall[term] / 2
    ]
    assert telling == []


def test_answers_stand_where_they_are_said_to_stand() -> None:
    data = json.loads((FOLDER / "passages.json").read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
    assert len(paragraphs) == 3
    for paragraph in paragraphs:
        context = paragraph["context"]
        assert 3 <= len(paragraph["qas"]) <= 4
        for question in paragraph["qas"]:
            assert question["question"].endswith(("?", "？")) and question["answers"]
            for answer in question["answers"]:
                start, text = answer["answer_start"], answer["text"]
                assert text and context[start : start + len(text)] == text
    ids = [question["id"] for paragraph in paragraphs for question in paragraph["qas"]]
    assert len(set(ids)) == len(ids)


def test_entities_are_characters_with_bio_tags() -> None:
    sentences = (FOLDER / "entities.zh.conll").read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    assert len(sentences) >= 40
    begun: Counter[str] = Counter()
    texts = []
    for sentence in sentences:
        before = "O"
        rows = [line.split("\t") for line in sentence.split("\n")]
        for character, tag in rows:
            assert len(character) == 1 and not character.isspace()
            assert tag in {"O", *(f"{part}-{kind}" for part in "BI" for kind in ("PER", "LOC", "ORG"))}
            if tag.startswith("I-"):
                assert before[1:] == tag[1:], f"{tag} after {before} in {sentence!r}"
            if tag.startswith("B-"):
                begun[tag[2:]] += 1
            before = tag
        texts.append("".join(character for character, _ in rows))
    assert len(set(texts)) == len(texts)
    assert set(begun) == {"PER", "LOC", "ORG"} and min(begun.values()) >= 15


def test_the_readme_tells_the_truth() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    assert named[:5] == DESKS["en"] and set(named[5:]) == LABELS
    assert re.findall(r"\| `(\w+)` \|$", page, re.MULTILINE) == DESKS["zh"]
    assert "200 rows" in page and "训练 200 条" in page
    for language in LANGUAGES:
        rows = messages(language)
        assert len(rows) == 360 and set(Counter(label for _, label in rows).values()) == {36}
    sentences = (FOLDER / "entities.zh.conll").read_text(encoding="utf-8").split("\n\n")
    assert f"{len(sentences)} short Chinese sentences" in page and f"{len(sentences)} 个中文短句" in page
