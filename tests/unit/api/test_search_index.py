"""Search by vectors: exact search against the plain matrix product, passages, files, rerankers, and what goes wrong."""

import json
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv.api.search_index as search_index
from qkv import InputError, Model, SearchIndex, load
from qkv.api.index_folder import INDEX_FILE, PASSAGE_FILE, TEXT_FILE, VECTOR_FILE
from qkv.api.index_texts import Files
from tests.support.folders import make_folder
from tests.support.task_folders import task_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS_ = (
    "the cat sat on the mat.", "他欠我100万元", "paris is the capital of france", "北京是中国的首都", "the dog",
    "人工智能很好", "猫爱吃鱼", "she owes me money 😀", "今天天气不好", "the animal didn't cross the street",
)  # fmt: skip
LONG = " ".join(f"the {word} is too tired because it was unhappy ." for word in ("cat", "dog", "animal", "street") * 12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(make_folder(tmp_path_factory.mktemp("model") / "bert"), device="cpu")


@pytest.fixture(scope="module")
def index(model: Model, tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    return SearchIndex.build([*TEXTS_, LONG], tmp_path_factory.mktemp("index") / "texts", model, passage=16)


def expected(index: SearchIndex, model: Model, query: str, k: int) -> list[int]:
    """The rows of the passages by the plain matrix product of the stored vectors."""
    vectors = np.load(index.folder / VECTOR_FILE).astype(np.float64)
    scores = vectors @ model.embed([query], normalize=True).vectors[0].astype(np.float64)
    return sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]


def test_hits_are_those_of_the_matrix_product(index: SearchIndex, model: Model) -> None:
    for query in ("猫", "the capital of china", "money"):
        rows = expected(index, model, query, 5)
        spans = np.load(index.folder / PASSAGE_FILE)[rows].tolist()
        hits = index.search(query, k=5, passages=True)
        assert [[one.number, one.start, one.end] for one in hits] == spans
        vector = model.embed([query], normalize=True).vectors[0]
        for one in hits:
            again = model.embed([one.text], normalize=True).vectors[0]
            assert one.score == one.similarity == pytest.approx(float(vector @ again), abs=2e-3)  # float16


def test_a_text_finds_itself(index: SearchIndex) -> None:
    for number, text in enumerate(TEXTS_):
        best = index.search(text, k=1)[0]
        assert (best.number, best.text, best.start, best.end, best.length) == (number, text, 0, len(text), len(text))
        assert best.score == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("block", "scores"), [(1, 1), (3 * 32 * 4, 7), (1 << 22, 1 << 23)])
@pytest.mark.parametrize("passages", [False, True])
def test_blocks_do_not_change_hits(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch, block: int, scores: int, passages: bool
) -> None:
    """A long text lies across many blocks, and is one hit all the same."""
    queries = ["猫", "the cat is unhappy", LONG]
    wanted = [one.to_dict() for hits in index.search(queries, k=4, passages=passages) for one in hits]
    monkeypatch.setattr(search_index, "_BLOCK_BYTES", block)
    monkeypatch.setattr(search_index, "_SCORES", scores)
    found = [one.to_dict() for hits in index.search(queries, k=4, passages=passages) for one in hits]
    assert found == wanted
    if not passages:
        assert all(len({one.number for one in index.search(query, k=11)}) == 11 for query in queries)


def test_one_query_or_several(index: SearchIndex) -> None:
    several = index.search(["猫", "money"], k=3)
    for hits in several:
        alone = index.search(hits.query, k=3)
        assert [one.number for one in hits] == [one.number for one in alone]
        assert [one.score for one in hits] == pytest.approx([one.score for one in alone], abs=1e-6)
    assert [one.query for one in several] == ["猫", "money"] and index.search([]) == []
    assert "<td>" in several[0]._repr_html_() and "passages" in repr(index)


def test_long_texts_are_cut_into_passages(index: SearchIndex, model: Model) -> None:
    spans = np.load(index.folder / PASSAGE_FILE)
    own = spans[spans[:, 0] == len(TEXTS_)][:, 1:].tolist()
    assert len(own) > 10 and own[0][0] == 0 and own[-1][1] == len(LONG)
    assert all(start <= end for (_, end), (start, _) in pairwise(own))  # no character is outside of all
    assert all(len(model.tokenizer.encode_ids([LONG[start:end]])[0]) <= 16 for start, end in own)
    best = index.search("the street is too tired", k=1)[0]
    assert best.number == len(TEXTS_) and best.text == LONG[best.start : best.end] and best.length == len(LONG)
    assert index[best.number].text == LONG


def test_passages_end_between_words(index: SearchIndex) -> None:
    spans = np.load(index.folder / PASSAGE_FILE)
    for _, start, end in spans[spans[:, 0] == len(TEXTS_)].tolist():
        assert not (start and LONG[start - 1].isalnum()) and not LONG[start].isspace()
        assert end == len(LONG) or not (LONG[end - 1].isalnum() and LONG[end].isalnum())


