import numpy as np
import pytest
import torch

from qkv.data.batch import Batch
from qkv.data.corpus.rows import RunningText, Shuffled, StreamBatches, TextConfig, WindowBatches
from qkv.errors import InputError
from tests.support.corpus import Ids, MemoryCorpus

CLS, SEP = 2, 3


class TwoDocuments(MemoryCorpus):
    """[10 11 . 12] [20 21 22], the first of two sentences."""

    def __init__(self) -> None:
        self.flat = np.array([10, 11, 12, 20, 21, 22])
        self.sentence_offsets, self.document_offsets = np.array([0, 2, 3, 6]), np.array([0, 2, 3])


def read_out(corpus: MemoryCorpus, ends: str, order: list[int]) -> list[int]:
    """The text as it should run, put together a document at a time."""
    found = []
    for document in order:
        found.append(CLS)
        first, last = corpus.document_offsets[document], corpus.document_offsets[document + 1]
        for sentence in range(first, last):
            found += corpus.flat[corpus.sentence_offsets[sentence] : corpus.sentence_offsets[sentence + 1]].tolist()
            found += [SEP] if ends == "sentence" else []
        found += [SEP] if ends == "document" else []
    return found


def test_two_documents() -> None:
    by_sentence, by_document = (RunningText(TwoDocuments(), Ids(), ends) for ends in ("sentence", "document"))
    assert by_sentence.ids(np.arange(11)).tolist() == [CLS, 10, 11, SEP, 12, SEP, CLS, 20, 21, 22, SEP]
    assert by_document.ids(np.arange(10)).tolist() == [CLS, 10, 11, 12, SEP, CLS, 20, 21, 22, SEP]
    assert (by_sentence.n_tokens, by_document.n_tokens) == (11, 10)
    other = Shuffled(by_sentence, np.array([1, 0]))
    ids, documents = other.look_up(np.arange(11))
    assert ids.tolist() == [CLS, 20, 21, 22, SEP, CLS, 10, 11, SEP, 12, SEP]
    assert documents.tolist() == [0] * 5 + [1] * 6
    assert by_sentence.ids(np.array([0])).tolist() == [CLS]


@pytest.mark.parametrize("ends", ["sentence", "document"])
def test_streams_are_the_text_itself(ends: str) -> None:
    """Every stream, put together again over all steps of an epoch; what is predicted is the token after, and nothing
    across documents."""
    corpus = MemoryCorpus()
    batches = StreamBatches(corpus, Ids(), TextConfig(7, ends), rows=3, accumulate=2, seed=5)
    order = batches.epoch(0).order.tolist()
    text = read_out(corpus, ends, order)
    length, steps = len(text) // 6, batches.steps_per_epoch
    assert sorted(order) == list(range(30)) != order and steps == (length - 1) // 7
    streams: dict[int, list[int]] = {number: [] for number in range(6)}
    predicted: dict[int, list[tuple[int, int]]] = {number: [] for number in range(6)}
    for step in range(steps):
        for batch in batches(step):
            targets = torch.full((batch.n_tokens,), -1)
            targets[batch.labels["scored_at"]] = batch.labels["next"]
            for row, (ids, wanted) in enumerate(zip(batch.rows(batch.ids), batch.rows(targets), strict=True)):
                stream = int(batch.examples[row])
                carried_on = step > 0 and int(batch.windows[row]) == 0 and int(ids[0]) != CLS
                assert bool(batch.labels["continues"][row]) == carried_on
                assert CLS not in ids[1:].tolist(), "a new document begins a new row"
                streams[stream] += ids.tolist()
                predicted[stream] += zip(ids.tolist(), wanted.tolist(), strict=True)
    for number in range(6):
        begin = number * length
        expected = text[begin : begin + steps * 7 + 1]
        assert streams[number] == expected[:-1]
        for place, (now, following) in enumerate(predicted[number]):
            assert now == expected[place]
            assert following == (-1 if expected[place + 1] == CLS else expected[place + 1])


def last_rows(batch: Batch) -> list[int]:
    return [
        max(row for row in range(batch.n_rows) if batch.examples[row] == stream) for stream in batch.labels["streams"]
    ]


def test_what_a_stream_goes_on_from() -> None:
    batches = StreamBatches(MemoryCorpus(), Ids(), TextConfig(40), rows=4, accumulate=2)
    cut = [batch for step in range(batches.steps_per_epoch) for batch in batches(step)]
    assert any(batch.n_rows > 4 for batch in cut), "documents end inside of pieces"
    for batch in cut:
        assert batch.labels["last"].tolist() == last_rows(batch)
    first, second = batches(0)
    assert first.labels["streams"].tolist() == [0, 1, 2, 3] and second.labels["streams"].tolist() == [4, 5, 6, 7]


def test_windows_see_what_is_before_them() -> None:
    """Of a whole epoch: every token once, after as many tokens as the model sees, as far as its document has them."""
    corpus = MemoryCorpus()
    batches = WindowBatches(corpus, Ids(), TextConfig(5), rows=4, seed=1, seen=3)
    text = read_out(corpus, "sentence", batches.epoch(0).order.tolist())
    known = {tuple(text[max(0, place - 3) : place + 2]) for place in range(len(text) - 1)}
    total = 0
    for step in range(batches.steps_per_epoch):
        (batch,) = batches(step)
        total += batch.labels["next"].numel()
        for place, following in zip(batch.labels["scored_at"].tolist(), batch.labels["next"].tolist(), strict=True):
            position = int(batch.positions[place])
            seen = batch.ids[place - min(3, position) : place + 1].tolist()
            assert position >= 3 or seen[0] == CLS or tuple(text[: len(seen)]) == tuple(seen)
            assert CLS not in seen[1:] and following != CLS
            if len(seen) == 4:
                assert (*seen, following) in known
    skipped = len(text) - 1 - 20 * batches.steps_per_epoch
    assert 0 <= skipped < 20 and total == 20 * batches.steps_per_epoch - sum_of_documents_ended(batches)


def sum_of_documents_ended(batches: WindowBatches) -> int:
    """Tokens after which another document begins, in the windows of an epoch."""
    text, order = batches.epoch(0), batches.order(0)
    chosen = order[: batches.steps_per_epoch * batches.streams]
    places = (chosen[:, None] * 5 + np.arange(5)).ravel()
    return int(np.isin(places + 1, text.begins).sum())


@pytest.mark.parametrize("kind", [StreamBatches, WindowBatches])
def test_a_pure_function_of_the_step(kind: type[StreamBatches]) -> None:
    once, again = (kind(MemoryCorpus(), Ids(), TextConfig(6), rows=3, seed=2, seen=1) for _ in range(2))
    turn = once.steps_per_epoch
    for step in (turn + 1, 0, turn, 1):
        assert once(step)[0].ids.equal(again(step)[0].ids)
    assert not once(0)[0].ids.equal(once(turn)[0].ids), "another epoch, another order"
    assert not once(turn)[0].labels["continues"].any(), "where an epoch begins, nothing is gone on with"
    whole, cut = once(1)[0], once.resized(1, 3)(1)
    assert torch.cat([batch.ids for batch in cut]).equal(whole.ids)


def test_bad_settings_and_too_little_text() -> None:
    with pytest.raises(InputError, match="Did you mean 'sentence'"):
        TextConfig(ends="sentences")
    with pytest.raises(InputError, match="length must be at least 1"):
        TextConfig(0)
    with pytest.raises(InputError, match=r"has 11 tokens, but 4 streams with chunks of 35 need more than 140.*rows="):
        StreamBatches(TwoDocuments(), Ids(), TextConfig(), rows=4)
