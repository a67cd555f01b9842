"""A recurrent model that writes: step by step it says what it says of the whole text."""

import pytest
import torch

from qkv.data.batch import Batch
from qkv.models.rnnlm.folder import RecurrentWriting
from qkv.models.rnnlm.network import RNNLM, RNNLMConfig
from tests.support.folders import randomise


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_steps_are_the_whole(cell: str) -> None:
    network = RNNLM(RNNLMConfig(20, cell, 2, 8)).eval()
    randomise(network)
    rows = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11]]
    whole = Batch.of(rows)
    hidden, _ = network(whole.ids, whole.lengths)
    expected = network.predict(hidden).split(list(whole.lengths))
    writing = RecurrentWriting(network)
    prompts = Batch.of([row[:length] for row, length in zip(rows, (3, 1, 2), strict=True)])  # one has nothing to read
    state = writing.start(prompts.ids, prompts.packing, hypotheses=2, longest=9)
    tokens = prompts.ids[prompts.offsets[1:].long() - 1].repeat_interleave(2)
    logits, state, attention = writing.step(tokens, state)
    assert attention is None
    for row, place in enumerate((2, 0, 1)):
        torch.testing.assert_close(logits[2 * row], expected[row][place])
        torch.testing.assert_close(logits[2 * row + 1], expected[row][place])
    state = state.select(torch.tensor([4, 0]))  # of the last prompt, then of the first
    logits, _, _ = writing.step(torch.tensor([10, 4]), state)
    torch.testing.assert_close(logits, torch.stack([expected[2][2], expected[0][3]]))
