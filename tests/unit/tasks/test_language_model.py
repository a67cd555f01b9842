"""A task and the next word, learned from one pass of the encoder."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from qkv.data.batch import IGNORE, Batch
from qkv.models.encoder import Encoding
from qkv.models.gpt.encoder import GPTEncoder, GPTReaderConfig, GPTWithHeads
from qkv.models.gpt.network import GPTConfig
from qkv.tasks.classify import CrossEntropy
from qkv.tasks.transfer import TERM, TaskModel, WithLanguageModel, next_word_targets

ROWS = [[3, 5, 6, 9], [3, 7, 5, 8, 4, 6, 9]]  # 3 starts, 8 parts, 9 ends; words are 0 … 7
EXPECTED = [5, 6, IGNORE, IGNORE, 7, 5, IGNORE, 4, 6, IGNORE, IGNORE]


def model_of(head: str = "sequence") -> TaskModel:
    torch.manual_seed(0)
    shape = GPTConfig(10, 2, 8, 2, 16, 16, dropout=0.0, embedding_dropout=0.0, attention_dropout=0.0)
    config = GPTReaderConfig.of(shape, words=8)
    return TaskModel(GPTWithHeads(config, [head], labels=2), head)


def batch_of() -> Batch:
    return Batch.of(ROWS, labels={"unit": torch.tensor([1, 0]), "target": torch.tensor([0, 1])})


def test_words_of_the_text_are_predicted_and_marks_are_not() -> None:
    assert next_word_targets(Batch.of(ROWS), 8).tolist() == EXPECTED


def test_both_losses_are_their_own() -> None:
    model, batch = model_of(), batch_of()
    objective = WithLanguageModel(CrossEntropy(), 0.5, words=8)
    assert objective.weights == {"classify": 1.0, TERM: 0.5}
    assert objective.counts(batch) == {"classify": 2, TERM: 6}
    terms, alone = objective.terms(model, batch), CrossEntropy().terms(model, batch)
    torch.testing.assert_close(terms["classify"].loss, alone["classify"].loss)
    encoder = model.network.encoder
    assert isinstance(encoder, GPTEncoder)
    scores = model.hidden(batch) @ encoder.embedding.token.weight[:8].T
    expected = functional.cross_entropy(scores, torch.tensor(EXPECTED), ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(terms[TERM].loss, expected)


def test_the_encoder_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, run, times = model_of(), GPTEncoder.forward, [0]

    def counted(self: GPTEncoder, *given: Any, **options: Any) -> Encoding:
        times[0] += 1
        return run(self, *given, **options)

    monkeypatch.setattr(GPTEncoder, "forward", counted)
    terms = WithLanguageModel(CrossEntropy(), 0.5, words=8).terms(model, batch_of())
    assert times == [1]
    (terms["classify"].loss + terms[TERM].loss).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
