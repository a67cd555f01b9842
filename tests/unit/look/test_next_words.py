"""What language models expect after every token: their own probabilities, and what a candidate adds to the text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qkv.api.generator import Generator
from qkv.data.batch import Batch
from qkv.look.next_words import show_next_words
from qkv.look.subject import open_subject
from qkv.look.wire import Asked, RefusalError, Reply
from qkv.models.elmo.network import Elmo
from qkv.models.gpt.network import GPT
from qkv.models.nnlm.network import NNLM
from qkv.models.rnnlm.network import RNNLM
from qkv.search.options import GenerateConfig
from tests.support.below_readers import make_elmo, make_nnlm, make_rnnlm
from tests.support.folders import make_folder
from tests.support.gpt_folders import load_gpt, make_gpt
from tests.support.inside_folders import translator
from tests.support.word_vectors import make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "the cat sat on the mat."


def ask(folder: Path, text: str = TEXT, k: int = 4) -> Reply:
    return show_next_words(open_subject(folder), Asked({"text": text, "k": k}))


def same(found: np.ndarray[Any, Any], expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found, expected.float().numpy(), atol=1e-6)


def check_rows(found: Reply, expected: torch.Tensor, ids: list[int], direction: str = "forward") -> None:
    """All arrays of one direction, against probabilities (T, V) of the network itself."""
    step = 1 if direction == "forward" else -1
    same(found.arrays[direction], expected.topk(found.arrays[direction].shape[1]).values)
    same(found.arrays[f"{direction}_entropy"], -(expected * expected.log2()).sum(1))
    for place in range(len(ids)):
        came, rank = found.arrays[f"{direction}_came"][place], found.arrays[f"{direction}_rank"][place]
        if not 0 <= place + step < len(ids):
            assert (came, rank) == (-1, -1)
            continue
        row = expected[place]
        assert came == pytest.approx(float(row[ids[place + step]]), abs=1e-6)
        assert rank == int((row > row[ids[place + step]]).sum())


@torch.no_grad()
def test_nnlm_and_rnnlm(tmp_path: Path) -> None:
    for make, kind in ((make_rnnlm, RNNLM), (make_nnlm, NNLM)):
        folder = make(tmp_path / kind.__name__)
        subject = open_subject(folder)
        network, tokenizer = subject.predicts_next.network, subject.opened.tokenizer
        found = ask(folder)
        ids = [tokenizer.cls_id, *tokenizer.encode_ids([TEXT])[0]]
        read = torch.tensor(ids)
        if isinstance(network, RNNLM):
            hidden = network(read, (len(ids),))[0]
        else:
            assert isinstance(network, NNLM)
            hidden = network(read, torch.arange(len(ids)))
        check_rows(found, network.predict(hidden).softmax(1), ids)
        assert list(found.head["words"]) == ["forward"] and found.head["tokens"][0]["special"]
        assert ask(folder, k=50).arrays["forward"].shape[1] == 50


@torch.no_grad()
def test_elmo_reads_from_both_ends(tmp_path: Path) -> None:
    folder = make_elmo(tmp_path / "elmo", layers=2)
    subject = open_subject(folder)
    network, tokenizer = subject.recurrent, subject.opened.tokenizer
    assert isinstance(network, Elmo) and subject.predicts_next.network is network  # loaded once
    found, ids = ask(folder, "the cat sat"), tokenizer.encode("the cat sat").ids
    last = network(torch.tensor(ids), (len(ids),))[:, -1].chunk(2, dim=-1)
    for hidden, direction in zip(last, ("forward", "backward"), strict=True):
        check_rows(found, network.scores(hidden, hidden).softmax(1), ids, direction)
    # what is spelled, and not in the vocabulary, has no probability
    assert ask(folder, "the zebra").arrays["forward_rank"][1] == -1


@pytest.mark.parametrize("vocabulary", ["wordpiece", "gpt2", "gpt"])
@torch.no_grad()
def test_gpt(tmp_path: Path, vocabulary: str) -> None:
    folder = make_gpt(tmp_path / "gpt", vocabulary)
    loaded = load_gpt(folder)
    assert isinstance(loaded.model, GPT)
    found, ids = ask(folder), loaded.tokenizer.encode_ids([TEXT])[0]
    hidden = loaded.model(torch.tensor(ids), Batch.of([ids]).packing)
    check_rows(found, loaded.model.scores(hidden).softmax(1), ids)


def test_a_text_begins_where_generation_begins_it(tmp_path: Path) -> None:
    """One that was pretrained here has the special token of a document before the text, as `qkv generate` has it."""
    folder = make_gpt(tmp_path / "gpt")
    assert not ask(folder).head["tokens"][0]["special"]
    record = '{"format": 1, "record": {"job": "pretrain"}}'
    (folder / "qkv.json").write_text(record, encoding="utf-8")
    found = ask(folder)
    begin = found.head["tokens"][0]
    assert (begin["token"], begin["text"], begin["special"]) == ("[SEP]", "", True)
    assert found.arrays["forward_rank"][0] >= 0
    ((written,),) = Generator(folder).generate([TEXT], GenerateConfig(max_length=1))
    said = [text for text in found.head["texts"]["forward"][-1] if text is not None]
    assert written.text == said[0]


CHINESE, ENGLISH = "他欠我", "the cat"


@pytest.mark.parametrize(
    "make", [make_gpt, lambda path: make_gpt(path, "gpt2"), lambda path: make_gpt(path, "gpt"), make_rnnlm, make_elmo]
)
def test_a_candidate_goes_on_with_the_text(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Read again, the longer text is the same tokens and the candidate, wherever it is text at all."""
    folder = make(tmp_path / "model")
    tokenizer = open_subject(folder).opened.tokenizer
    for text in (ENGLISH, CHINESE, "the cat 😀"):
        found, ids = ask(folder, text, k=20), tokenizer.encode_ids([text])[0]
        said = [place for place, token in enumerate(found.head["tokens"]) if not token["special"]]
        for direction, place in (("forward", said[-1]), ("backward", said[0])):
            if direction not in found.head["words"]:
                continue
            words, texts = found.head["words"][direction][place], found.head["texts"][direction][place]
            pairs = [(tokenizer.id(word), added) for word, added in zip(words, texts, strict=True) if added is not None]
            if direction == "forward":
                right = [tokenizer.encode_ids([text + added])[0] == [*ids, id] for id, added in pairs]
            else:
                right = [tokenizer.encode_ids([added + text])[0] == [id, *ids] for id, added in pairs]
            # pieces may join otherwise when they are read again
            assert sum(right) >= 0.5 * len(right), (direction, text, texts)


