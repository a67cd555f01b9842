"""Evaluation of a translation model: the loss of the references, and its own translations.

The pairs are fixed: the loss uses all pairs that are not too long; during training some of them, evenly spaced, are
translated greedily; at the end all are translated with beam search.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from qkv.data.labelled.examples import Fault
from qkv.data.pairs.batching import Languages, PairBatches, encode_pairs
from qkv.data.pairs.files import Pair
from qkv.errors import InputError
from qkv.metrics import translation as scores
from qkv.metrics.numbers import perplexity
from qkv.models.transformer.objective import evaluate_translation
from qkv.search.options import GenerateConfig
from qkv.tasks.translate import SEARCH_TOKENS_PER_BATCH, TranslationNetwork, score_translations, translate_batch

SELECTION = "selection"
"""What the best weights are chosen by; the more the better."""
_SHOWN = 8  # translations that are shown as the training goes on
TIE = 1e-9
"""What a nat of loss counts where weights translate equally well: less than any difference between translations."""


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
        found = encode_pairs(pairs, languages, max_length)
        if not len(found.pairs):
            raise InputError(
                f"Every pair of dev has a side of more than max_length = {max_length} tokens: nothing to choose by."
            )
        self.batches = PairBatches(found.pairs, languages, tokens_per_batch)
        left_out = {*found.too_long, *found.nothing}
        fitting = [pair for number, pair in enumerate(pairs) if number not in left_out]
        self.pairs = [fitting[place] for place in pick_evenly(len(fitting), translate)]
        self.sources = languages.read([pair.source for pair in self.pairs])
        self.decoding = GenerateConfig(max_length=max_length, max_ratio=2.0)
        self.tokens_per_batch = tokens_per_batch

    def __call__(self, model: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        loss, right, count = evaluate_translation(model, map(self.batches.collate, self.batches.epoch(0)))
        result |= {"loss": loss, "next_loss": loss, "next_accuracy": right / max(1, count)}
        result |= {"next_correct": right, "next_count": count, "next_perplexity": perplexity(loss)}
        if self.pairs:
            texts = self._translations(model)
            references = [pair.target for pair in self.pairs]
            score = score_translations([pair.source for pair in self.pairs], texts, references, self.language)
            result |= {"exact": score.exact, "translated": len(texts)}
            if score.bleu is not None and score.chrf is not None:
                result |= {"bleu": score.bleu.value, "chrf": score.chrf.value}
            result["samples"] = [
                {"source": self.pairs[row].source, "reference": references[row], "translation": texts[row]}
                for row in pick_evenly(len(texts), _SHOWN)
            ]
        result[SELECTION] = -loss if self.select == "loss" else result[self.select] - TIE * loss
        return result

    def _translations(self, model: TranslationNetwork) -> list[str]:
        found = translate_batch(
            model, self.languages, self.sources, self.decoding, tokens_per_batch=2 * self.tokens_per_batch
        )
        return [self.languages.target.decode(hypotheses[0].tokens) for hypotheses in found]


def pick_evenly(count: int, wanted: int) -> list[int]:
    """So many places of `count`, at most all, evenly over them: a file is often sorted.

    >>> pick_evenly(10, 4), pick_evenly(3, 8)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    wanted = min(count, wanted)
    return [count * place // wanted for place in range(wanted)]


def find_unevaluated(dev: Sequence[Pair], languages: Languages, max_length: int) -> list[Fault]:
    """The pairs of dev that are no part of an evaluation: a model of that length has no loss on them."""
    found = encode_pairs(dev, languages, max_length)
    long, empty = set(found.too_long), set(found.nothing)
    faults = []
    for number, pair in enumerate(dev):
        if number in long:
            message = f"dev: more than {max_length - 1} tokens on a side, no weights are chosen by it"
            faults.append(Fault(pair.place, "too long", message, "dropped"))
        elif number in empty:
            message = "dev: nothing is left of a side after tokenization, no weights are chosen by it"
            faults.append(Fault(pair.place, "empty text", message, "dropped"))
    return faults


def find_untranslatable(name: str, pairs: Sequence[Pair], languages: Languages, max_length: int) -> list[Fault]:
    """The pairs whose source `qkv translate` refuses, or makes nothing of: they count, with an empty translation. To
    leave them out would make the score one of another, easier set."""
    faults = []
    for pair, row in zip(pairs, languages.read([pair.source for pair in pairs]), strict=True):
        if not can_translate(row, max_length):
            kind, what = ("too long", f"more than {max_length - 1}") if len(row) > 1 else ("empty text", "no")
            message = f"{name}: {what} tokens in the source, which counts as translated with nothing"
            faults.append(Fault(pair.place, kind, message, "noted"))
    return faults


def can_translate(source: Sequence[int], max_length: int) -> bool:
    """`source` with its end, as `Languages.read` gives it."""
    return 1 < len(source) <= max_length


class PairEvaluation(NamedTuple):
    """Translations of pairs, in their order; of a source that cannot be translated there is an empty one."""

    texts: list[str]
    finished: list[bool]  # False: stopped because it was too long


def translate_and_score(
    network: TranslationNetwork,
    languages: Languages,
    pairs: Sequence[Pair],
    decoding: GenerateConfig,
    max_length: int,
    *,
    tokens_per_batch: int = SEARCH_TOKENS_PER_BATCH,
    progress: Callable[[int], None] | None = None,
) -> PairEvaluation:
    """What a model makes of pairs that it is judged by: all of them count, also those of `not_translated`."""
    rows = languages.read([pair.source for pair in pairs])
    places = [place for place, row in enumerate(rows) if can_translate(row, max_length)]
    found = translate_batch(
        network,
        languages,
        [rows[place] for place in places],
        decoding,
        tokens_per_batch=tokens_per_batch,
        progress=progress,
    )
    result = PairEvaluation([""] * len(pairs), [True] * len(pairs))
    for place, hypotheses in zip(places, found, strict=True):
        result.texts[place] = languages.target.decode(hypotheses[0].tokens)
        result.finished[place] = hypotheses[0].finished
    return result


def check_selection(select: str, tell: Callable[[str], None]) -> None:
    """Refuse, before anything is read, to choose by what cannot be counted here; tell what else will be missing."""
    if scores.is_available():
        return
    install = "sacrebleu, which is not installed: pip install 'qkv[translate]'"
    if select == "bleu":
        raise InputError(
            f"select = bleu: the best weights are to be those of the best BLEU, which is counted by {install}. Or "
            "choose by the loss (--set select=loss), in a new run."
        )
    by = "the lowest loss" if select == "loss" else "the most exact translations"
    tell(
        f"note: BLEU and chrF are counted by {install}. Without it the best weights are those of {by}, as was asked "
        "for, and of the translations no more is told than how many are exactly the reference."
    )
