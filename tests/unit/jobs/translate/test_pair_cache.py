"""Token ids that are kept: the same again, only under the same key, and gone when the run is finished."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from qkv.data.pairs.batching import Languages, PairEncoding, encode_pairs
from qkv.data.pairs.files import Pair
from qkv.errors import InputError
from qkv.jobs.translate.data import KEPT, cache_ids, clear_cached_ids, make_ids_key, read_cached_ids
from qkv.jobs.translate.settings import BitextChoice
from qkv.jobs.translate.training import TRANSLATING
from qkv.text.subwords import train_subwords
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Silent
from tests.support.translation_runs import digit_files, settings

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = [Pair("1 2", "2 1"), Pair("1 " * 20, "1"), Pair("3", "3"), Pair(" ", "4")]
TOKENIZER = train_subwords([text for pair in PAIRS for text in pair[:2]], 60)


def same(one: PairEncoding, other: PairEncoding) -> bool:
    arrays = [(*found.pairs.source, *found.pairs.target) for found in (one, other)]
    return one[1:] == other[1:] and all(
        np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(*arrays, strict=True)
    )


def refuse(note: str) -> None:
    raise AssertionError(note)


def test_what_is_kept_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = encode_pairs(PAIRS, Languages.of(TOKENIZER, TOKENIZER), 12)
    assert found.too_long == (1,) and found.nothing == (3,)
    cache_ids(tmp_path, "a", found, refuse)
    assert read_cached_ids(tmp_path, "a") is None  # too few to be worth it
    monkeypatch.setattr("qkv.jobs.translate.data._WORTH", 1)
    cache_ids(tmp_path, None, found, refuse)
    assert not list(tmp_path.iterdir())
    cache_ids(tmp_path, "a", found, refuse)
    back = read_cached_ids(tmp_path, "a")
    assert back is not None and same(back, found)
    assert read_cached_ids(tmp_path, "b") is None and read_cached_ids(tmp_path, None) is None
    cache_ids(tmp_path, "b", found, refuse)  # takes the place of the other
    assert read_cached_ids(tmp_path, "a") is None and [one.name for one in tmp_path.iterdir()] == [KEPT]
    (tmp_path / KEPT).write_bytes((tmp_path / KEPT).read_bytes()[:50])
    assert read_cached_ids(tmp_path, "b") is None
    cache_ids(tmp_path, "b", found, refuse)
    assert read_cached_ids(tmp_path, "b") is not None
    clear_cached_ids(tmp_path)
    clear_cached_ids(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_damaged_counts_as_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.jobs.translate.data._WORTH", 1)
    found = encode_pairs(PAIRS, Languages.of(TOKENIZER, TOKENIZER), 12)
    cache_ids(tmp_path, "a", found, refuse)
    file = tmp_path / KEPT
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_cached_ids(tmp_path, "a") is None, place
    cache_ids(tmp_path, "a", found, refuse)  # and is written again
    back = read_cached_ids(tmp_path, "a")
    assert back is not None and same(back, found)


@pytest.mark.parametrize("error", [SafetensorError("I/O error: No space left on device"), OSError(28, "No space left")])
def test_a_full_disk_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(arrays: object, part: Path, **_: object) -> None:
        part.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr("qkv.jobs.translate.data._WORTH", 1)
    monkeypatch.setattr("qkv.jobs.translate.data.save_file", full)
    told: list[str] = []
    cache_ids(tmp_path, "a", encode_pairs(PAIRS, Languages.of(TOKENIZER, TOKENIZER), 12), told.append)
    assert len(told) == 1 and told[0].startswith("note: the token ids were not kept") and "No space left" in told[0]
    assert not list(tmp_path.iterdir())


def test_the_key_hangs_on_all_that_the_ids_hang_on(tmp_path: Path) -> None:
    choice = BitextChoice(train=("a", "b"), sha256="x")
    other = train_subwords(["5 6 7"], 60)
    keys = [
        make_ids_key(choice, 12, TOKENIZER, TOKENIZER),
        make_ids_key(choice, 13, TOKENIZER, TOKENIZER),
        make_ids_key(choice, 12, TOKENIZER, other),
        make_ids_key(choice, 12, other, TOKENIZER),
        *(
            make_ids_key(one, 12, TOKENIZER, TOKENIZER)
            for one in (
                replace(choice, sha256="y"),
                replace(choice, dev_share=0.5),
                replace(choice, test_share=0.5),
                replace(choice, columns=("2", "1")),
                replace(choice, train=("a",), dev=("b",)),
            )
        ),
    ]
    assert None not in keys and len(set(keys)) == len(keys)
    assert make_ids_key(replace(choice, sha256=None), 12, TOKENIZER, TOKENIZER) is None
    TOKENIZER.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert make_ids_key(choice, 12, loaded, loaded) == keys[0]


def test_a_resumed_run_does_not_cut_its_pairs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def again(*_: object) -> None:
        raise AssertionError("the pairs are cut again")

    monkeypatch.setattr("qkv.jobs.translate.data._WORTH", 1)
    files = digit_files(tmp_path / "digits")
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("qkv.jobs.translate.training.translate_pairs", full)
        with pytest.raises(InputError, match="Out of memory"):
            TRANSLATING.start(settings("transformer", files, "train.steps=2"), run, Silent())
    assert (run / KEPT).is_file()
    with monkeypatch.context() as patch:
        patch.setattr("qkv.jobs.translate.data.encode_pairs", again)
        assert TRANSLATING.resume(run, Silent()).finished
    assert not (run / KEPT).exists()
    whole = TRANSLATING.start(settings("transformer", files, "train.steps=2"), tmp_path / "whole", Silent()).run
    assert (whole / "model" / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()
