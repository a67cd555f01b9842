"""Chunks: all sentences, in order, whole, over the ends of shards."""

import numpy as np
import pytest

from qkv.data.corpus.prepare import prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.models.word2vec.corpus import SentenceChunks
from tests.support.corpora import write_corpus
from tests.support.small_run import make_tokenizer


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    folder = tmp_path_factory.mktemp("chunks")
    corpus = write_corpus(folder / "corpus.txt", 60)
    out, small = folder / "shards", 400
    prepare_corpus(
        corpus, make_tokenizer(), out, workers=1, segmenter="none", hold_out=0, shard_tokens=small, block_bytes=500
    )
    return Shards.open(folder / "shards")


@pytest.mark.parametrize("size", [1, 37, 10_000])
def test_chunks_are_the_corpus(shards: Shards, size: int) -> None:
    chunks = SentenceChunks(shards, size)
    found = [chunks[number] for number in range(len(chunks))]
    lengths = np.concatenate([np.diff(chunk.sentences) for chunk in found])
    assert lengths.tolist() == np.diff(shards.sentence_offsets).tolist()
    assert chunks.longest == lengths.max()
    ids = np.concatenate([chunk.flat()[0] for chunk in found])
    assert ids.tolist() == shards.tokens(np.array([0]), np.array([shards.n_tokens])).tolist()
    assert all(chunk.n_tokens > 0 for chunk in found)
    if size == 37:
        assert max(chunk.n_tokens for chunk in found) < 37 + chunks.longest
    if size == 10_000:
        assert len(chunks) == len(shards.manifest["train"]["shards"]) > 1


def test_a_chunk_says_whose_sentence_a_token_is(shards: Shards) -> None:
    chunk = SentenceChunks(shards, 37)[1]
    ids, sentences = chunk.flat()
    assert len(ids) == len(sentences) == chunk.n_tokens
    assert np.bincount(sentences).tolist() == np.diff(chunk.sentences).tolist()
    assert not chunk.tokens.flags.owndata  # a view of the file


def test_nothing_held_out(shards: Shards) -> None:
    chunks = SentenceChunks(Shards.open(shards.folder, "valid"), 37)
    assert len(chunks) == 0 and chunks.longest == 0
