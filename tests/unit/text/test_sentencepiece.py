"""SentencePiece models written byte by byte, and what comes of texts: worked out by hand from Kudo's equations.

The best segmentation is the one whose pieces have the largest sum of scores; a character without a piece costs the
smallest score and 10 more; neighbours without pieces are one unknown.
"""

import json
import struct
from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.text.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN_KIND,
    UNUSED,
    USER_DEFINED,
    MarianTokenizer,
    parse_model,
    read_marian_vocabulary,
)

# The format: a field is its number and kind, then the value


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def decimal(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def piece(token: str, score: float, kind: int = NORMAL) -> bytes:
    inner = text(1, token) + decimal(2, score)
    return text(1, inner if kind == NORMAL else inner + number(3, kind))  # as the real files leave out a default


def charsmap(table: dict[str, str]) -> bytes:
    """Replacements as sentencepiece stores them: a double array of the keys' bytes, then the values, each ended by 0.

    A unit of the array says which label leads to it, whether a key ends there, and where its children lie: those of
    unit i at i ^ offset ^ label. The key's end is the child of label 0, which holds the value's place.
    """
    values, places = b"", {}
    for key, value in table.items():
        places[key.encode()] = len(values)
        values += value.encode() + b"\0"
    units = {0: 0}
    blocks = 0

    def grow(at: int, prefix: bytes, keys: list[bytes]) -> None:
        nonlocal blocks
        blocks += 1
        offset = at ^ blocks << 8  # the children of every unit get 256 units of their own
        units[at] |= offset << 10
        for label in sorted({key[len(prefix)] for key in keys if len(key) > len(prefix)}):
            units[at ^ offset ^ label] = label
            start = prefix + bytes([label])
            grow(at ^ offset ^ label, start, [key for key in keys if key.startswith(start)])
        if prefix in places:
            units[at] |= 1 << 8
            units[at ^ offset] = places[prefix] | 1 << 31

    grow(0, b"", list(places))
    array = b"".join(struct.pack("<I", units.get(at, 0)) for at in range((blocks + 1) << 8))
    return struct.pack("<I", len(array)) + array + values


PIECES = [
    piece("<unk>", 0.0, UNKNOWN_KIND),
    piece("<s>", 0.0, CONTROL),
    piece("</s>", 0.0, CONTROL),
    piece("▁", -3.0),
    piece("▁chase", -4.0),
    piece("▁Tom", -5.0),
    piece("s", -3.5),
    piece("Tom", -6.0),
    piece("▁T", -6.5),
    piece("om", -5.5),
    piece("汤姆", -5.0),
    piece("汤", -6.0),
    piece("追", -6.0),
    piece("逐", -6.0),
    piece("追逐", -11.0),
    piece("，", -4.0),
    piece(",", -4.0),
    piece("never", -1.0, UNUSED),
    piece("e", -7.0),
    piece("h", -7.0),
    piece("A", -7.0),
]
CHARACTERS = {"\t": " ", "\n": " ", "\u3000": " ", "Ａ": "A", "e\u0301": "é", "…": "..."}
MODEL = (
    b"".join(PIECES)
    + text(2, number(3, 1) + number(4, len(PIECES)))
    + text(3, text(1, "nmt_nfkc") + text(2, charsmap(CHARACTERS)))
)
# Ids unlike those of the .spm; ▁T is missing, and "Jerry" and the languages are in no .spm
WORDS = "</s> ▁Tom Tom 汤姆 ▁chase s ▁ 追逐 <unk> om 汤 追 逐 ， , e h A ▁Jerry >>fra<< >>zh_Hans<< <pad>"
VOCABULARY = {token: 3 * place for place, token in enumerate(WORDS.split())}


@pytest.fixture(scope="module")
def tokenizer() -> MarianTokenizer:
    return MarianTokenizer(parse_model(MODEL), VOCABULARY)


def pieces(tokenizer: MarianTokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, special=False).tokens


def test_ids_are_those_of_the_vocabulary_and_the_end_is_added(tokenizer: MarianTokenizer) -> None:
    encoded = tokenizer.encode("Tom chases 汤姆")
    assert encoded.tokens == ["▁Tom", "▁chase", "s", "▁", "汤姆", "</s>"]
    assert encoded.ids == [VOCABULARY[token] for token in encoded.tokens]
    assert encoded.offsets == [(0, 3), (4, 9), (9, 10), (10, 11), (11, 13), (0, 0)]
    assert tokenizer.encode_ids(["Tom"]) == [[VOCABULARY["▁Tom"]]]
    assert (tokenizer.sep_id, tokenizer.unk_id, tokenizer.pad_id) == tuple(
        VOCABULARY[token] for token in ("</s>", "<unk>", "<pad>")
    )
    assert tokenizer.cls_id == tokenizer.pad_id and tokenizer.size == max(VOCABULARY.values()) + 1


def test_the_best_segmentation_wins(tokenizer: MarianTokenizer) -> None:
    assert pieces(tokenizer, "Tom") == ["▁Tom"]  # -5, against ▁ Tom with -9 and ▁T om with -12
    assert pieces(tokenizer, "追逐") == ["▁", "追逐"]  # -11, against -12
    assert pieces(tokenizer, "TomTom") == ["▁Tom", "Tom"]


def test_a_piece_that_the_vocabulary_lacks_is_unknown(tokenizer: MarianTokenizer) -> None:
    """The text is cut by the .spm all the same: ▁T, then h."""
    encoded = tokenizer.encode("Th", special=False)
    assert encoded.tokens == ["<unk>", "h"] and encoded.offsets == [(0, 1), (1, 2)]


def test_characters_without_a_piece_are_one_unknown_where_they_are_neighbours(tokenizer: MarianTokenizer) -> None:
    encoded = tokenizer.encode("汤🎈🎈s 🎈", special=False)
    assert encoded.tokens == ["▁", "汤", "<unk>", "s", "▁", "<unk>"]
    assert encoded.offsets[2] == (1, 3)
    assert encoded.ids[2] == tokenizer.unk_id


def test_what_is_only_for_control_is_found_in_no_text(tokenizer: MarianTokenizer) -> None:
    """A text that reads </s> has no end, but the letter s between things unknown; "never" is a piece out of use."""
    assert pieces(tokenizer, "</s>") == ["▁", "<unk>", "s", "<unk>"]
    assert pieces(tokenizer, "never") == ["▁", "<unk>", "e", "<unk>", "e", "<unk>"]
    for word in ("<unk>", "<pad>"):
        encoded = tokenizer.encode(word, special=False)
        assert encoded.tokens == ["▁", "<unk>"] and tokenizer.pad_id not in encoded.ids


@pytest.mark.parametrize("written", ["Tom chase", "  Tom   chase ", "Tom\tchase\n", "Tom\u3000chase"])
def test_spaces(tokenizer: MarianTokenizer, written: str) -> None:
    encoded = tokenizer.encode(written, special=False)
    assert encoded.tokens == ["▁Tom", "▁chase"]
    assert [written[start:end] for start, end in encoded.offsets] == ["Tom", "chase"]


def test_a_line_is_no_text_of_its_own() -> None:
    """Where line ends are not replaced, a space after one is a space between words: only a text's ends lose theirs."""
    tokenizer = MarianTokenizer(parse_model(MODEL + text(3, text(2, b""))), VOCABULARY)
    assert pieces(tokenizer, " Tom \n Tom ") == ["▁Tom", "▁", "<unk>", "▁Tom"]


@pytest.mark.parametrize("empty", ["", " ", " \t \n"])
def test_nothing_comes_of_nothing(tokenizer: MarianTokenizer, empty: str) -> None:
    assert tokenizer.encode(empty).ids == [tokenizer.sep_id]


def test_characters_are_replaced_first(tokenizer: MarianTokenizer) -> None:
    encoded = tokenizer.encode("Ａ，s", special=False)
    assert encoded.tokens == ["▁", "A", "，", "s"]
    assert encoded.offsets[1:] == [(0, 1), (1, 2), (2, 3)]


def test_a_language_before_the_text_is_one_token(tokenizer: MarianTokenizer) -> None:
    encoded = tokenizer.encode(">>fra<< Tom", special=False)
    assert encoded.tokens == [">>fra<<", "▁Tom"] and encoded.offsets == [(0, 7), (8, 11)]
    assert pieces(tokenizer, ">>zh_Hans<<Tom") == [">>zh_Hans<<", "▁Tom"]
    assert ">>fra<<" not in pieces(tokenizer, "Tom >>fra<<")
    assert tokenizer.languages == (">>fra<<", ">>zh_Hans<<")
    with pytest.raises(InputError, match=">>fre<< is not a language of this model. Did you mean '>>fra<<'?"):
        tokenizer.encode(">>fre<< Tom")
    one = MarianTokenizer(
        parse_model(MODEL), {token: place for place, token in enumerate([*WORDS.split()[:18], "<pad>"])}
    )
    assert one.languages == () and pieces(one, ">>s<<") == ["▁", "<unk>", "s", "<unk>"]  # there it is text


def test_back_to_text(tokenizer: MarianTokenizer) -> None:
    ids = [VOCABULARY[token] for token in ("▁Tom", "▁chase", "s", "▁Jerry", "，", "汤姆", "</s>", "<pad>")]
    assert tokenizer.decode(ids) == "Tom chases Jerry，汤姆"
    assert tokenizer.decode(ids, skip_special=False) == "Tom chases Jerry，汤姆</s><pad>"
    assert tokenizer.decode([VOCABULARY["▁Tom"], tokenizer.unk_id, VOCABULARY["s"]]) == "Tom ⁇ s"  # nothing is hidden
    assert tokenizer.decode([]) == ""
    for whole in ("Tom chases 汤姆", "追逐,汤s"):
        assert tokenizer.decode(tokenizer.encode(whole).ids) == whole
    with pytest.raises(InputError, match="no token with id 1;"):
        tokenizer.decode([1])


def test_symbols_a_user_defined_are_taken_whole() -> None:
    model = parse_model(MODEL + piece("hseh", -99.0, USER_DEFINED))
    tokenizer = MarianTokenizer(model, VOCABULARY | {"hseh": 500})
    assert pieces(tokenizer, "shsehs") == ["▁", "s", "hseh", "s"]


def test_bytes_in_place_of_unknown_characters() -> None:
    added = [f"<0x{byte:02X}>" for byte in range(256)]
    model = parse_model(MODEL + b"".join(piece(one, 0.0, BYTE) for one in added) + text(2, number(35, 1)))
    tokenizer = MarianTokenizer(model, VOCABULARY | {one: 100 + place for place, one in enumerate(added)})
    encoded = tokenizer.encode("Tom é", special=False)
    assert encoded.tokens == ["▁Tom", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(encoded.ids) == "Tom é"


def test_without_a_space_before_the_first_word() -> None:
    tokenizer = MarianTokenizer(parse_model(MODEL + text(3, number(3, 0))), VOCABULARY)
    assert pieces(tokenizer, "Tom Tom") == ["Tom", "▁Tom"]


def test_pieces_may_reach_across_spaces() -> None:
    tokenizer = MarianTokenizer(parse_model(MODEL + piece("▁Tom▁chase", -6.0)), VOCABULARY | {"▁Tom▁chase": 99})
    assert pieces(tokenizer, "Tom chases") == ["▁Tom▁chase", "s"]


def test_a_folder_has_two_sides(tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(MODEL)
    (tmp_path / "target.spm").write_bytes(MODEL + piece("▁Jerry", -5.0))
    (tmp_path / "vocab.json").write_text(json.dumps(VOCABULARY), encoding="utf-8")
    source, target = (MarianTokenizer.load(tmp_path, side) for side in ("source", "target"))
    assert target.encode_ids(["Jerry"]) == [[VOCABULARY["▁Jerry"]]]
    assert source.encode_ids(["Jerry"]) != target.encode_ids(["Jerry"])
    (tmp_path / "target_vocab.json").write_text(json.dumps(VOCABULARY | {"▁Jerry": 1000}), encoding="utf-8")
    assert MarianTokenizer.load(tmp_path, "target").encode_ids(["Jerry"]) == [[1000]]
    assert MarianTokenizer.load(tmp_path, "source").vocabulary == source.vocabulary


def test_other_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="vocab.json has no </s> <pad>"):
        MarianTokenizer(parse_model(MODEL), {"<unk>": 0})
    with pytest.raises(InputError, match="this one has 1 and 0"):
        MarianTokenizer(parse_model(piece("a", -1.0)), VOCABULARY)
    with pytest.raises(InputError, match="character table of a SentencePiece model is damaged"):
        MarianTokenizer(parse_model(MODEL + text(3, text(2, b"abc"))), VOCABULARY)
    for content, message in (
        ({"a": "1"}, "the id of 'a' is '1'"),
        ({"a": 1, "b": 1}, "'a' and 'b' have the same id, 1"),
    ):
        (tmp_path / "vocab.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            read_marian_vocabulary(tmp_path / "vocab.json")
    with pytest.raises(InputError, match="half of a surrogate pair"):
        MarianTokenizer(parse_model(MODEL), VOCABULARY).encode("\ud83d")
