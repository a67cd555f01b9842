"""The report of a fine-tuning run: what it can do, how far to trust it, where it errs, what it cost.

The figures come as `FinetuneFacts`, plain data that the job put together; the curves come from what the run wrote down
(log.jsonl, of every seed in its own folder). Whatever is not known is left out of the page.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qkv.report.bilingual import Phrase, Words, count, duration
from qkv.report.charts import Chart
from qkv.report.confusion import Confusion
from qkv.report.data_used import DataUsed
from qkv.report.examples_shown import ExamplesShown
from qkv.report.finetune_curves import curves
from qkv.report.finetune_facts import FinetuneFacts, Shown
from qkv.report.finetune_figures import figures
from qkv.report.finetune_remarks import finetune_remarks
from qkv.report.finetune_tables import by_length, cost, per_label, scores
from qkv.report.layer_mix import layer_mix
from qkv.report.notes import Notes
from qkv.report.plane import Axis, Dots, Plane, Planes, Rule
from qkv.report.reliability import reliability
from qkv.report.run_log import RunLog, read_run
from qkv.report.run_page import Charts, Remarks, RunPage, Section, Settings
from qkv.report.seeds import Seeds, best
from qkv.report.task_names import metric, task_words

DOTS = 2000
"""Numbers that a scatter draws; of more, evenly spread ones."""


def finetune_page(run: Path, facts: FinetuneFacts) -> RunPage:
    kept = best(facts.seeds)
    log = read_run(run / kept.folder if kept is not None else run)
    config = log.config if kept is None or not kept.folder else read_run(run).config or log.config
    words = task_words(facts.task, facts.kind)
    return RunPage(
        title=run.resolve().name,
        kind=Phrase(f"Fine-tuning report: {words.name.en}", f"微调报告：{words.name.zh}"),
        facts=tuple(_facts(facts)),
        notices=tuple(_notices(log, bool(config.strip()))),
        figures=tuple(figures(facts)),
        sections=tuple(_sections(run, log, config, facts)),
    )


def _facts(facts: FinetuneFacts) -> Iterator[Words]:
    words = task_words(facts.task, facts.kind)
    if facts.model:
        yield facts.model
    if facts.train.examples:
        n = words.of(facts.train.examples)
        yield Phrase(f"trained on {n.en}", f"用 {n.zh}训练")
    labels = len(facts.train.labels)
    if labels:
        yield Phrase(f"{labels:,} label{'' if labels == 1 else 's'}", f"{labels:,} 个标签")
    if facts.cost.parameters:
        n = count(facts.cost.parameters)
        yield Phrase(f"{n.en} parameters", f"{n.zh}{'' if n.zh[-1] in '万亿' else ' '}个参数")
    if facts.cost.seconds > 0:
        yield duration(facts.cost.seconds)


def _notices(log: RunLog, has_config: bool) -> Iterator[Words]:
    # with several seeds the settings stand once, beside the folders of the seeds; clock times are not drawn here
    unneeded = ("timing.jsonl is missing", *(("config.toml is missing",) if has_config else ()))
    yield from (fault for fault in log.faults if not fault.en.startswith(unneeded))


def _sections(run: Path, log: RunLog, config: str, facts: FinetuneFacts) -> Iterator[Section]:
    said = tuple(finetune_remarks(facts))
    if said:
        yield Remarks(Phrase("What the numbers say", "这些数字说明什么"), said)
    calibration, scored = facts.calibration, facts.scored
    if scored.per_label:
        thresholds = calibration.thresholds if calibration is not None else {}
        yield per_label(scored.per_label, facts.train.labels, thresholds, facts.task == "tag")
    if scored.confusion is not None and len(scored.confusion_labels) > 1:
        yield Confusion(Phrase("What is taken for what", "哪些标签容易混淆"), scored.confusion, scored.confusion_labels)
    if facts.numbers is not None and len(facts.numbers):
        yield _scatter(facts.numbers)
    if calibration is not None and (calibration.before or calibration.after):
        yield reliability(calibration)
    yield from _examples(facts)
    charts = tuple(_curves(run, log, facts))
    if charts:
        yield Charts(Phrase("Training", "训练过程"), charts)
    yield from _narrow(facts)
    parts = [("train", facts.train), ("dev", facts.dev)] + ([("test", facts.test)] if facts.test is not None else [])
    if any(part.examples or part.n_dropped for _, part in parts):
        yield DataUsed(Phrase("The data", "数据"), tuple(parts))
    if facts.notes:
        yield Notes(Phrase("Chosen by itself", "自动选择"), facts.notes)
    if config.strip():
        yield Settings(Phrase("Settings", "配置"), config)


def _narrow(facts: FinetuneFacts) -> Iterator[Section]:
    """Half a page each; with a test score the table of scores takes the width and comes first."""
    yield from scores(facts)
    if any(one.n for one in facts.by_length):
        yield by_length(facts.by_length)
    if facts.mix is not None:
        yield layer_mix(facts.mix)
    if len(facts.seeds) > 1:
        yield Seeds(Phrase("Seeds", "随机种子"), facts.seeds, metric(facts.main))
    yield cost(facts.cost, facts.transfer, sum(seed.seconds for seed in facts.seeds), facts.new_layers)


def _examples(facts: FinetuneFacts) -> Iterator[Section]:
    kind = "multi" if facts.kind == "multi" else facts.task
    if facts.confident_errors:
        yield ExamplesShown(
            Phrase("Wrong, and sure of it", "答错了，还很有把握"),
            facts.confident_errors,
            kind,
            Phrase(
                "The surest wrong answers of dev. Some will be errors of the labels: mend those first.",
                "验证集里置信度最高的错误。其中有些会是标签标错了：先改这些。",
            ),
        )
    seen = {_key(one) for one in facts.confident_errors}
    rest = tuple(one for one in facts.hardest if _key(one) not in seen)
    if rest:
        others = Phrase(" Those above are left out.", "上面已列出的不再重复。")
        note = Phrase(
            "The right answer was given the least probability here.", "在这些样本上，正确答案得到的概率最小。"
        )
        if facts.kind == "regression":
            note = Phrase("The numbers that are farthest off.", "差得最多的那些数。")
        if len(rest) < len(facts.hardest):
            note = Phrase(note.en + others.en, note.zh + others.zh)
        yield ExamplesShown(Phrase("Hardest for the model", "最难的样本"), rest, kind, note, shown=6)


def _key(one: Shown) -> tuple[str, int, str, str | None]:
    return one.file, one.line, one.text, one.pair


def _curves(run: Path, log: RunLog, facts: FinetuneFacts) -> Iterator[Chart]:
    if not log.steps and not log.evaluations:
        return
    kept = best(facts.seeds)
    others = {
        seed.seed: read_run(run / seed.folder)
        for seed in facts.seeds
        if kept is not None and seed.folder != kept.folder
    }
    baseline = facts.baseline[1] if facts.baseline is not None else None
    yield from curves(log, facts.main, baseline, kept.best_step if kept else None, others)


def _scatter(numbers: NDArray[np.float64]) -> Planes:
    chosen = numbers[np.linspace(0, len(numbers) - 1, min(DOTS, len(numbers))).round().astype(int)]
    known = numbers[np.isfinite(numbers).all(axis=1)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = 0.05 * (high - low) or 1.0
    return Planes(
        Phrase("Expected and answered", "应有的数与给出的数"),
        (
            Plane(
                Phrase("Every text of dev", "验证集的每条文本"),
                Axis(Phrase("expected", "应为"), low=low - room, high=high + room),
                Axis(Phrase("answered", "模型答"), low=low - room, high=high + room),
                (
                    Rule(Phrase("exactly right", "完全正确")),
                    Dots("", tuple((float(x), float(y)) for x, y in chosen), faint=True, read=False),
                ),
                shape="wide",
            ),
        ),
    )
