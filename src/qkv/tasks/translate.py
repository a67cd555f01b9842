"""Translate batches with an encoder-decoder, and score translations.

Texts are sorted by length, batched by a budget of tokens, and returned in their order. Nothing is truncated: the caller
rejects or splits sources that are too long.

Shapes: T tokens of a translation, S tokens of its source.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.data.batch import Batch, plan_batches
from qkv.data.pairs.batching import Coder, Languages
from qkv.errors import InputError
from qkv.metrics import translation as scores
from qkv.models.seq2seq.network import Seq2Seq
from qkv.models.transformer.network import Transformer
from qkv.search.beam import generate
from qkv.search.decoding import EncoderDecoder, Hypothesis
from qkv.search.options import GenerateConfig
from qkv.text.wordpiece import CONTINUES

TranslationNetwork = Transformer | Seq2Seq
SEARCH_TOKENS_PER_BATCH = 4_096  # of sources, times their hypotheses
_LENGTHS = (5, 10, 15, 20, 30, 40, 50)
"""Words of a source (of Chinese, 汉字), by which translations are looked at apart."""


@torch.inference_mode()
def translate_batch(
    network: TranslationNetwork,
    languages: Languages,
    sources: Sequence[Sequence[int]],
    config: GenerateConfig,
    *,
    tokens_per_batch: int = SEARCH_TOKENS_PER_BATCH,
    keys: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """The n best of every source; sources as `Languages.read` gives them. The network must be in eval mode.

    `keys`: for drawing, a number that tells each source apart from those of other calls; else its place in this one.
    """
    device = next(network.parameters()).device
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for rows in plan_batches([len(source) for source in sources], max(1, tokens_per_batch // config.hypotheses)):
        examples = rows.tolist() if keys is None else [keys[row] for row in rows.tolist()]
        batch = Batch.of([sources[row] for row in rows], examples=examples)
        texts = _search(network, batch.to(device), languages, config)
        for row, hypotheses in zip(rows.tolist(), texts, strict=True):
            found[row] = hypotheses
        if progress is not None:
            progress(len(rows))
    return found


def _search(
    network: EncoderDecoder[Any], batch: Batch, languages: Languages, config: GenerateConfig
) -> list[list[Hypothesis]]:
    """The search hands every state back to the network that made it, so which kind of state it is does not matter."""
    longest = max(config.limit(length) for length in batch.lengths)
    state = network.start(batch.ids, batch.packing, hypotheses=config.hypotheses, longest=longest)
    begin = torch.full((batch.n_rows,), languages.begin, device=batch.ids.device)
    keys = batch.examples.tolist()
    return generate(
        network.step,
        state,
        begin,
        languages.end,
        config,
        source_lengths=batch.lengths,
        never=languages.never,
        keys=keys,
    )


def source_spans(coder: Coder, text: str) -> list[tuple[int, int]]:
    """Which characters each token of a source is, without the space before it; empty for one that is only a space."""
    return [_stripped(text, *span) for span in coder.encode(text, special=False).offsets]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def target_spans(coder: Coder, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """The text that these tokens are, and which characters of it each of them is.

    Each token's own characters are looked for behind those of the token before it, so that it does not matter what the
    decoder makes of the spaces between them.
    """
    text = coder.decode(ids)
    spans: list[tuple[int, int]] = []
    at = 0
    for token in ids:
        piece = "" if token in coder.special_ids else coder.decode([token]).strip()
        piece = piece.removeprefix(CONTINUES) if len(piece) > len(CONTINUES) else piece
        place = text.find(piece, at) if piece else -1
        begin, end = (place, place + len(piece)) if place >= 0 else (at, at)
        spans.append((begin, end))
        at = end
    return text, spans


@dataclass(frozen=True)
class LengthScore:
    """Of sources of `first` to `last` words."""

    first: int
    last: int
    pairs: int
    bleu: float | None


@dataclass(frozen=True)
class TranslationScore:
    pairs: int
    exact: float  # share of the translations that are the reference itself
    bleu: scores.TranslationScore | None = None  # None: sacrebleu is not installed
    chrf: scores.TranslationScore | None = None
    by_length: tuple[LengthScore, ...] = ()
    unfinished: int = 0  # stopped because they were too long

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"pairs": self.pairs, "exact": self.exact, "unfinished": self.unfinished}
        for name, score in (("bleu", self.bleu), ("chrf", self.chrf)):
            if score is not None:
                found |= {name: score.value, f"{name}_signature": score.signature}
                if score.low == score.low:  # a number
                    found[f"{name}_interval"] = [score.low, score.high]
        found["by_length"] = [vars(one) for one in self.by_length]
        return found


def check_scores(language: str) -> None:
    """Score one sentence, so that a missing package for the target language is reported before the training.
    Without sacrebleu nothing will be counted, and nothing can be missing."""
    if scores.is_available():
        with _scoring_errors():
            scores.bleu(["a"], ["a"], language)


@contextmanager
def _scoring_errors() -> Iterator[None]:
    """Turn a score that cannot be computed into an error that the user can fix."""
    try:
        yield
    except scores.ScoreError as error:
        raise InputError(str(error)) from error


def score_translations(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    interval: bool = False,
    unfinished: int = 0,
) -> TranslationScore:
    """`language` is the target's. Without sacrebleu the share of exact translations is all that is known."""
    same = [one.split() == other.split() for one, other in zip(hypotheses, references, strict=True)]
    exact = sum(same) / max(1, len(same))
    lengths = np.array([_words(source) for source in sources])
    if not scores.is_available():
        return TranslationScore(
            len(same), exact, by_length=tuple(_by_length(lengths, lambda rows: None)), unfinished=unfinished
        )
    with _scoring_errors():
        counts = scores.bleu_counts(hypotheses, references, language)
        bleu = scores.bleu(hypotheses, references, language, interval=interval)
        chrf = scores.chrf(hypotheses, references, interval=interval)

    def bleu_of(rows: NDArray[np.int64]) -> float:
        return float(scores.bleu_of(counts[rows].sum(0)[None])[0])

    return TranslationScore(
        len(same),
        exact,
        bleu,
        chrf,
        tuple(_by_length(lengths, bleu_of)),
        unfinished,
    )


