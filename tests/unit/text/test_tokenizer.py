"""The tokenizer: what goes in comes back, character for character, and transformers reads what we write."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

import qkv.text.tokenizer as tokenizer_module
from qkv.errors import InputError
from qkv.text.tokenizer import Encoded, Tokenizer
from qkv.text.vocabulary import VOCABULARY_KINDS, Kind
from qkv.text.wordpiece import SPECIAL

TEXTS = [
    "The tokenizer tokenizes tokens; the tokens were tokenized by the tokenizer. " * 3,
    "她说：“今天天气很好，我们去北京大学吧！”于是他们就去了北京，去了北京大学。" * 3,
]
NASTY = [
    "",
    "   \t\n\u3000",
    "Hello, WORLD! it's 3.14",
    "我用BERT做NLP，accuracy是95.5%！",
    "tab\tnew\nline\r\nnbsp\xa0wide\u3000end",
    "a\x00b\u200bc\ufeffd\ufffde\u00adf",
    "é e\u0301 Å A\u030a ệ",
    "👩‍👩‍👧‍👦 🤗❤️ 👍🏽 🇨🇳",
    "𠮷野家 𪚥㐂 \U0002b820\U00030000",
    "ＡＢＣ１２３，。",
    "한국어 カタカナ ガ",
    "İstanbul ΟΔΟΣ straße",
    "x" * 100 + " " + "y" * 101,
    "fill [MASK] and [MASK]. [CLS] [SEP] [cls]",
    "##ing [UNK] [PAD]",
]


@pytest.fixture(scope="module")
def bert(minilm: Path) -> Tokenizer:
    return Tokenizer.load(minilm)


@pytest.fixture(scope="module", params=["uncased", "cased", "chinese"])
def published(request: pytest.FixtureRequest, minilm: Path) -> Tokenizer:
    if request.param == "uncased":
        return Tokenizer.load(minilm / "vocab.txt")
    data: Path = request.getfixturevalue("shared_data")
    return Tokenizer.load(data / "vocab" / f"bert-base-{request.param}-vocab.txt")


def small(kind: Kind = "wordpiece", lowercase: bool = True) -> Tokenizer:
    return Tokenizer.train(TEXTS, kind, 120, lowercase)


# Encoding


def test_a_single_text_by_hand(bert: Tokenizer) -> None:
    text = "Tokenizers: 我!"
    found = bert.encode(text)
    assert found.tokens == ["[CLS]", "token", "##izer", "##s", ":", "我", "!", "[SEP]"]
    assert found.ids == [101, 19204, 17629, 2015, 1024, 1855, 999, 102]
    assert found.segments == [0] * 8
    assert found.offsets == [(0, 0), (0, 5), (5, 9), (9, 10), (10, 11), (12, 13), (13, 14), (0, 0)]
    assert bert.encode(text, special=False).ids == found.ids[1:-1]
    assert bert.encode("") == Encoded([101, 102], [0, 0], [(0, 0), (0, 0)], ["[CLS]", "[SEP]"])
    assert bert.encode("", special=False) == Encoded([], [], [], [])


def test_a_pair_by_hand(bert: Tokenizer) -> None:
    found = bert.encode("one two", "three")
    assert found.tokens == ["[CLS]", "one", "two", "[SEP]", "three", "[SEP]"]
    assert found.segments == [0, 0, 0, 0, 1, 1]
    assert found.offsets == [(0, 0), (0, 3), (4, 7), (0, 0), (0, 5), (0, 0)]
    assert bert.encode("one", "", special=False).segments == [0]


@pytest.mark.parametrize("kind", VOCABULARY_KINDS)
def test_with_special_builds_what_encode_gives(kind: Kind) -> None:
    tokenizer = small(kind)
    a, b = tokenizer.encode_ids(["the 北京", "tokens"])
    for texts, rows in ((("the 北京",), (a,)), (("the 北京", "tokens"), (a, b))):
        found = tokenizer.encode(*texts)
        assert tokenizer.with_special(*rows) == (found.ids, found.segments)


def test_batches_equal_one_by_one(published: Tokenizer) -> None:
    assert published.encode_batch(NASTY) == [published.encode(text) for text in NASTY]
    expected = [published.encode(a, b) for a, b in zip(NASTY, NASTY[::-1], strict=True)]
    assert published.encode_batch(NASTY, NASTY[::-1]) == expected
    assert published.encode_ids(NASTY) == [published.encode(text, special=False).ids for text in NASTY]
    assert published.encode_batch([]) == [] and published.encode_ids([]) == []


def test_special_tokens_in_a_text_are_recognised_where_they_stand(published: Tokenizer) -> None:
    text = "A[MASK]B [CLS] [mask]"
    found = published.encode(text, special=False)
    assert found.offsets[found.ids.index(published.mask_id)] == (1, 7) and found.ids.count(published.mask_id) == 1
    assert published.cls_id in found.ids and found.tokens[-1] == "]"


def test_a_word_too_long_is_unknown_and_keeps_its_span(published: Tokenizer) -> None:
    found = published.encode("a " + "x" * 101, special=False)
    assert found.tokens == ["a", "[UNK]"] and found.offsets == [(0, 1), (2, 103)]


def check_offsets(tokenizer: Tokenizer, text: str) -> None:
    """`text[start:end]`, cleaned and folded, is the token; several tokens of one character are each a part of it."""
    found = tokenizer.encode(text, special=False)
    assert found.offsets == sorted(found.offsets)
    for token, id, (start, end) in zip(found.tokens, found.ids, found.offsets, strict=True):
        assert 0 <= start < end <= len(text)
        if id == tokenizer.unk_id or token in SPECIAL:
            assert text[start:end].strip() or tokenizer.kind == "character"
            continue
        normalizer = tokenizer.backend.normalizer
        source = text[start:end] if normalizer is None else normalizer.normalize_str(text[start:end])
        source = source if tokenizer.kind == "character" else source.strip(" ")
        piece = token.removeprefix("##") if start and tokenizer.kind == "wordpiece" else token
        shared = [span for span in found.offsets if span[0] < end and start < span[1]]
        assert piece == source or (len(shared) > 1 and piece.removeprefix("##") in source)


@pytest.mark.parametrize("text", NASTY)
def test_offsets_are_characters_of_the_text(published: Tokenizer, text: str) -> None:
    check_offsets(published, text)


def test_offsets_of_any_text(bert: Tokenizer) -> None:
    characters = Tokenizer.from_vocabulary([*SPECIAL, *"abcdef İ\n"], "character", lowercase=True)

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(st.lists(st.one_of(st.text(), st.sampled_from(NASTY), st.text("aé我 \u0301한[MASK]İ\u200d😀"))).map("".join))
    def check(text: str) -> None:
        check_offsets(bert, text)
        check_offsets(characters, text)

    check()


def test_texts_that_nothing_is_left_of(bert: Tokenizer) -> None:
    characters = Tokenizer.from_vocabulary([*SPECIAL, "a"], "character")
    for text in ("", " ", "\u200b", "\x00\u3000", "\u0301"):
        assert bert.is_empty(text) and not bert.encode_ids([text])[0]
        assert characters.is_empty(text) == (text == "")
    for text in NASTY:
        assert bert.is_empty(text) == (not bert.encode_ids([text])[0])
    letters = [chr(code) for code in range(0, sys.maxunicode, 5) if chr(code).isalnum()]
    assert all(bert.encode_ids(letters)), "a letter is enough to tell that a text is not empty"


def test_a_foreign_step_may_take_everything_away(tmp_path: Path) -> None:
    backend = Backend(models.WordPiece({token: n for n, token in enumerate([*SPECIAL, "a"])}, unk_token="[UNK]"))
    nothing: Any = normalizers.Replace("a", "")
    backend.normalizer = nothing
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.is_empty("aa") and not tokenizer.is_empty("ab")


def test_texts_that_are_none(bert: Tokenizer) -> None:
    for call in (bert.encode, lambda text: bert.encode("a", text), lambda text: bert.encode_ids([text])):
        with pytest.raises(InputError, match="A text contains U.D83D, half of a surrogate pair"):
            call("ab\ud83d")
    wrong: Any = [None]
    with pytest.raises(TypeError, match="A text must be a str, not NoneType"):
        bert.encode_batch(wrong)
    with pytest.raises(InputError, match="2 texts and 1 second texts"):
        bert.encode_batch(["a", "b"], ["c"])


# Decoding and looking up


def test_decoding(shared_data: Path, bert: Tokenizer) -> None:
    assert bert.decode(bert.encode("The tokenizer, [MASK] works.").ids) == "the tokenizer, works."
    assert bert.decode(bert.encode("it [MASK].").ids, skip_special=False) == "[CLS] it [MASK]. [SEP]"
    chinese = Tokenizer.load(shared_data / "vocab" / "bert-base-chinese-vocab.txt")
    for text in ("今天天气很好，我们去吧！", "我爱 nlp 吗", "用 bert 做，好。"):
        assert chinese.decode(chinese.encode(text).ids) == text
    assert bert.decode([]) == ""


def test_looking_up(bert: Tokenizer) -> None:
    assert bert.token(103) == "[MASK]" and bert.id("[MASK]") == bert.mask_id == 103 and bert.id("nothing such") is None
    assert bert.size == len(bert.vocabulary) == 30522 and bert.special_ids == {0, 100, 101, 102, 103}
    for wrong in (30522, -1):
        with pytest.raises(InputError, match=f"no token with id {wrong}; the vocabulary has 30522"):
            bert.decode([wrong])


def test_characters_are_kept_exactly() -> None:
    verse = "First Citizen:\nBefore  we\tproceed —\r\n 听我说。e\u0301\u200d\x00"
    tokenizer = Tokenizer.train([verse], "character", 200, lowercase=False)
    found = tokenizer.encode(verse, special=False)
    assert found.tokens == list(verse) and found.offsets == [(n, n + 1) for n in range(len(verse))]
    assert tokenizer.decode(tokenizer.encode(verse).ids) == verse
    assert tokenizer.encode("a?[MASK]", special=False).tokens == ["[UNK]", "[UNK]", "[MASK]"]


# Files


@pytest.mark.parametrize("kind", VOCABULARY_KINDS)
@pytest.mark.parametrize("lowercase", [True, False])
def test_what_is_saved_is_loaded(tmp_path: Path, kind: Kind, lowercase: bool) -> None:
    tokenizer = small(kind, lowercase)
    tokenizer.save(folder := tmp_path / "new" / "folder", max_length=512)
    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}
    assert {file.name for file in folder.iterdir()} == names - ({"vocab.txt"} if kind == "character" else set())
    for path in (folder, folder / "tokenizer.json", folder / ("vocab.txt" if kind == "wordpiece" else "")):
        again = Tokenizer.load(path)
        assert (again.kind, again.lowercase, again.size) == (kind, lowercase, tokenizer.size)
        assert again.vocabulary == tokenizer.vocabulary
        assert again.encode_batch(NASTY + TEXTS) == tokenizer.encode_batch(NASTY + TEXTS)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    Tokenizer.load(folder).save(folder, max_length=512)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def same_as_transformers(tokenizer: Tokenizer, folder: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(folder)
    assert len(theirs) == tokenizer.size and theirs.mask_token_id == tokenizer.mask_id
    for second in (None, NASTY[::-1]):
        expected = theirs(NASTY, second, return_offsets_mapping=True, return_token_type_ids=True)
        for place, one in enumerate(tokenizer.encode_batch(NASTY, second)):
            assert one.ids == expected["input_ids"][place]
            assert one.segments == expected["token_type_ids"][place]
            assert one.offsets == [tuple(span) for span in expected["offset_mapping"][place]]


def test_transformers_reads_what_we_write(tmp_path: Path, published: Tokenizer) -> None:
    published.save(tmp_path)
    same_as_transformers(published, tmp_path)
    (tmp_path / "tokenizer.json").unlink()  # older tools go by vocab.txt
    same_as_transformers(published, tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.lowercase == published.lowercase and again.encode_ids(NASTY) == published.encode_ids(NASTY)


@pytest.mark.parametrize("kind", VOCABULARY_KINDS)
def test_transformers_reads_what_we_train(tmp_path: Path, kind: Kind) -> None:
    tokenizer = small(kind, lowercase=False)
    tokenizer.save(tmp_path, max_length=77)
    same_as_transformers(tokenizer, tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 77


def test_we_read_what_transformers_writes(tmp_path: Path, minilm: Path) -> None:
    (theirs := AutoTokenizer.from_pretrained(minilm)).add_tokens(["qkvtoken"])
    theirs.save_pretrained(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.size == 30523 and tokenizer.encode("a qkvtoken b", special=False).ids[1] == 30522
    same_as_transformers(tokenizer, tmp_path)
    tokenizer.save(tmp_path / "again")
    same_as_transformers(Tokenizer.load(tmp_path / "again"), tmp_path / "again")


def test_truncation_and_padding_in_a_file_are_dropped(minilm: Path, bert: Tokenizer) -> None:
    """MiniLM's own tokenizer.json cuts at 128 and fills up to 128."""
    stored = json.loads((minilm / "tokenizer.json").read_text(encoding="utf-8"))
    assert stored["truncation"]["max_length"] == 128 and stored["padding"]
    assert bert.encode("word " * 400).ids == [101, *[2773] * 400, 102]
    assert len(bert.encode("word").ids) == 3
    assert [len(one.ids) for one in bert.encode_batch(["word", "word " * 300], ["a", "b"])] == [5, 304]


