"""Other processes do the same work in the same order, and whatever befalls them is said."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from qkv.data.corpus.documents import Block, open_sources, read_blocks
from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.data.corpus.workers import EncodedBlock, EncodeJob, keeps_white_space, map_blocks, token_type
from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer
from tests.support.byte_pairs import TEXTS, gpt2_backend
from tests.support.corpora import broken, dying, noisy, write_corpus
from tests.support.folders import make_tokenizer


def results(path: Path, job: EncodeJob, workers: int) -> list[tuple[Block, EncodedBlock]]:
    return list(map_blocks(job, read_blocks(open_sources(path), size=500), workers))


@pytest.mark.parametrize("segmenter", ["rjieba", noisy])
def test_any_number_of_workers_gives_the_same(tmp_path: Path, segmenter: str) -> None:
    job = EncodeJob.of(make_tokenizer(), segmenter)
    file = write_corpus(tmp_path / "a.txt")
    alone = results(file, job, 1)
    assert len(alone) > 10 and any(result.sample for _, result in alone)
    for (block, result), (other, expected) in zip(results(file, job, 3), alone, strict=True):
        assert block == other
        for name in ("tokens", "word_starts", "sentences", "documents", "letters"):
            assert np.array_equal(getattr(result, name), getattr(expected, name))
        assert (result.characters, result.sample) == (expected.characters, expected.sample)


def test_chinese_words_of_the_tokenizer_are_cut_in_every_process(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["我爱北京天安门。", "北京大学在北京"] * 2, "word", 40, segmenter="rjieba")
    (tmp_path / "a.txt").write_text("我爱北京大学。\n\n" * 200, encoding="utf-8")
    job = EncodeJob.of(tokenizer, "rjieba")
    alone, several = (
        np.concatenate([result.tokens for _, result in results(tmp_path / "a.txt", job, workers)]) for workers in (1, 2)
    )
    assert np.array_equal(alone, several)
    assert [tokenizer.token(id) for id in alone[:5].tolist()] == "我 爱 北京大学 。 我".split()


TEXT = TEXTS[1]


@pytest.mark.parametrize(
    "tokenizer",
    [Tokenizer.train([TEXT], "character", 100, lowercase=False), Tokenizer(gpt2_backend(), "byte-pair")],
    ids=["characters", "bytes"],
)
@pytest.mark.parametrize("size", [1 << 19, 30])
def test_white_space_inside_of_documents_is_kept(tmp_path: Path, tokenizer: Tokenizer, size: int) -> None:
    """Where it is part of tokens. However the file is cut into blocks, and as if each document were one text."""
    (tmp_path / "a.txt").write_text(f"\n{TEXT}\n\n{TEXT}\n \n\n{TEXT}\n", encoding="utf-8", newline="\r\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": f"{TEXT}\n\n{TEXT}\n"}) + "\n", encoding="utf-8")
    prepare_corpus(
        [tmp_path / "a.txt", tmp_path / "b.jsonl"], tokenizer, tmp_path / "out", hold_out=0, block_bytes=size
    )
    shards = Shards.open(tmp_path / "out")
    ends = shards.sentence_offsets[shards.document_offsets]
    texts = [shards.tokens(ends[n : n + 1], np.diff(ends)[n : n + 1]).tolist() for n in range(shards.n_documents)]
    # the line end before blank lines, or before the end of the file, stays where a block ends with it
    assert [tokenizer.decode(ids).strip() for ids in texts] == [*[TEXT] * 3, f"{TEXT}\n\n{TEXT}"]
    assert keeps_white_space(tokenizer) and shards.n_sentences > 12
    assert texts[-1] == tokenizer.encode_ids([f"{TEXT}\n\n{TEXT}"])[0]


def test_white_space_is_nothing_to_others() -> None:
    assert not keeps_white_space(make_tokenizer())


def test_only_a_few_blocks_are_on_their_way(tmp_path: Path) -> None:
    taken = 0

    def counted() -> Iterator[Block]:
        nonlocal taken
        for block in read_blocks(open_sources(write_corpus(tmp_path / "a.txt", 400)), size=200):
            taken += 1
            yield block

    for done, _ in enumerate(map_blocks(EncodeJob.of(make_tokenizer(), "none"), counted(), 2)):
        assert taken - done <= 2 * 2 + 1
    assert taken > 50


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_input_is_told_as_it_is(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\n\n" * 300 + b"b\xe9d\n\n" + b"good\n\n" * 300)
    job = EncodeJob.of(make_tokenizer(), "none")
    with pytest.raises(InputError, match="a.txt, line 601, byte 2 of the line"):
        results(tmp_path / "a.txt", job, workers)


def test_an_error_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    job = EncodeJob.of(make_tokenizer(), broken)
    with pytest.raises(RuntimeError, match="(?s)in a worker process:.*ZeroDivisionError: in the segmenter"):
        results(write_corpus(tmp_path / "a.txt"), job, 2)


def test_a_worker_that_is_killed_is_reported(tmp_path: Path) -> None:
    job = EncodeJob.of(make_tokenizer(), dying)
    with pytest.raises(InputError, match="ended by signal 9. Was there too little memory.*run the same command again"):
        results(write_corpus(tmp_path / "a.txt"), job, 2)


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    stream = map_blocks(EncodeJob.of(make_tokenizer(), "none"), read_blocks(open_sources(file), size=100), 2)
    next(stream)
    stream.close()
    children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True)
    assert "qkv.data.corpus.workers" not in children.stdout


SCRIPT = """
import sys
from qkv.data.corpus.documents import read_blocks as blocks, open_sources as sources
from qkv.data.corpus.workers import EncodeJob as Job, map_blocks as run
from qkv.text.tokenizer import Tokenizer
tokenizer = Tokenizer.from_vocabulary("[PAD] [UNK] [CLS] [SEP] [MASK] the cat".split())
for block, result in run(Job.of(tokenizer, "none"), blocks(sources(sys.argv[1]), size=500), 2):
    print(len(result.tokens))
"""


def test_a_script_without_a_guard_works(tmp_path: Path) -> None:
    """One that starts processes at its top level: with `multiprocessing` it would start itself again and again."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", write_corpus(tmp_path / "a.txt")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert len(done.stdout.split()) > 10 and done.stderr == ""


def test_which_jobs_can_travel() -> None:
    tokenizer = make_tokenizer()
    assert EncodeJob.of(tokenizer, "none").travels() and EncodeJob.of(tokenizer, noisy).travels()
    assert not EncodeJob.of(tokenizer, lambda text: [text]).travels()


def test_ids_take_two_bytes_where_they_fit() -> None:
    assert token_type(1 << 16) is np.uint16 and token_type((1 << 16) + 1) is np.uint32