def test_what_is_refused(tmp_path: Path) -> None:
    gpt, rnnlm = open_subject(make_gpt(tmp_path / "gpt")), open_subject(make_rnnlm(tmp_path / "rnnlm"))
    assert len(show_next_words(rnnlm, Asked({"text": "cat " * 255})).head["tokens"]) == 256
    assert len(show_next_words(gpt, Asked({"text": "cat " * 64})).head["tokens"]) == 64
    for subject, fields, code in (
        (gpt, {"text": " \n"}, "empty"),
        (gpt, {"text": "\u200b"}, "empty"),
        (gpt, {"text": "cat " * 65}, "too_many_tokens"),
        (rnnlm, {"text": "cat " * 256}, "too_many_shown"),
        (gpt, {"text": "cat", "k": 51}, "range"),
        (gpt, {"text": "cat", "layer": 0}, "field"),
        (open_subject(make_folder(tmp_path / "bert")), {"text": "cat"}, "no_next_words"),
        (open_subject(make_vectors_folder(tmp_path / "table")), {"text": "cat"}, "no_next_words"),
        (translator(tmp_path / "seq2seq", "seq2seq"), {"text": "the cat"}, "no_next_words"),
    ):
        with pytest.raises(RefusalError) as refused:
            show_next_words(subject, Asked(fields))
        assert refused.value.code == code, fields
