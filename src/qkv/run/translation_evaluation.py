"""How a translation model does on pairs it was not trained on: the loss of the references, and translations of its own.

The same pairs every time: all of them for the loss, the first few for translating, which takes longer. They are
translated greedily here; with beam search once, at the end.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from qkv.data.pair_batching import PairBatches, encoded
from qkv.data.pair_files import Pair
from qkv.data.pair_languages import Languages
from qkv.errors import InputError
from qkv.generate.options import GenerateConfig
from qkv.metrics import translation as scores
from qkv.metrics.language import perplexity
from qkv.models.seq2seq import Seq2Seq
from qkv.models.transformer import Transformer
from qkv.objectives.translation import evaluated
from qkv.tasks.translate import scored, translated

SELECTION = "selection"
"""What the best weights are chosen by; the more the better."""
SHOWN = 8  # translations that are shown as the training goes on


class TranslationEvaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        languages: Languages,
        language: str,
        *,
        select: str,
        translate: int,
        max_length: int,
        tokens_per_batch: int,
    ) -> None:
        self.languages, self.language, self.select = languages, language, select
        found = encoded(pairs, languages, max_length)
        if not len(found.pairs):
            raise InputError(
                f"Every pair of dev has a side of more than max_length = {max_length} tokens: nothing to choose by."
            )
        self.batches = PairBatches(found.pairs, languages, tokens_per_batch)
        # spread over all of them: a file is often sorted
        every = max(1, len(pairs) // max(1, translate))
        self.pairs = list(pairs[::every][:translate])
        self.sources = languages.read([pair.source for pair in self.pairs])
        self.decoding = GenerateConfig(max_length=max_length, max_ratio=2.0)
        self.tokens_per_batch = tokens_per_batch

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, Transformer | Seq2Seq)
        result: dict[str, Any] = {}
        loss, right, count = evaluated(model, map(self.batches.collate, self.batches.epoch(0)))
        result |= {"loss": loss, "next_loss": loss, "next_accuracy": right / max(1, count)}
        result |= {"next_correct": right, "next_count": count, "next_perplexity": perplexity(loss)}
        if self.pairs:
            texts = self._translations(model)
            references = [pair.target for pair in self.pairs]
            score = scored([pair.source for pair in self.pairs], texts, references, self.language)
            result |= {"exact": score.exact, "translated": len(texts)}
            if score.bleu is not None and score.chrf is not None:
                result |= {"bleu": score.bleu.value, "chrf": score.chrf.value}
            result["samples"] = [
                {"source": pair.source, "reference": pair.target, "translation": text}
                for pair, text in list(zip(self.pairs, texts, strict=True))[:: max(1, len(texts) // SHOWN)][:SHOWN]
            ]
        result[SELECTION] = -result["loss"] if self.select == "loss" else result[self.select]
        return result

    def _translations(self, model: Transformer | Seq2Seq) -> list[str]:
        found = translated(
            model, self.languages, self.sources, self.decoding, tokens_per_batch=2 * self.tokens_per_batch
        )
        return [self.languages.target.decode(hypotheses[0].tokens) for hypotheses in found]


def can_select(select: str) -> bool:
    """Whether this machine can count what is to be chosen by."""
    return select != "bleu" or scores.is_available()
