"""Start, delimiter and extract: found or made, put around texts, written down and found again."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import models

from qkv.errors import InputError
from qkv.models.gpt.tokenizer import DELIMITER, EXTRACT, START, TaskTokenizer
from qkv.text.tokenizer import Marks, Tokenizer
from tests.support.folders import make_tokenizer
from tests.support.gpt_folders import VOCABULARIES

TEXTS = ["the cat didn't", "他欠我 100 万元。", "😀 naïve e\u0301", ""]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_new_tokens_stand_after_all_others(vocabulary: str) -> None:
    base = VOCABULARIES[vocabulary][0]()
    tokenizer = TaskTokenizer(base)
    new = [DELIMITER, EXTRACT] if base.has_marks else [START, DELIMITER, EXTRACT]
    assert tokenizer.added == tuple(range(base.size, base.size + len(new)))
    assert [tokenizer.token(number) for number in tokenizer.added] == new
    assert tokenizer.size == base.size + len(new) and tokenizer.words == base.size
    assert tokenizer.marks.start == (base.sep_id if base.has_marks else base.size)
    assert base.id(EXTRACT) is None  # which stays as it was
    # texts are cut as before
    assert tokenizer.encode_ids(TEXTS) == base.encode_ids(TEXTS)
    assert [one.offsets for one in tokenizer.encode_batch(TEXTS, special=False)] == [
        one.offsets for one in base.encode_batch(TEXTS, special=False)
    ]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_around_a_text_and_a_pair(vocabulary: str) -> None:
    tokenizer = TaskTokenizer(VOCABULARIES[vocabulary][0]())
    first, second = tokenizer.encode_ids(["the cat", "the street"])
    start, between, end, leftward = tokenizer.marks
    assert leftward
    one, two = tokenizer.encode("the cat"), tokenizer.encode("the cat", "the street")
    assert one.ids == [start, *first, end]
    assert two.ids == [start, *first, *between, *second, end]
    assert two.segments == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert tokenizer.with_special(first) == (one.ids, one.segments)
    assert tokenizer.with_special(first, second) == (two.ids, two.segments)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_they_are_found_again(tmp_path: Path, vocabulary: str) -> None:
    tokenizer = TaskTokenizer(VOCABULARIES[vocabulary][0]())
    tokenizer.save(tmp_path / "saved")
    plain = Tokenizer.load(tmp_path / "saved")
    assert plain.files() == tokenizer.files()  # nothing is added with every save
    again = TaskTokenizer(plain)
    assert isinstance(TaskTokenizer.load(tmp_path / "saved"), TaskTokenizer)
    assert again.added == () and again.marks == tokenizer.marks and again.words == tokenizer.words
    assert again.encode("the cat", "the street") == tokenizer.encode("the cat", "the street")


def test_a_bert_has_cls_and_sep() -> None:
    tokenizer = make_tokenizer()
    assert tokenizer.marks == Marks(tokenizer.cls_id, (tokenizer.sep_id,), tokenizer.sep_id, leftward=False)
    assert TaskTokenizer(tokenizer).marks.leftward


def test_a_vocabulary_with_gaps_is_refused() -> None:
    ids = {token: 2 * number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"])}
    backend = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    with pytest.raises(InputError, match="without gaps"):
        TaskTokenizer(Tokenizer(backend, "word"))