def test_files_of_every_kind(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("猫爱吃鱼\n\nthe dog\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text('id,评论,stars\n7,"天气很好, 中国",5\n8,,1\n', encoding="utf-8")
    (tmp_path / "c.jsonl").write_text('{"text": "paris", "when": null, "tags": ["x"]}\n', encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.txt").write_text("the capital\nof france\n", encoding="utf-8")
    (tmp_path / "docs" / "notes.md").write_text("no", encoding="utf-8")
    names = ["a.txt", "b.csv", "c.jsonl", "docs"]
    built = SearchIndex.build([tmp_path / name for name in names], tmp_path / "index", model)
    found = [
        (Path(one.file).name, one.line, one.text, one.columns) for one in map(built.__getitem__, range(len(built)))
    ]
    assert found == [
        ("a.txt", 1, "猫爱吃鱼", {}),
        ("a.txt", 3, "the dog", {}),
        ("b.csv", 2, "天气很好, 中国", {"id": "7", "stars": "5"}),
        ("c.jsonl", 1, "paris", {"when": None, "tags": ["x"]}),
        ("one.txt", None, "the capital\nof france", {}),
    ]
    assert built.built is not None and built.built.n_left_out == 2
    assert built.built.left_out == [f"{tmp_path}/a.txt, line 2 is empty", f"{tmp_path}/b.csv, line 3 is empty"]
    assert f"{tmp_path}/b.csv: csv, text = '评论'" in built.built.notes and "notes.md" in built.built.notes[-1]
    sources = built.facts["sources"]
    assert [Path(one["file"]).name for one in sources] == ["a.txt", "b.csv", "c.jsonl", "one.txt"]
    for name in names[:3]:
        (tmp_path / name).unlink()  # texts are in the index
    assert SearchIndex.open(tmp_path / "index", model).search("paris", k=1)[0].columns["tags"] == ["x"]
    with pytest.raises(InputError, match="has no column 'text' for the text|no column 'text'"):
        SearchIndex.build([tmp_path / "docs" / "one.txt"], tmp_path / "x", model, text="text")


def test_texts_of_python(model: Model, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"title": "A", "text": "the cat"},
        {"title": "B", "text": None},
        {"title": "C\ud83d", "text": "猫", "n": np.float32(2), "flag": np.bool_(True)},
    ]
    index = SearchIndex.build(rows, tmp_path / "rows", model)
    assert [index[number].columns for number in range(2)] == [
        {"title": "A"},
        {"title": "C\ud83d", "n": 2.0, "flag": True},
    ]
    assert len(SearchIndex.build((text for text in TEXTS_), tmp_path / "lazy", model)) == len(TEXTS_)
    assert SearchIndex.build("猫", tmp_path / "one", model).search("猫")[0].text == "猫"
    pandas = pytest.importorskip("pandas")
    frame = SearchIndex.build(pandas.DataFrame(rows[:1]), tmp_path / "frame", model, text="title")
    assert frame[0].text == "A" and frame[-1].columns == {"text": "the cat"}
    with pytest.raises(IndexError, match="text 1 of an index of 1"):
        frame[1]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "the input is empty"),
        (["", " \n"], "Text 1 is empty, and so are all 2"),
        ([3], "Text 1 is of type int; a text is a string"),
        ([{"text": 3}], "Text 1 is of type int"),
        ([None, float("nan")], "Text 1 is empty, and so are all 2"),
        (["猫", "the cat \ud83d"], "half of a surrogate pair"),
        ([{"a": "x", "b": "y"}], "the texts: no column has a usual name for the text; there are 'a', 'b'"),
    ],
)
def test_texts_that_cannot_be_indexed(model: Model, tmp_path: Path, source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchIndex.build(source, tmp_path / "index", model)
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_missing_is_left_out(model: Model, tmp_path: Path) -> None:
    built = SearchIndex.build(["猫", None, "the cat"], tmp_path / "index", model)
    assert built.built is not None and built.built.left_out == ["Text 2 is empty"]
    assert built.search("the cat", k=1)[0].text == "the cat" and len(built) == 2


def test_a_file_name_is_not_a_text(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match=r"a.txt is a file: give pathlib.Path"):
        SearchIndex.build([str(tmp_path / "a.txt")], tmp_path / "index", model)
    with pytest.raises(InputError, match="a.txt, line 1 is empty, and so are all 2"):
        SearchIndex.build(tmp_path / "a.txt", tmp_path / "index", model)
    with pytest.raises(InputError, match="There is no file .*b.txt. Did you mean 'a.txt'"):
        Files([tmp_path / "b.txt"])


def test_queries_that_cannot_be_asked(index: SearchIndex) -> None:
    mixed: Any = ["猫", 3]
    with pytest.raises(InputError, match="The query '  ' is empty: give it a word"):
        index.search("  ")
    with pytest.raises(InputError, match="k must be 1 or more, not 0"):
        index.search("猫", k=0)
    with pytest.raises(InputError, match="Query 2 is of type int"):
        index.search(mixed)
    nothing: Any = None
    with pytest.raises(InputError, match="The query is of type NoneType; a query is a string, or a list of strings"):
        index.search(nothing)
    for shape in ((2, 7), (32,)):
        with pytest.raises(InputError, match=r"The vectors have the shape .*; this index wants \(.*, 32\)"):
            index.nearest(np.ones(shape, np.float32))
    assert len(index.search("猫", k=99)) == len(index)


def test_an_index_of_another_model(index: SearchIndex, tmp_path: Path) -> None:
    other = make_folder(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match=r"was built with another model than other: the SHA-256"):
        SearchIndex.open(index.folder, other).search("猫")
    facts = json.loads((index.folder / INDEX_FILE).read_text(encoding="utf-8"))
    assert Path(facts["model"]["name"]).is_absolute() and len(facts["model"]["sha256"]) == 64


def test_a_model_that_is_gone(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bert")
    SearchIndex.build(["猫"], tmp_path / "index", folder)
    folder.rename(tmp_path / "moved")
    with pytest.raises(
        InputError, match=r"was built with the model .*bert, which cannot be opened: There is no folder"
    ):
        SearchIndex.open(tmp_path / "index").search("猫")
    assert SearchIndex.open(tmp_path / "index", tmp_path / "moved").search("猫")[0].text == "猫"


def test_the_shipped_model_is_found_by_name(tmp_path: Path) -> None:
    index = SearchIndex.build(["A cat sleeps.", "Rates rose.", "猫在睡觉。"], tmp_path / "index")
    assert index.facts["model"]["name"] == "qkv-sentences"
    assert SearchIndex.open(tmp_path / "index").search("cats", k=1)[0].text == "A cat sleeps."


def test_damaged_folders(model: Model, tmp_path: Path) -> None:
    place = tmp_path / "index"
    SearchIndex.build(["猫", "狗"], place, model)

    def fails(message: str) -> None:
        with pytest.raises(InputError, match=message):
            SearchIndex.open(place)

    whole = (place / INDEX_FILE).read_text(encoding="utf-8")
    (place / VECTOR_FILE).write_bytes((place / VECTOR_FILE).read_bytes()[:-2])
    fails(r"is not whole: vectors.npy has 254 bytes, and had 256 when it was written")
    (place / TEXT_FILE).unlink()
    fails("is not whole: texts.jsonl is not there")
    (place / INDEX_FILE).write_text(whole.replace('"format": 1', '"format": 9'), encoding="utf-8")
    fails("has the format 9; this version of qkv reads 1")
    (place / INDEX_FILE).write_text('{"format": 1}', encoding="utf-8")
    fails("is damaged: it has no model")
    (place / INDEX_FILE).write_text("{", encoding="utf-8")
    fails("is not valid JSON")
    (place / INDEX_FILE).unlink()
    fails("is not whole: index.json, which is written last, is missing")
    (place / VECTOR_FILE).unlink()
    fails("is not a search index: it has no index.json. Build one with")
    place.rename(tmp_path / "indexes")
    fails("There is no index .*index. Did you mean 'indexes'?")


def test_an_index_is_replaced_only_if_asked(model: Model, tmp_path: Path) -> None:
    place = tmp_path / "index"
    before = SearchIndex.build(["猫"], place, model)
    with pytest.raises(
        InputError, match="is a search index already: replace it with overwrite=True, or give another folder"
    ):
        SearchIndex.build(["狗"], place, model)
    assert SearchIndex.build(["狗", "鱼"], place, model, overwrite=True)[0].text == "狗"
    assert before.search("猫")[0].text == "猫"  # one that is open stays as it was
    other = tmp_path / "photos"
    other.mkdir()
    (other / "a.jpg").touch()
    with pytest.raises(InputError, match="is not replaced: it is not a search index"):
        SearchIndex.build(["狗"], other, model, overwrite=True)


def test_nothing_is_left_after_an_interrupt(model: Model, tmp_path: Path) -> None:
    def texts() -> Iterator[str]:
        yield "猫"
        signal.raise_signal(signal.SIGINT)
        yield "狗"

    with pytest.raises(KeyboardInterrupt):
        SearchIndex.build(texts(), tmp_path / "index", model)
    assert list(tmp_path.iterdir()) == []


def test_progress_and_passage_sizes(model: Model, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    SearchIndex.build(TEXTS_, tmp_path / "a", model, progress=lambda done, total: seen.append((done, total)))
    assert sum(done for done, _ in seen) == len(TEXTS_) == seen[0][1]
    read: list[tuple[int, int]] = []
    long, seen = "the cat is tired . " * 3000, []
    index = SearchIndex.build(
        [long, "猫"],
        tmp_path / "long",
        model,
        passage=16,
        progress=lambda done, total: seen.append((done, total)),
        watch=lambda done, total: read.append((done, total)),
    )
    total = index.facts["n_passages"] - 1
    assert read == sorted(read) and {one[1] for one in read} == {total} and 0 < read[0][0] < total
    assert seen == [(0, 2), (2, 2)]  # a text counts when all of its passages are read
    with pytest.raises(InputError, match=r"A passage of 99 tokens is not possible: bert reads 4 … 62 at once"):
        SearchIndex.build(TEXTS_, tmp_path / "b", model, passage=99)
    with pytest.raises(InputError, match="Unknown pooling 'max'"):
        SearchIndex.build(TEXTS_, tmp_path / "b", model, pooling="max")
    cls = SearchIndex.build(TEXTS_, tmp_path / "c", model, pooling="cls")
    assert cls.search(TEXTS_[3], k=1)[0].score == pytest.approx(1, abs=1e-3)


# Rerankers.


@pytest.mark.parametrize(
    ("labels", "record", "relevant"),
    [(("0", "1"), {}, None), (("no", "maybe"), {}, "maybe"), ((), {"kind": "regression"}, None)],
)
def test_rerankers(
    index: SearchIndex, tmp_path: Path, labels: tuple[str, ...], record: dict[str, Any], relevant: str | None
) -> None:
    run = load(task_folder(tmp_path / "run", "classify", labels=labels, paired=True, **record))
    plain = index.search("猫", k=6)
    found = index.search("猫", k=4, rerank=run, candidates=6, relevant=relevant)
    results = run.predict([("猫", one.text) for one in plain])
    label = relevant or "1"
    scores = [one.value if record else one.probabilities[label] for one in results]
    order = sorted(range(6), key=lambda place: -scores[place])[:4]
    assert [one.number for one in found] == [plain[place].number for place in order]
    assert [one.score for one in found] == pytest.approx([scores[place] for place in order], abs=1e-6)
    assert [one.similarity for one in found] == [plain[place].similarity for place in order]


def test_rerankers_that_cannot_be_used(index: SearchIndex, tmp_path: Path, model: Model) -> None:
    def fails(message: str, run: Path, **how: Any) -> None:
        with pytest.raises(InputError, match=message):
            index.search("猫", rerank=run, **how)

    fails("does not read text pairs, so it cannot rerank", task_folder(tmp_path / "single", "classify"))
    fails("does not read text pairs", task_folder(tmp_path / "tag", "tag"))
    pairs = task_folder(tmp_path / "pairs", "classify", paired=True)
    fails("Which label of pairs says that a text fits the query\\? It has animal, place", pairs)
    fails("pairs has no label 'plac'. Did you mean 'place'\\?", pairs, relevant="plac")
    fails("is not fine-tuned, so it cannot predict", model.opened.path)


# Approximate search.


def test_approximate_search_finds_what_exact_search_finds(tmp_path: Path, model: Model) -> None:
    pytest.importorskip("usearch")
    words = model.tokenizer.vocabulary
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(list(words)[19:], 12)) for _ in range(1500)]
    index = SearchIndex.build(texts, tmp_path / "index", model, approximate=True, passage=8)
    assert index.facts["approximate"]["library"] == "usearch" and index.facts["n_passages"] > 2 * len(texts)
    queries = texts[:50]
    near, exact = index.search(queries, k=10), index.search(queries, k=10, exact=True)
    same = [len({one.number for one in a} & {one.number for one in b}) for a, b in zip(near, exact, strict=True)]
    assert sum(same) / 500 >= 0.95
    for a, b in zip(near, exact, strict=True):
        scores = {one.number: one.score for one in b}
        assert all(one.score <= scores[one.number] for one in a if one.number in scores)
        assert len({one.number for one in a}) == 10
    assert len(index.search(texts[0], k=1200)) == 1200


def test_without_the_library(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(
        InputError, match=r"needs usearch: pip install 'qkv\[ann\]'. Without it leave --approximate out"
    ):
        SearchIndex.build(["猫"], tmp_path / "index", model, approximate=True)
    index = SearchIndex.build(["猫"], tmp_path / "index", model)
    facts = {**index.facts, "approximate": {"library": "usearch"}}
    (tmp_path / "index" / INDEX_FILE).write_text(json.dumps(facts), encoding="utf-8")
    with pytest.warns(UserWarning, match="is searched exactly"):
        assert SearchIndex.open(tmp_path / "index", model).search("猫")[0].text == "猫"