@pytest.mark.parametrize("form", ["vocab.txt", "tokenizer.json"])
def test_the_settings_beside_a_vocabulary_count(tmp_path: Path, form: str) -> None:
    tokens = [*SPECIAL, "a", "é", "e", "我", "我我"]
    Tokenizer.from_vocabulary(tokens, lowercase=True).save(tmp_path)
    for name in {"vocab.txt", "tokenizer.json"} - {form}:
        (tmp_path / name).unlink()

    def found(**config: object) -> list[str]:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return Tokenizer.load(tmp_path).encode("A É 我我", special=False).tokens

    assert found() == found(do_lower_case=True, strip_accents=None) == ["a", "e", "我", "我"]
    assert found(do_lower_case=False) == ["[UNK]", "[UNK]", "我", "我"]
    assert found(strip_accents=False) == ["a", "é", "我", "我"]
    assert found(do_lower_case=True, tokenize_chinese_chars=False) == ["a", "e", "我我"]
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path).lowercase


def test_a_foreign_normalizer_is_kept(tmp_path: Path) -> None:
    backend = Backend(models.WordPiece({token: n for n, token in enumerate([*SPECIAL, "e"])}, unk_token="[UNK]"))
    steps: Any = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    backend.normalizer = steps
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.lowercase and tokenizer.encode("É", special=False).tokens == ["e"]
    with pytest.raises(InputError, match="such as BERT's"):
        tokenizer.plain()
    tokenizer.save(tmp_path)
    same_as_transformers(tokenizer, tmp_path)


