"""The report of ELMo's training: that of a language model (report/language_model.py), whose figures are those of the
direction that reads forward, and beside them the other direction's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from qkv.metrics.numbers import perplexity
from qkv.report.bilingual import Phrase
from qkv.report.charts import Chart, Series
from qkv.report.language_model import EVALUATION, TRAINING, LanguageModelFacts, language_model_page
from qkv.report.page import Charts, Figure, RunPage
from qkv.report.run_log import RunLog, read_run

BACKWARD = Phrase("Backward: the token before", "反向：前一个词元")


def elmo_page(run: Path, facts: LanguageModelFacts, sampled: int | None = None) -> RunPage:
    """`sampled`: negative samples per step; None for the full softmax."""
    page, log = language_model_page(run, facts), read_run(run)
    notices = page.notices
    if sampled is not None:
        notices += (
            Phrase(
                f"In training, words are told from {sampled:,} that are drawn at every step, and so its loss and its "
                "share guessed right are better than among all words. Those of held-out text are among all.",
                f"训练时，每步只与抽取的 {sampled:,} 个词比较，因此训练的损失和猜对的比例都比在全部词中好看。"
                "留出文本上的数字是在全部词中算的。",
            ),
        )
    if not log.steps:
        return replace(page, notices=notices)
    return replace(
        page,
        facts=(Phrase("ELMo: language models of both directions", "ELMo：正、反两个方向的语言模型"), *page.facts[1:]),
        notices=notices,
        figures=(*page.figures, *_figures(log)),
        sections=(Charts(BACKWARD, tuple(_curves(log, facts))), *page.sections),
    )


def _figures(log: RunLog) -> Iterator[Figure]:
    source, found = EVALUATION, log.evaluated("previous_loss")
    if not found:
        source, found = TRAINING, log.logged("previous_loss")
    if found:
        yield Figure(
            Phrase("Perplexity, backward", "困惑度（反向）"),
            f"{perplexity(found[-1][1]):,.1f}",
            Phrase(f"{source.en}: of the token before", f"{source.zh}：预测前一个词元"),
        )


def _curves(log: RunLog, facts: LanguageModelFacts) -> Iterator[Chart]:
    seams = tuple(float(step) for step in facts.resumed_from)
    for key, title in (
        ("previous_loss", Phrase("Loss of the token before", "前一词元的损失")),
        ("previous_accuracy", Phrase("Tokens before guessed right", "前一词元猜对的比例")),
    ):
        series = (
            Series(TRAINING, log.logged(key), smooth=True),
            Series(EVALUATION, log.evaluated(key), "evaluation", dots=True),
        )
        if key == "previous_loss":
            yield Chart(title, series, seams=seams, shape="wide")
        else:
            yield Chart(title, series, seams=seams, format="percent", from_zero=True)
