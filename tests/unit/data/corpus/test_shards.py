"""Reading a prepared corpus: any ranges at once, across shards, and every way in which a folder can be wrong."""

import json
from pathlib import Path

import numpy as np
import pytest

from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards, hash_of
from qkv.errors import InputError
from qkv.text.segmenter import find_segmenter, split_sentences, word_starts
from qkv.text.tokenizer import Tokenizer
from tests.support.corpora import documents, write_corpus
from tests.support.folders import TOKENS, make_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blocks and shards so small that documents go on from one to the next, and the one after."""
    base = tmp_path_factory.mktemp("shards")
    prepare_corpus(
        write_corpus(base / "a.txt"), make_tokenizer(), base / "out", hold_out=0.1, block_bytes=200, shard_tokens=50
    )
    return base / "out"


def expected(valid: bool) -> list[list[list[int]]]:
    """Documents → sentences → ids, the plain way. Held out of 40, the empty one not counted: 2, and one of each ten."""
    tokenizer = make_tokenizer()
    texts = [text for text in documents(40) if text != "\u200b\x00"]
    found = [tokenizer.encode_ids([text[start:end] for start, end in split_sentences(text)]) for text in texts]
    return [one for number, one in enumerate(found) if (number in (2, 15, 20, 39)) == valid]


@pytest.mark.parametrize("part", ["train", "valid"])
def test_the_documents_are_those_of_the_corpus(folder: Path, part: str) -> None:
    shards = Shards.open(folder, part)
    wanted = expected(part == "valid")
    assert len(shards.manifest[part]["shards"]) > 3
    assert shards.n_documents == len(wanted)
    assert shards.n_sentences == sum(map(len, wanted))
    assert shards.n_tokens == sum(len(sentence) for one in wanted for sentence in one)
    offsets, first = shards.sentence_offsets, shards.document_offsets
    assert offsets.dtype == first.dtype == np.int64
    assert len(offsets) == shards.n_sentences + 1 and offsets[0] == 0 and offsets[-1] == shards.n_tokens
    assert len(first) == shards.n_documents + 1 and first[0] == 0 and first[-1] == shards.n_sentences
    for number, one in enumerate(wanted):
        bounds = offsets[first[number] : first[number + 1] + 1]
        lengths = np.diff(bounds)
        ids = shards.tokens(bounds[:-1], lengths)
        assert [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] == one


def test_a_manifest_names_files_of_its_folder_alone(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["train"]["shards"][0]["file"] = "../shard-00000.safetensors"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match="'../shard-00000.safetensors' is not a name of a file inside a folder"):
        Shards.open(tmp_path)
    for url in ("s3://bucket/shards", Path("s3://bucket/shards")):
        with pytest.raises(InputError, match="s3://bucket/shards is in an object store, and shards are mapped"):
            Shards.open(url)


def test_any_ranges_in_any_order(folder: Path) -> None:
    shards = Shards.open(folder)
    everything = shards.tokens(np.array([0]), np.array([shards.n_tokens]))
    begins = shards.word_starts(np.array([0]), np.array([shards.n_tokens]))
    assert everything.dtype == np.int64 and begins.dtype == np.bool_ and begins[0]
    draw = np.random.default_rng(0)
    starts = draw.integers(0, shards.n_tokens, 200)
    lengths = draw.integers(0, shards.n_tokens - starts + 1)
    ranges = [slice(start, start + length) for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
    assert shards.tokens(starts, lengths).tolist() == [id for one in ranges for id in everything[one]]
    assert shards.word_starts(starts, lengths).tolist() == [bit for one in ranges for bit in begins[one]]
    none = np.zeros(0, np.int64)
    assert shards.tokens(none, none).tolist() == []
    assert shards.tokens(np.array([shards.n_tokens]), np.array([0])).tolist() == []
    for start, length in ((-1, 1), (shards.n_tokens, 1), (0, shards.n_tokens + 1)):
        with pytest.raises(IndexError, match="outside"):
            shards.tokens(np.array([start]), np.array([length]))


def test_word_starts_are_the_segmenters(folder: Path) -> None:
    """Among runs of 汉字 exactly the words of rjieba; elsewhere at every piece that does not continue one."""
    shards, jieba = Shards.open(folder), find_segmenter("rjieba")
    assert jieba is not None
    tokenizer = shards.tokenizer()
    text = next(text for number, text in enumerate(documents(40)) if number not in (2, 11) and "北京" in text)
    number = [one for one in range(40) if one not in (2, 11)].index(documents(40).index(text))
    bounds = shards.sentence_offsets[shards.document_offsets[number : number + 2]]
    span = np.array([bounds[0]]), np.array([bounds[1] - bounds[0]])
    tokens = [tokenizer.token(id) for id in shards.tokens(*span).tolist()]
    assert "北" in tokens
    run: list[str] = []
    for token, begins in zip([*tokens, ""], [*shards.word_starts(*span).tolist(), True], strict=True):
        if len(token) == 1 and "\u4e00" <= token <= "\u9fff":
            run.append(("|" if begins else "") + token)
            continue
        assert begins != token.startswith("##")
        plain = "".join(run).replace("|", "")
        if plain:
            starts = word_starts([plain], jieba).tolist()
            marked = ("|" * start + one for start, one in zip(starts, plain, strict=True))
            assert "".join(run) == "".join(marked)
        run = []


def test_a_text_file_is_to_be_prepared_first(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("the cat\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"en\.txt is a file.*qkv prepare en\.txt --tokenizer"):
        Shards.open(tmp_path / "en.txt")


def test_what_the_manifest_knows(folder: Path) -> None:
    shards = Shards.open(folder)
    tokenizer = shards.tokenizer()
    assert shards.vocabulary_size == tokenizer.size and shards.tokenizer_hash == hash_of(tokenizer)
    everything = shards.tokens(np.array([0]), np.array([shards.n_tokens]))
    assert shards.manifest["vocabulary_seen"] == len(set(everything.tolist()))
    share = np.unique(everything, return_counts=True)[1] / len(everything)
    assert shards.manifest["unigram_entropy"] == pytest.approx(-(share * np.log(share)).sum())
    shards.verify()


def copied(folder: Path, target: Path) -> Path:
    for file in folder.rglob("*"):
        if file.is_file():
            (target / file.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (target / file.relative_to(folder)).write_bytes(file.read_bytes())
    return target


def test_a_shard_cut_short_or_gone_is_named_when_opened(folder: Path, tmp_path: Path) -> None:
    file = copied(folder, tmp_path) / "shard-00001.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"shard-00001.safetensors has [\d,]+ bytes instead of"):
        Shards.open(tmp_path)
    file.unlink()
    with pytest.raises(InputError, match="shard-00001.safetensors is missing"):
        Shards.open(tmp_path)
    Shards.open(tmp_path, "valid")


def test_a_changed_shard_is_found_by_its_hash(folder: Path, tmp_path: Path) -> None:
    file = copied(folder, tmp_path) / "shard-00002.safetensors"
    changed = bytearray(file.read_bytes())
    changed[-3] ^= 1
    file.write_bytes(changed)
    with pytest.raises(InputError, match="shard-00002.safetensors is damaged"):
        Shards.open(tmp_path).verify()


def test_another_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    other = Tokenizer.from_vocabulary([*TOKENS[:-2], TOKENS[-1], TOKENS[-2]], lowercase=True)
    with pytest.raises(InputError, match="another tokenizer than my-bert"):
        Shards.open(folder).check_tokenizer(other, "my-bert")
    other.save(copied(folder, tmp_path) / "tokenizer")
    with pytest.raises(InputError, match="prepared with another tokenizer than"):
        Shards.open(tmp_path).tokenizer()


def test_a_tokenizer_is_known_by_what_it_does(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.save(tmp_path / "whole")
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    for other in (Tokenizer.load(tmp_path / "whole"), Tokenizer.load(tmp_path / "vocab.txt")):
        assert hash_of(other) == hash_of(tokenizer)
    for different in (
        Tokenizer.from_vocabulary(TOKENS, lowercase=False),
        Tokenizer.from_vocabulary(TOKENS, kind="word", lowercase=True),
        Tokenizer.from_vocabulary([*TOKENS, "new"], lowercase=True),
    ):
        assert hash_of(different) != hash_of(tokenizer)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a prepared corpus"),
        ("{", "manifest.json is not valid JSON"),
        ('{"format": "other"}', "has the format 'other'"),
    ],
)
def test_a_folder_that_is_something_else(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=message):
        Shards.open(tmp_path)


def test_wrong_names_have_a_hint(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder .*uot. Did you mean 'out'"):
        Shards.open(folder.parent / "uot")
    with pytest.raises(InputError, match="no part 'test'"):
        Shards.open(folder, "test")
    (tmp_path / "unfinished.json").write_text(json.dumps({}))
    with pytest.raises(InputError, match="is not finished: run the same `qkv prepare` again"):
        Shards.open(tmp_path)


def test_a_part_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The cat sat. The dog.\n\nOne more.")
    manifest = prepare_corpus(tmp_path / "a.txt", make_tokenizer(), tmp_path / "out")
    shards = Shards.open(tmp_path / "out", "valid")
    assert shards.n_documents == shards.n_tokens == 0
    assert shards.sentence_offsets.tolist() == shards.document_offsets.tolist() == [0]
    assert "2 documents are too few to hold one out" in manifest["notes"][-1]
