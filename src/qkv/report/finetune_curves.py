"""The curves of a fine-tuning run: loss, the score that counts, the learning rate; other seeds in the background."""

from collections.abc import Iterator, Mapping

from qkv.report.bilingual import Phrase
from qkv.report.charts import Chart, Level, Series
from qkv.report.run_log import RunLog
from qkv.report.task_names import SHARE, metric

TRAINING, DEV, OTHERS = Phrase("training", "训练集"), Phrase("dev", "验证集"), Phrase("other seeds", "其他种子")

WORDS = "language_model_loss"


def curves(
    log: RunLog, main: str, baseline: float | None, best_step: int | None, others: Mapping[int, RunLog]
) -> Iterator[Chart]:
    """Of the kept run; `others` by seed. What a GPT learns beside its task is drawn by itself."""
    words = log.logged(WORDS)
    yield Chart(
        Phrase("Loss of the task", "任务的损失") if words else Phrase("Loss", "损失"),
        (
            Series(TRAINING, log.logged(_of_the_task(log) if words else "loss"), smooth=True),
            Series(DEV, log.evaluated("loss"), "evaluation", dots=True),
        ),
        from_zero=True,
    )
    if words:
        loss = Phrase("Loss of the next word", "下一个词的损失")
        yield Chart(loss, (Series(TRAINING, words, smooth=True),), from_zero=True)
    scores = log.evaluated(main)
    what = metric(main)
    background = tuple(
        Series(OTHERS, points, "other") for other in others.values() if len(points := other.evaluated(main)) > 1
    )
    kept = tuple(point for point in scores if point[0] == best_step)
    ring = (Series(Phrase("kept", "保留"), kept[-1:], "kept", dots=True),) if kept else ()
    level = Level(baseline, Phrase("baseline", "基线")) if baseline is not None else None
    yield Chart(
        Phrase(f"{what.name.en} on dev", f"验证集{what.after}".strip()),
        (*background, Series(DEV, scores, "evaluation", dots=True), *ring),
        levels=(level,) if level else (),
        format="percent" if what.kind == SHARE else "number",
    )
    if log.logged("lr"):
        rate = Phrase("Learning rate", "学习率")
        yield Chart(rate, (Series(rate, log.logged("lr")),), format="rate", from_zero=True)


def _of_the_task(log: RunLog) -> str:
    """The key of the loss that dev's can be held against."""
    return next(key for line in log.steps for key in line if key.endswith("_loss") and key != WORDS)
