"""The same training with other random seeds: how far the score moves by luck alone."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from qkv.jobs.finetune.facts import SeedFacts
from qkv.report.bars import table
from qkv.report.bilingual import Phrase, Words, duration, spans
from qkv.report.charts import nice_ticks, tick_labels
from qkv.tasks.names import SHARE, Metric


@dataclass(frozen=True)
class SeedSpread:
    mean: float
    deviation: float  # of the sample; 0 of a single score


def measure_spread(seeds: Sequence[SeedFacts]) -> SeedSpread | None:
    scores = [seed.score for seed in seeds if math.isfinite(seed.score)]
    if not scores:
        return None
    return SeedSpread(statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0)


def choose_best_seed(seeds: Sequence[SeedFacts]) -> SeedFacts | None:
    """The one that was kept; the first of equals."""
    known = [seed for seed in seeds if math.isfinite(seed.score)]
    return max(known, key=lambda seed: seed.score) if known else next(iter(seeds), None)


@dataclass(frozen=True)
class Seeds:
    title: Words
    seeds: tuple[SeedFacts, ...]
    metric: Metric
    narrow: bool = True

    @property
    def style(self) -> str:
        return resources.files("qkv.jobs.finetune").joinpath("seeds.css").read_text(encoding="utf-8")

    def html(self) -> str:
        kept = choose_best_seed(self.seeds)
        rows = [
            (
                Phrase(f"{seed.seed} (kept)", f"{seed.seed}（保留）") if seed == kept else str(seed.seed),
                self.metric.shown(seed.score),
                f"{seed.best_step:,} / {seed.steps:,}",
                duration(seed.seconds),
            )
            for seed in self.seeds
        ]
        headings = (
            Phrase("seed", "种子"),
            self.metric.name,
            Phrase("best step / all", "最佳步 / 总步数"),
            Phrase("time", "用时"),
        )
        return self._ruler() + table(headings, rows, 10)

    def _ruler(self) -> str:
        """All scores on one line, with the mean and one standard deviation to either side."""
        found = measure_spread(self.seeds)
        scores = [seed.score for seed in self.seeds if math.isfinite(seed.score)]
        if found is None or len(scores) < 2:
            return ""
        room = 0.35 * (max(scores) - min(scores)) or 0.01
        low = min([*scores, found.mean - found.deviation]) - room
        high = max([*scores, found.mean + found.deviation]) + room

        def place(score: float) -> float:
            return 100 * (score - low) / (high - low)

        ticks = nice_ticks(low, high, 4)
        labels = tick_labels(ticks, "percent" if self.metric.kind == SHARE else "number")
        marks = "".join(
            f'<em style="left:{place(tick):.1f}%">{label}</em>' for tick, label in zip(ticks, labels, strict=True)
        )
        kept = choose_best_seed(self.seeds)
        dots = "".join(
            f'<i class="{"kept" if seed == kept else ""}" style="left:{place(seed.score):.1f}%"></i>'
            for seed in self.seeds
            if math.isfinite(seed.score)
        )
        width = 100 * 2 * found.deviation / (high - low)
        band = f'<u style="left:{place(found.mean - found.deviation):.1f}%;width:{width:.1f}%"></u>'
        middle = f'<s style="left:{place(found.mean):.1f}%"></s>'
        # the deviation in the same unit as the mean
        deviation = f"{100 * found.deviation:.1f}" if self.metric.kind == SHARE else f"{found.deviation:.3f}"
        mean = f"{100 * found.mean:.1f}" if self.metric.kind == SHARE else f"{found.mean:.3f}"
        unit = "\u00a0%" if self.metric.kind == SHARE else ""
        words = Phrase(
            f"{mean} ± {deviation}{unit} (mean and standard deviation of {len(scores)} seeds)",
            f"{mean} ± {deviation}{unit}（{len(scores)} 个种子的平均与标准差）",
        )
        return (
            f'<div class="seeds"><p>{spans(words)}</p>'
            f'<div class="ruler" aria-hidden="true">{band}{middle}{dots}{marks}</div></div>'
        )
