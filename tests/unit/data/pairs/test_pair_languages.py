from qkv.data.pairs.batching import Languages
from qkv.text.tokenizer import Tokenizer


def test_where_texts_begin_and_end() -> None:
    one = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    other = Tokenizer.from_vocabulary(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", "甲"])
    languages = Languages.of(one, other)
    assert languages.source is one and languages.target is other
    assert (languages.begin, languages.end, languages.source_end) == (0, 2, 3)
    assert languages.never == (0, 1, 3, 4)  # the end may be written, and no other mark
    assert languages.read(["a b", ""]) == [[5, 6, 3], [3]]


def test_what_the_vocabulary_lacks() -> None:
    one = Tokenizer.from_vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    languages = Languages.of(one, one)
    text = "a  xyz b 猫🐱"
    (row,) = languages.read([text])
    assert [text[start:end] for start, end in languages.unknown(text, row)] == ["xyz", "猫", "🐱"]
    assert languages.unknown("a b", languages.read(["a b"])[0]) == []
