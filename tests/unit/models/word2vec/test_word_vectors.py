"""Neighbours and analogies, by hand on four numbers a word, and against the plain way on many."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from qkv.api.vector_scores import load_vectors
from qkv.errors import InputError
from qkv.models.folders.own import read_folder, save_folder
from qkv.models.plain.folder import draw_unknown
from qkv.models.word2vec.files import write_vector_file
from qkv.models.word2vec.folder import BLOCK, QUESTIONS, WordVectors, look_up_tokens, near_spellings, tokenizer_of_words
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL
from tests.support.below_readers import make_nnlm
from tests.support.folders import make_folder
from tests.support.near import assert_near
from tests.support.word_vectors import SMALL, make_vectors_folder, random_vectors, small


def test_neighbours_by_hand() -> None:
    vectors = small()
    found = vectors.neighbours("king", 2)
    # king and man share one of king's two parts: cosine 1/√2; king and queen: 1/2
    assert [one.word for one in found] == ["man", "queen"]
    assert [one.score for one in found] == pytest.approx([0.5**0.5, 0.5])
    assert vectors.similarity("cat", "猫") == pytest.approx(1 / 1.01**0.5)
    assert vectors.similarity("unseen", "king") == 0.0, "a vector of zeros is like nothing, and divides nothing"
    assert len(vectors.neighbours("king", 99)) == len(SMALL) - 1
    assert torch.equal(vectors["cat"], torch.tensor([0.0, 0.0, 0.0, 2.0])) and (len(vectors), vectors.width) == (7, 4)


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_king_man_woman(method: str) -> None:
    best = small().analogy("man", "king", "woman", 2, method)
    assert best[0].word == "queen"
    cosines = [0.0, 0.5, 0.5**0.5]  # of queen with man, king, woman
    if method == "add":
        assert best[0].score == pytest.approx(cosines[1] - cosines[0] + cosines[2])
    else:
        man, king, woman = ((1 + cosine) / 2 for cosine in cosines)
        assert best[0].score == pytest.approx(king * woman / (man + 1e-6))
    rows = torch.tensor([[2, 0, 3], [3, 1, 2]])  # man king woman, woman queen man
    assert small().answers(rows, method).tolist() == [1, 0]


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_many_questions_are_answered_as_one_by_one(method: str) -> None:
    """More words than a block and more questions than a part, some of them with a word twice."""
    vectors = random_vectors(2 * BLOCK + 100, 8)
    rows = torch.randint(0, len(vectors), (2 * QUESTIONS + 5, 3))
    rows[0] = torch.tensor([7, 7, 7])
    rows[1] = torch.tensor([0, BLOCK, len(vectors) - 1])
    seen: list[int] = []
    found = vectors.answers(rows, method, progress=seen.append)
    assert seen == [BLOCK, BLOCK, 100]
    for question, answer in zip(rows.tolist(), found.tolist(), strict=True):
        a, b, c = (vectors.words[row] for row in question)
        assert vectors.words[answer] == vectors.analogy(a, b, c, 1, method)[0].word
    few = vectors.answers(rows % 50, method, most=50)
    assert few.max() < 50 and all(answer not in question for question, answer in zip(rows % 50, few, strict=True))


def test_cosines() -> None:
    pairs = torch.tensor([[0, 1], [2, 3], [4, 4]])
    assert small().cosines(pairs).tolist() == pytest.approx([0.5, 0.0, 1.0])


def test_nothing_is_scaled_in_place() -> None:
    table = torch.randn(10, 4)
    before = table.clone()
    vectors = WordVectors([str(number) for number in range(10)], table)
    vectors.neighbours("3")
    vectors.answers(torch.tensor([[1, 2, 3]]))
    assert torch.equal(table, before) and vectors.vectors.data_ptr() == table.data_ptr()


def test_words_are_looked_up_as_typed_then_in_lower_case() -> None:
    vectors = WordVectors(["us", "US", "paris"], torch.randn(3, 2))
    assert [vectors.find(word) for word in ("us", "US", "Us", "Paris", "PARIS", "london")] == [0, 1, 0, 2, 2, None]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["us", "paris", "[unk]", "北京"], {"us": "us", "US": "us", "Paris": "paris", "北京": "北京"}),
        (["US", "us", "Paris"], {"us": "us", "US": "US", "Paris": "Paris"}),
        (["US", "PARIS", "[UNK]"], {"US": "US", "[UNK]": "[UNK]"}),
    ],
    ids=["uncased", "cased", "capitals"],
)
def test_tokens_of_a_cased_tokenizer(words: list[str], expected: dict[str, str]) -> None:
    """In every table that is made of vectors: to train on, or to embed texts with."""
    vectors = WordVectors(words, torch.randn(len(words), 3))
    tokenizer = Tokenizer.from_vocabulary([*SPECIAL, "us", "US", "Paris", "北京"], "word", lowercase=False)
    table, known = look_up_tokens(tokenizer, vectors)
    assert {tokenizer.token(id) for id in known.nonzero().flatten().tolist()} == set(expected)
    trained = draw_unknown(table, known)
    assert not table[~known].any() and trained[~known].all()
    for token, word in expected.items():
        assert torch.equal(table[tokenizer.vocabulary[token]], vectors.vectors[vectors.rows[word]])
        assert torch.equal(trained[tokenizer.vocabulary[token]], vectors.vectors[vectors.rows[word]])


@pytest.mark.parametrize(
    ("word", "near"),
    [("quene", "queen"), ("womann", "woman"), ("KINGS", "king"), ("猫咪", "猫"), ("zzzzzzz", None)],
)
def test_an_unknown_word_is_answered_with_near_ones(word: str, near: str | None) -> None:
    with pytest.raises(InputError) as caught:
        small().neighbours(word)
    message = str(caught.value)
    assert message.startswith(f"{word!r} is not among the 7 words of small.txt.")
    assert (f" Near it: {near}" in message) if near else message.endswith("small.txt.")


def test_near_spellings_prefer_frequent_words() -> None:
    assert near_spellings("cet", ["dog", "cut", "cat", "cot"]) == ["cut", "cat", "cot"]
    assert near_spellings("Colour", ["color", "colours", "colour"], 2) == ["colour", "colours"]
    assert near_spellings("", ["a"]) == []
    assert near_spellings("New York", ["new", "york", "New_York"]) == ["New_York"]


def test_bad_questions() -> None:
    with pytest.raises(InputError, match="There is no method 'mutiply'.*Did you mean 'multiply'?"):
        small().analogy("man", "king", "woman", method="mutiply")
    with pytest.raises(InputError, match="must be at least 1"):
        small().neighbours("king", 0)
    with pytest.raises(ValueError, match="each word needs its vector"):
        WordVectors(["a"], torch.ones(2, 2))


@pytest.mark.parametrize("name", ["v.txt", "v.bin.gz", "folder", "run"])
def test_every_source_gives_the_same_answers(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    if name == "run":
        source.mkdir()
        (source / "config.toml").write_text("")
        make_vectors_folder(source / "model")
    elif name == "folder":
        make_vectors_folder(source)
    else:
        write_vector_file(source, list(SMALL), torch.tensor(list(SMALL.values())))
    vectors = load_vectors(source)
    words = [word for word in SMALL if word != "unseen" or "v." in name]  # a file of others is kept as it is
    assert vectors.words == words, "special tokens are not words, nor is what training never met"
    assert torch.equal(vectors.vectors, small().vectors[: len(words)]) and vectors.notes == ()
    assert_near(vectors.neighbours("King", 2), small().neighbours("king", 2))
    assert load_vectors(source, most=2).words == ["king", "queen"]


def test_words_that_training_never_met(tmp_path: Path) -> None:
    words: dict[str, tuple[float, ...]] = {"unseen": (0.0,) * 4} | SMALL | {"odysseus": (0.0,) * 4}
    vectors = load_vectors(make_vectors_folder(tmp_path / "folder", **words))
    assert vectors.words == list(SMALL)[:-1] and vectors.find("unseen") is None
    assert torch.equal(vectors["cat"], small()["cat"])
    for word in ("unseen", "Odysseus"):
        with pytest.raises(InputError, match=f"'{word}' has no vector in .*: it was never seen in training"):
            vectors.neighbours(word)
    vectors.save(tmp_path / "v.vec")
    assert load_vectors(tmp_path / "v.vec").words == vectors.words
    with pytest.raises(InputError, match="has no words with a vector"):
        load_vectors(make_vectors_folder(tmp_path / "none", unseen=(0.0,) * 4))
    with pytest.raises(InputError, match="The vector of 'unseen' in small.txt is all zeros"):
        small().analogy("man", "king", "unseen")


def test_the_table_of_a_bengio_model(tmp_path: Path) -> None:
    folder = make_nnlm(tmp_path / "nnlm")
    vectors = load_vectors(folder)
    read = read_folder(folder, "nnlm")
    assert vectors.words == [word for word in read.tokenizer.vocabulary if word not in SPECIAL]
    row = read.tokenizer.vocabulary[vectors.words[3]]
    assert torch.equal(vectors.vectors[3], read.tensors["embedding.weight"][row])


def test_a_folder_spells_as_its_tokenizer_does(tmp_path: Path) -> None:
    folder = make_vectors_folder(tmp_path / "folder", cafe=(1.0, 0.0, 0.0, 0.0), 猫=(0.0, 1.0, 0.0, 0.0))
    vectors = load_vectors(folder)
    assert [vectors.find(word) for word in ("Café", "CAFE", "猫", "狗")] == [0, 0, 1, None]


@pytest.mark.parametrize("name", ["v.txt", "v.vec.gz", "v.bin", "folder"])
def test_from_one_form_to_another(tmp_path: Path, name: str) -> None:
    vectors = WordVectors(["a", "b c", "猫", "[PAD]"], torch.randn(4, 3), "here.bin")
    left_out = vectors.save(tmp_path / name)
    assert left_out == (["b c", "[PAD]"] if name == "folder" else ["b c"])
    found = load_vectors(tmp_path / name)
    assert found.words == [word for word in vectors.words if word not in left_out]
    for first, second in pairwise(found.words):
        assert found.similarity(first, second) == pytest.approx(vectors.similarity(first, second))


def test_chinese_words_are_found_in_a_text_by_the_tokenizer_of_their_folder(tmp_path: Path) -> None:
    WordVectors(["国王", "北京", "在"], torch.randn(3, 4)).save(tmp_path / "words")
    tokenizer = read_folder(tmp_path / "words").tokenizer
    assert tokenizer.encode("国王在北京", special=False).tokens == ["国王", "在", "北京"]
    WordVectors(["king", "国", "王"], torch.randn(3, 4)).save(tmp_path / "characters")
    assert read_folder(tmp_path / "characters").tokenizer.segmenter is None
    assert tokenizer_of_words(["国王", "北京", "在", "New York"]).vocabulary == tokenizer.vocabulary


def test_whatever_is_not_word_vectors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file or folder .*vectros.bin. Did you mean 'vectors.bin'?"):
        (tmp_path / "vectors.bin").write_text("")
        load_vectors(tmp_path / "vectros.bin")
    with pytest.raises(InputError, match="vectors.bin is empty"):
        load_vectors(tmp_path / "vectors.bin")
    with pytest.raises(InputError, match="cannot name words that are alike. It holds a BERT.*Give word vectors"):
        load_vectors(make_folder(tmp_path / "bert"))


def test_a_folder_that_fits_no_table(tmp_path: Path) -> None:
    folder = read_folder(make_vectors_folder(tmp_path / "folder"))
    table = folder.tensors["embedding"].clone()
    for tensors, message in (
        ({"embedding": table, "context": table.clone()}, "holds context \\[12, 4\\], embedding \\[12, 4\\], where one"),
        ({"embedding": table[0]}, "holds embedding \\[4\\], where one matrix"),
        ({"embedding": table[:6]}, "the tokenizer has 12 words, but the matrix 6 rows"),
    ):
        save_folder(tmp_path / "other", "word2vec", {"width": 4}, tensors, folder.tokenizer)
        with pytest.raises(InputError, match=message):
            load_vectors(tmp_path / "other")
