"""How well a GPT predicts documents it was not trained on, and what it writes: the same tokens and prompts every time.

The loss is a mean over tokens, so it is comparable among models of one tokenizer. Bits per character are comparable
among all: the held-out text is taken to have as many characters a token as the whole corpus has.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from qkv.batch import Batch
from qkv.data.shards import Shards
from qkv.generate.growing_text import continuation
from qkv.generate.options import GenerateConfig
from qkv.generate.search import generate
from qkv.metrics.language import bits_per_character, perplexity
from qkv.models.gpt import GPT
from qkv.objectives.causal import CausalBatches, evaluated
from qkv.tokenizer import Tokenizer

SEED = 20_180_611  # the day GPT was made known
PROMPTS = 2  # beside a text that is begun from nothing
SHORTEST = 3  # tokens of a prompt
WRITTEN = 100  # tokens of a sample, at most


class Prompt(NamedTuple):
    ids: list[int]  # of which the first may be the mark that stands before documents
    text: str


class GPTEvaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self, held_out: Shards, tokenizer: Tokenizer, end_id: int, length: int, rows: int, tokens: int
    ) -> None:
        self.tokenizer, self.end_id, self.length = tokenizer, end_id, length
        self.batches: list[Batch] = []
        self.prompts: list[Prompt] = []
        if not held_out.n_documents:
            return
        drawn = CausalBatches(held_out, end_id, length, rows=rows, seed=SEED)
        steps = min(drawn.steps_per_epoch, -(-tokens // (rows * length)))
        self.batches = [batch for step in range(steps) for batch in drawn(step)]
        totals = held_out.manifest["totals"]
        self.characters_a_token = totals["characters"] / totals["tokens"]
        self.prompts = [Prompt([end_id], ""), *prompts(held_out, tokenizer, end_id, longest=length // 2)]

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, GPT)
        loss, right, count = evaluated(model, self.batches)
        ends = sum(int((batch.labels["next"] == self.end_id).sum()) for batch in self.batches)
        return {
            "next_loss": loss / count,
            "next_accuracy": right / count,
            "next_correct": right,
            "next_count": count,
            "next_perplexity": perplexity(loss / count),
            "bits_per_character": bits_per_character(loss, (count - ends) * self.characters_a_token),
            "samples": self.written(model) if math.isfinite(loss) else [],
        }

    def written(self, model: GPT) -> list[dict[str, str]]:
        """How the model goes on from the prompts; drawn by chance, which comes out the same for the same weights."""
        source = Batch.of([prompt.ids for prompt in self.prompts]).to(next(model.parameters()).device)
        room = min(WRITTEN, model.config.max_length + 1 - source.longest)
        options = GenerateConfig(sample=True, temperature=0.8, top_k=40, max_length=room, seed=SEED)
        state = model.start(source.ids, source.packing, longest=room)
        begin = source.ids[source.offsets[1:].long() - 1]
        texts = generate(model.step, state, begin, self.end_id, options, never=self._never(model))
        return [
            {
                "prompt": prompt.text,
                "text": continuation(self.tokenizer.decode, prompt.ids[prompt.ids[0] == self.end_id :], best.tokens),
            }
            for prompt, (best,) in zip(self.prompts, texts, strict=True)
        ]

    def _never(self, model: GPT) -> list[int]:
        """Rows of the table without a token, and marks that are no text."""
        spare = set(range(model.config.vocabulary_size)) - set(self.tokenizer.vocabulary.values())
        return sorted((spare | self.tokenizer.special_ids) - {self.end_id})


def prompts(held_out: Shards, tokenizer: Tokenizer, end_id: int, longest: int) -> list[Prompt]:
    """First sentences of documents, or of a few long documents any sentences, from all over the held-out text."""
    offsets = held_out.sentence_offsets
    lengths = np.diff(offsets)
    firsts = held_out.document_offsets[:-1]
    suits = (lengths >= SHORTEST) & (lengths <= longest)
    suitable = firsts[suits[firsts]]
    if len(suitable) < PROMPTS:
        suitable = np.flatnonzero(suits)
    found = []
    for number in np.random.default_rng(SEED).permutation(suitable)[:PROMPTS]:
        ids = held_out.tokens(offsets[number : number + 1], lengths[number : number + 1]).tolist()
        begins = [end_id] if number in firsts else []
        found.append(Prompt([*begins, *ids], tokenizer.decode(ids)))
    return found