def _words(text: str) -> int:
    """Between spaces, and every 汉字 by itself: about what a person would count.

    >>> _words("A cat, 一只猫")
    5
    """
    chinese = sum("一" <= character <= "鿿" for character in text)
    rest = "".join(" " if "一" <= character <= "鿿" else character for character in text)
    return chinese + len(rest.split())


def _by_length(
    lengths: NDArray[np.int64], bleu_of: Callable[[NDArray[np.int64]], float | None]
) -> Iterator[LengthScore]:
    places = np.searchsorted(_LENGTHS, lengths)
    edges = (0, *_LENGTHS)
    for place in np.unique(places).tolist():
        rows = np.flatnonzero(places == place)
        last = _LENGTHS[place] if place < len(_LENGTHS) else int(lengths[rows].max())
        yield LengthScore(edges[place] + 1, last, len(rows), bleu_of(rows))


def summarize_scores(score: Mapping[str, Any]) -> Collection[str]:
    """A score's figures for people, from what `to_dict` gave."""
    said = []
    for name, title in (("bleu", "BLEU"), ("chrf", "chrF2")):
        if name in score:
            interval = score.get(f"{name}_interval")
            around = f" (95 %: {interval[0]:.1f} to {interval[1]:.1f})" if interval else ""
            said.append(f"{title} {score[name]:.2f}{around}   {score[f'{name}_signature']}")
    said.append(f"exactly the reference: {score['exact']:.1%} of {score['pairs']:,}")
    if score.get("unfinished"):
        said.append(f"not ended within the length that was allowed: {score['unfinished']:,}")
    return said
