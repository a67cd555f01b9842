"""The curves of a pretraining run: losses beside what they are to be compared with, accuracies, gradient, speed."""

import math
from collections.abc import Iterator, Sequence

from qkv.metrics.intervals import wilson_interval
from qkv.report.bilingual import Phrase
from qkv.report.charts import Chart, Level, Point, Series
from qkv.report.remarks import find_spikes
from qkv.report.run_log import RunLog, number

TRAINING, EVALUATION = Phrase("training", "训练"), Phrase("held-out text", "留出文本")


def curves(
    log: RunLog, vocabulary_size: int, unigram_entropy: float | None, resumed_from: Sequence[int] = ()
) -> Iterator[Chart]:
    seams = tuple(float(step) for step in resumed_from)
    even = math.log(vocabulary_size)
    levels = [
        Level(even, Phrase(f"ln V = {even:.2f}: all tokens equally likely", f"ln V = {even:.2f}：所有词元同样可能"))
    ]
    if unigram_entropy is not None:
        h = f"{unigram_entropy:.2f}"
        name = Phrase(f"unigram entropy {h}: above it, only frequencies", f"一元熵 {h}：在它之上，只知道词频")
        levels.append(Level(unigram_entropy, name))
    yield Chart(
        Phrase("Masked language model loss", "掩码语言模型损失"),
        (
            Series(TRAINING, log.logged("masked_loss"), smooth=True),
            Series(EVALUATION, log.evaluated("masked_loss"), "evaluation", dots=True),
        ),
        levels=tuple(levels),
        seams=seams,
        shape="wide",
    )
    yield Chart(
        Phrase("Masked words filled correctly", "填空正确率"),
        (
            Series(TRAINING, log.logged("masked_accuracy"), smooth=True),
            Series(EVALUATION, log.evaluated("masked_accuracy"), "evaluation", dots=True),
        ),
        seams=seams,
        format="percent",
        from_zero=True,
    )
    if log.logged("next_sentence_accuracy") or log.evaluated("next_sentence_accuracy"):
        yield Chart(
            Phrase("Next sentence recognised", "下一句预测正确率"),
            (
                Series(TRAINING, log.logged("next_sentence_accuracy"), smooth=True),
                Series(
                    EVALUATION,
                    log.evaluated("next_sentence_accuracy"),
                    "evaluation",
                    dots=True,
                    intervals=tuple(_intervals(log)),
                ),
            ),
            levels=(Level(0.5, Phrase("chance", "瞎猜")),),
            seams=seams,
            format="percent",
        )
    norms = log.logged("gradient_norm")
    clip = number(log.setting("train", "clip"))
    yield Chart(
        Phrase("Gradient norm", "梯度范数"),
        (Series(Phrase("largest since the last logged step", "上次记录以来的最大值"), norms, fine=True),),
        levels=(Level(clip, Phrase(f"clipped at {clip:g}", f"裁剪到 {clip:g}")),) if _near(clip, norms) else (),
        spikes=tuple((step, norm) for step, norm, _ in find_spikes(norms)),
        seams=seams,
        log=True,
    )
    yield Chart(
        Phrase("Learning rate", "学习率"),
        (Series(Phrase("Learning rate", "学习率"), log.logged("lr")),),
        seams=seams,
        format="rate",
        from_zero=True,
    )
    if log.timing:
        yield Chart(
            Phrase("Tokens per second", "每秒词元数"),
            (Series(Phrase("Tokens per second", "每秒词元数"), log.timed("tokens_per_second"), fine=True),),
            seams=seams,
            format="count",
            from_zero=True,
        )


def _near(level: float, points: tuple[Point, ...]) -> bool:
    """Whether a level belongs on the picture: far from all points it would only flatten them."""
    known = [value for _, value in points if math.isfinite(value) and value > 0]
    return bool(known) and min(known) / 3 <= level <= 3 * max(known)


def _intervals(log: RunLog) -> Iterator[tuple[float, float]]:
    for _, found in log.evaluations:
        if "next_sentence_accuracy" not in found:
            continue
        right, pairs = found.get("next_sentence_correct"), found.get("next_sentence_count")
        if isinstance(right, int) and isinstance(pairs, int) and 0 <= right <= pairs:
            yield wilson_interval(right, pairs)
        else:
            yield math.nan, math.nan
