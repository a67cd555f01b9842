"""How well a GPT predicts documents it was not trained on, and what it writes: the same tokens and prompts every time.

The loss is a mean over tokens, so it is comparable among models of one tokenizer. Bits per character are comparable
among all. They are by the characters of the tokens that were predicted; what no token shows, such as a space between
words, is shared out among all characters of the corpus alike.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn

from qkv.batch import Batch
from qkv.data.manifest import COUNTS
from qkv.data.shard_file import map_arrays
from qkv.data.shards import Shards
from qkv.generate.growing_text import continuation
from qkv.generate.options import CHANCE, GenerateConfig
from qkv.generate.search import generate
from qkv.interop.gpt_tokenizer import never_written
from qkv.metrics.language import bits_per_character, perplexity
from qkv.models.gpt import GPT
from qkv.objectives.causal import CausalBatches, evaluated
from qkv.tokenizer import Tokenizer
from qkv.tokenizer_backend import ENDS_WORD
from qkv.wordpiece import CONTINUES

SEED = 20_180_611  # the day GPT was made known
PROMPTS = 2  # beside a text that is begun from nothing
SHORTEST = 3  # tokens of a prompt
WRITTEN = 100  # tokens of a sample, at most
INSIDE = frozenset(map(chr, (*range(161, 173), *range(174, 192), *range(290, 324))))
"""How a tokenizer of bytes spells those that go on with a character (UTF-8: 80 to BF)."""


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
        self.batches = CausalBatches(held_out, end_id, length, rows=rows, seed=SEED).beginning(tokens)
        written, everything = characters_of(tokenizer), np.array([held_out.n_tokens])
        counts = map_arrays(held_out.folder / COUNTS)["counts"] + np.bincount(
            held_out.tokens(np.zeros_like(everything), everything), minlength=len(written)
        )
        shares = written * (held_out.manifest["totals"]["characters"] / max(float(written @ counts), 1.0))
        self.characters = sum(float(shares[batch.labels["next"].numpy()].sum()) for batch in self.batches)
        self.prompts = [Prompt([end_id], ""), *prompts(held_out, tokenizer, end_id, longest=length // 2)]

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, GPT)
        loss, right, count = evaluated(model, self.batches)
        return {
            "next_loss": loss / count,
            "next_accuracy": right / count,
            "next_correct": right,
            "next_count": count,
            "next_perplexity": perplexity(loss / count),
            "bits_per_character": bits_per_character(loss, self.characters),
            "samples": self.written(model) if math.isfinite(loss) else [],
        }

    def written(self, model: GPT) -> list[dict[str, str]]:
        """How the model goes on from the prompts; drawn by chance, which comes out the same for the same weights."""
        source = Batch.of([prompt.ids for prompt in self.prompts]).to(next(model.parameters()).device)
        room = min(WRITTEN, model.config.max_length + 1 - source.longest)
        options = GenerateConfig.of({"sample": True, **CHANCE, "max_length": room, "seed": SEED})
        never = never_written(self.tokenizer, model.config.vocabulary_size, self.end_id)
        state = model.start(source.ids, source.packing, longest=room)
        begin = source.ids[source.offsets[1:].long() - 1]
        texts = generate(model.step, state, begin, self.end_id, options, never=never)
        return [
            {
                "prompt": prompt.text,
                "text": continuation(self.tokenizer.decode, prompt.ids[prompt.ids[0] == self.end_id :], best.tokens),
            }
            for prompt, (best,) in zip(self.prompts, texts, strict=True)
        ]


def characters_of(tokenizer: Tokenizer) -> NDArray[np.float64]:
    """(V,): of how many characters each token is. A mark is none, and what the vocabulary lacks at least one. A byte
    counts if a character begins with it."""
    found = np.zeros(tokenizer.size)
    of_bytes = isinstance(tokenizer.backend.pre_tokenizer, ByteLevel)
    for token, number in tokenizer.vocabulary.items():
        if number not in tokenizer.special_ids:
            plain = token.removeprefix(CONTINUES).removesuffix(ENDS_WORD) if tokenizer.kind != "character" else token
            found[number] = sum(one not in INSIDE for one in token) if of_bytes else len(plain or token)
    if tokenizer.unk_id in tokenizer.special_ids - {tokenizer.sep_id}:
        found[tokenizer.unk_id] = 1
    return found


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