def test_bad_vocabularies() -> None:
    wrong: Any = "words"
    with pytest.raises(InputError, match="no kind of tokenizer 'words', .* Did you mean 'word'?"):
        Tokenizer.from_vocabulary(SPECIAL, wrong)
    with pytest.raises(InputError, match="holds 'a' more than once"):
        Tokenizer.from_vocabulary([*SPECIAL, "a", "b", "a"])
    with pytest.raises(InputError, match="cannot be a token"):
        Tokenizer.from_vocabulary([*SPECIAL, "a\n"])
    with pytest.raises(InputError, match=r"The vocabulary has no \[PAD\]"):
        Tokenizer.from_vocabulary(SPECIAL[1:])
    with pytest.raises(InputError, match="too small"):
        Tokenizer.train(TEXTS, vocabulary_size=10)


# Threads and processes


def test_several_threads_at_once(bert: Tokenizer) -> None:
    texts = [text * (n % 3 + 1) for n, text in enumerate(NASTY * 4)]
    expected = [bert.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(bert.encode, texts * 3)) == expected * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_is_quiet_and_works(tmp_path: Path) -> None:
    """Older releases of the library warn in the child if several threads were used before; here they must not."""
    small().save(tmp_path)
    code = f"""
import os
from qkv.text.tokenizer import Tokenizer
tokenizer = Tokenizer.load({str(tmp_path)!r})
texts = ["the tokenizer 北京"] * 200
expected = tokenizer.encode_ids(texts)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_ids(texts) == expected else 1)
assert os.waitpid(child, 0)[1] == 0 and "TOKENIZERS_PARALLELISM" not in os.environ
assert tokenizer.encode_ids(texts) == expected
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(tokenizer_module.__file__).parents[2])}
    del environment["TOKENIZERS_PARALLELISM"]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
