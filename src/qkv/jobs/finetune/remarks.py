"""Remarks of a fine-tuning report: rules that turn figures into a sentence, or None.

As in report/remarks.py every sentence contains its figures, and the docstring states the rule.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from qkv.jobs.finetune.facts import (
    ENOUGH,
    LEAKED,
    CalibrationFacts,
    DataFacts,
    FinetuneFacts,
    LengthBin,
    SeedFacts,
    Shown,
    best_baseline,
    explain_few_answers,
    explain_selection,
    explain_threshold,
    measure_spread,
)
from qkv.metrics.calibration import chance_calibration_error
from qkv.metrics.intervals import wilson_interval
from qkv.report.bilingual import Phrase, count, percent
from qkv.report.remarks import FAILURE, GOOD, NOTE, WARNING, Remark
from qkv.report.tables import largest_confusions
from qkv.tasks.baselines import CONSTANT, MOST_CHARACTERS, BaselineScore
from qkv.tasks.table import PART_NAMES, SHARE, Metric, TaskWords, find_metric, task_words
from qkv.tasks.task import LabelScore, Scored
from qkv.text.messages import translate
from qkv.text.unknown import UnknownFacts

_FEW = 20
"""Training examples of a label under which it can hardly be learnt."""
UNBALANCED = 3
"""Times as many examples of the most frequent label as of the rarest, from which some are called rare."""
_NAMED = 4
"""Labels that one sentence can hold."""


def remark_hidden_by_accuracy(scored: Scored) -> Remark | None:
    """Accuracy ten points above macro F1 while labels are unbalanced: rare ones go wrong, and accuracy hides it."""
    accuracy, macro = scored.values.get("accuracy", math.nan), scored.values.get("macro_f1", math.nan)
    supports = [label.support for label in scored.per_label if label.support > 0]
    if not accuracy - macro > 0.1 or not supports or max(supports) < UNBALANCED * min(supports):
        return None
    return Remark(
        WARNING,
        Phrase(
            f"Accuracy is {percent(accuracy)} but macro F1 only {percent(macro)}: the rare labels do much worse than "
            "the frequent ones.",
            f"准确率 {percent(accuracy)}，宏平均 F1 却只有 {percent(macro)}：少见的标签比常见的差得多。",
        ),
    )


def remark_never_answered(labels: Sequence[LabelScore]) -> Remark | None:
    silent = [label for label in labels if label.support > 0 and label.answered == 0]
    if not silent:
        return None
    names = _named([label.label for label in silent])
    n = sum(label.support for label in silent)
    return Remark(
        WARNING,
        Phrase(
            f"Never given as an answer, though dev expects {_them(len(silent))} {n:,} times: {names.en}.",
            f"验证集里应出现 {n:,} 次，模型却从未给出的标签：{names.zh}。",
        ),
    )


def _them(n: int) -> str:
    return "it" if n == 1 else "them"


def remark_not_in_dev(train: Mapping[str, int], labels: Sequence[LabelScore]) -> Remark | None:
    """Labels of the training set without an example in dev: their quality is unknown."""
    judged = {label.label for label in labels if label.support > 0}
    absent = [name for name in train if name not in judged] if judged else []
    if not absent:
        return None
    names = _named(absent)
    return Remark(
        NOTE,
        Phrase(
            f"Dev has no example of {names.en}: how well {'it' if len(absent) == 1 else 'they'} will go is not known.",
            f"验证集里没有 {names.zh} 的例子：这{'个标签' if len(absent) == 1 else '些标签'}好不好无从得知。",
        ),
    )


def remark_few_examples(train: Mapping[str, int], labels: Sequence[LabelScore]) -> Remark | None:
    """Labels with fewer than `FEW` training examples, with their F1 beside the mean of the others."""
    few = sorted((n, name) for name, n in train.items() if n < _FEW)
    if not few or len(train) < 2:
        return None
    scores = {label.label: label.f1 for label in labels if label.support > 0}
    poor = [scores[name] for _, name in few if name in scores]
    others = [score for name, score in scores.items() if name not in {name for _, name in few}]
    names = _named([f"{name} ({n:,})" for n, name in few])
    en, zh = (
        f"Labels with fewer than {_FEW} training examples: {names.en}.",
        f"训练样本不足 {_FEW} 个的标签：{names.zh}。",
    )
    if poor and others and np.mean(poor) < np.mean(others) - 0.05:
        a, b = percent(float(np.mean(poor)), 0), percent(float(np.mean(others)), 0)
        return Remark(
            WARNING,
            Phrase(
                f"{en} Their mean F1 is {a}, that of the others {b}: more examples of these would help most.",
                f"{zh}它们的平均 F1 为 {a}，其余标签为 {b}：先给这些标签补充样本最有用。",
            ),
        )
    return Remark(NOTE, Phrase(en, zh))


def remark_most_confused(counts: NDArray[np.int64] | None, labels: tuple[str, ...]) -> Remark | None:
    """Two labels that hold a tenth of all errors between them, both ways counted, five at least."""
    if counts is None or len(labels) < 3:
        return None
    wrong = int(counts.sum() - np.trace(counts))
    both = np.triu(counts + counts.T, 1)
    pairs = largest_confusions(both, labels, 1)
    if not pairs or pairs[0].n < 5 or pairs[0].n < 0.1 * wrong:
        return None
    a, b, n = pairs[0].expected, pairs[0].answered, pairs[0].n
    share = percent(n / wrong, 0)
    return Remark(
        NOTE,
        Phrase(
            f"“{a}” and “{b}” are taken for each other {n:,} times, {share} of all errors: see whether the data tells "
            "them apart by one rule throughout.",
            f"「{a}」与「{b}」互相混淆 {n:,} 次，占全部错误的 {share}：请看看数据里区分这两者的标准是否一致。",
        ),
    )


def _named(names: Sequence[str]) -> Phrase:
    """The first of them, and how many more."""
    shown, more = names[:_NAMED], len(names) - _NAMED
    en, zh = ", ".join(shown), "、".join(shown)
    return Phrase(f"{en} and {more} more", f"{zh} 等 {len(names)} 个") if more > 0 else Phrase(en, zh)


# Remarks on the whole run.

_FEW_STEPS = 100
"""Steps of a run that may just be too short."""
_FEWEST = 10
"""Examples from which an interval is to be trusted, and shrinks by the rule."""
_WIDE = 0.1
"""An interval this wide says little: a score of 85 % may be 80 or 90."""
_NEAR = 0.05
"""Scores of dev and test that are this near are called equal."""
PERFECT = 0.995
"""A score that is more often a leak than a triumph."""
OFF = 0.05
"""A calibration error above which a probability should not be read as one."""
SURE = 0.9
"""Confidence from which a wrong answer may well be a wrong label."""


def finetune_remarks(facts: FinetuneFacts) -> Iterator[Remark]:
    """Yield all remarks, failures first. Nothing is called good in a run that learned nothing or has leaks."""
    what, words, scored = find_metric(facts.main), task_words(facts.task, facts.kind), facts.scored
    failure, baseline = remark_nothing_learned(facts), remark_verdict(facts)
    found = (
        failure,
        *(Remark(WARNING if leak.share > LEAKED else NOTE, leak.text) for leak in facts.leaks),
        baseline if failure is None else None,
        None
        if any(leak.part == "dev" for leak in facts.leaks)
        else remark_too_good(what, scored, facts.baselines, words),
        remark_chosen_on_dev(facts),
        remark_numbers(facts),
        remark_uncertainty(what, facts.parts[0].scored, words),
        remark_dev_and_test(facts),
        remark_seeds(what, facts.seeds),
        None if facts.strength is not None else remark_more_steps(facts.seeds),
        remark_calibration(facts.calibration),
        remark_automation(facts.calibration, facts.test_scored),
        remark_hidden_by_accuracy(scored),
        remark_never_answered(scored.per_label),
        remark_not_in_dev(facts.train.labels, scored.per_label),
        remark_few_examples(facts.train.labels, scored.per_label),
        remark_most_confused(facts.parts[0].scored.confusion, facts.parts[0].scored.confusion_labels),
        remark_long_texts(facts.by_length),
        remark_wrong_labels(facts.confident_errors),
        remark_bias(facts.numbers),
        remark_unknown(facts.unknown, facts.model),
        remark_dropped(facts.train, facts.dev, *([facts.test] if facts.test else [])),
        remark_left_out_baseline(facts),
    )
    leaked = facts.is_leaked("dev") or facts.is_leaked("test")
    doubtful = failure is not None or leaked or (baseline is not None and baseline.level == WARNING)
    for remark in found:
        if remark is not None:
            yield replace(remark, level=NOTE) if doubtful and remark.level == GOOD else remark


def remark_nothing_learned(facts: FinetuneFacts) -> Remark | None:
    """No part (dev, and test if there is one) has a score above that of the constant answer, or above 0.

    A part that the constant answer has all right shows nothing. For numbers see `_has_learned`.
    """
    known = [(scored, _constant(baselines)) for _, scored, baselines in facts.parts]
    known = [(part, constant) for part, constant in known if constant is None or constant.value < 1]
    known = [(part, constant) for part, constant in known if math.isfinite(part.values.get(facts.main, math.nan))]
    if not known or any(_has_learned(part, constant) for part, constant in known):
        return None
    scored, constant = known[0]
    what, value = find_metric(facts.main), scored.values[facts.main]
    en, zh = f"{what.plain} is {what.shown(value)}", f"{what.zh}为 {what.shown(value)}"
    if constant is not None:
        en += f", no better than {constant.name.en} ({what.shown(constant.value)})"
        zh += f"，不比{constant.name.zh}（{what.shown(constant.value)}）好"
    ways_en, ways_zh = ["another model (--model)"], ["换一个模型（--model）"]
    if facts.strength is None:  # a head that is fitted has neither steps nor a learning rate
        if facts.seeds and max(seed.steps for seed in facts.seeds) < _FEW_STEPS:
            ways_en.insert(0, "more epochs (--epochs)")
            ways_zh.insert(0, "多训练几轮（--epochs）")
        lower = "" if facts.lr is None else f" {facts.lr / 3:.1g}"
        ways_en.insert(0, f"a lower learning rate (--lr{lower})")
        ways_zh.insert(0, f"更小的学习率（--lr{lower}）")
    if not facts.new_layers:  # of which nothing can be held still
        other = "--transfer full" if facts.transfer in ("features", "freeze") else "--transfer features"
        ways_en.append(other)
        ways_zh.append(other)
    return Remark(
        FAILURE,
        Phrase(
            f"Nothing was learned: {en}. Try {', '.join(ways_en)}, or more examples.",
            f"什么也没学到：{zh}。可以试试{'、'.join(ways_zh)}，或增加样本。",
        ),
    )


def _constant(baselines: Sequence[BaselineScore]) -> BaselineScore | None:
    return next((one for one in baselines if one.key == CONSTANT), None)


def _has_learned(scored: Scored, constant: BaselineScore | None) -> bool:
    """A score above the constant answer. Numbers that correlate by chance also have to be nearer than the mean is."""
    value, error = scored.values[scored.main], scored.values.get("mean_absolute_error", math.nan)
    if constant is None or not math.isfinite(error) or not math.isfinite(constant.error):
        return value > (0.0 if constant is None else constant.value)
    return value > constant.value and (_interval(scored)[0] > constant.value or error < constant.error)


def remark_numbers(facts: FinetuneFacts) -> Remark | None:
    """The mean absolute error beside that of always answering the mean, on test if there is one."""
    _, scored, baselines = facts.parts[0]
    error, constant = scored.values.get("mean_absolute_error", math.nan), _constant(baselines)
    if constant is None or not math.isfinite(error) or not math.isfinite(constant.error):
        return None
    what = find_metric("mean_absolute_error")
    own, level = what.shown(error), what.shown(constant.error)
    if error < constant.error:
        return Remark(
            NOTE,
            Phrase(
                f"Its numbers are off by {own} on average; those of {constant.name.en} would be off by {level}.",
                f"它给的数平均差 {own}；{constant.name.zh}平均差 {level}。",
            ),
        )
    return Remark(
        WARNING,
        Phrase(
            f"Its numbers are off by {own} on average, no nearer than {constant.name.en} ({level}): use them as an "
            "order at most.",
            f"它给的数平均差 {own}，不比{constant.name.zh}（{level}）更近：最多只能用来排序。",
        ),
    )


_CHEAPER = {
    CONSTANT: Phrase(
        "nothing shows that it has learnt the task. Check the labels, give more examples or another model.",
        "看不出它学会了这个任务。请检查标签，增加样本，或换一个模型。",
    ),
    "tf-idf": Phrase(
        "prefer it here, since it takes seconds (scikit-learn: TfidfVectorizer, LogisticRegression), or try another "
        "model, another --transfer or more examples.",
        "它只需几秒（scikit-learn 的 TfidfVectorizer 与 LogisticRegression），在这里更合算；"
        "也可以换模型、换 --transfer 或增加样本再试。",
    ),
    "dictionary": Phrase(
        "a list of names is the cheaper choice here. More examples, another model or a lower learning rate may help.",
        "在这里查词典更省事。可以增加样本、换模型或降低学习率再试。",
    ),
    "overlap": Phrase(
        "it does not read the question better than a comparison of words. Give more examples, another model or a lower "
        "learning rate.",
        "它并不比单纯比对词语更懂问题。可以增加样本、换模型或降低学习率再试。",
    ),
}
"""By baseline: what follows where it is not beaten."""


def remark_baseline(facts: FinetuneFacts) -> Remark | None:
    """The score against the best baseline: on test if there is one, else on dev.

    Above it by more than the interval: good, if there are `_FEWEST` examples. Below it, or no better than always giving
    one answer: a warning. Above it within the interval: a note that names the cheaper choice.
    """
    what, (part, scored, baselines) = find_metric(facts.main), facts.parts[0]
    best, value = best_baseline(baselines), scored.values.get(facts.main, math.nan)
    if best is None or not math.isfinite(value):
        return None
    low, high = _interval(scored)
    where = PART_NAMES[part]
    en = f"{what.name.en} is {what.shown(value)} on {where.en}"
    zh = f"{where.zh}{what.after}为 {what.shown(value)}"
    level, how = what.shown(best.value), best.name
    if low > best.value:
        more = what.change(value - best.value)
        return Remark(
            GOOD if scored.n >= _FEWEST else NOTE,
            Phrase(
                f"{en}, {more.en} above the best baseline ({how.en}: {level}).",
                f"{zh}，比最好的基线（{how.zh}：{level}）高 {more.zh}。",
            ),
        )
    advice = _CHEAPER[best.key]
    if value < best.value:
        sure_en, sure_zh = ("", "") if high < best.value else (" (within the interval)", "（在误差区间之内）")
        steps = max((seed.steps for seed in facts.seeds), default=0)
        if facts.strength is None and 0 < steps < _FEW_STEPS:
            advice = Phrase(
                f"{advice.en} It was trained for only {steps:,} step{'' if steps == 1 else 's'}: allow more (--epochs, "
                "--minutes).",
                f"{advice.zh}它只训练了 {steps:,} 步：可以多训练一些（--epochs、--minutes）。",
            )
        return Remark(
            WARNING,
            Phrase(
                f"{en}, below the {level} of a baseline{sure_en}, {how.en}: {advice.en}",
                f"{zh}，低于基线 {level}{sure_zh}（{how.zh}）：{advice.zh}",
            ),
        )
    constant = _constant(baselines)
    if constant is not None and low <= constant.value:
        level, how, advice = what.shown(constant.value), constant.name, _CHEAPER[CONSTANT]
        return Remark(
            WARNING,
            Phrase(
                f"{en}, and its interval holds the {level} of {how.en}: {advice.en}",
                f"{zh}，区间包含{how.zh}的 {level}：{advice.zh}",
            ),
        )
    of = task_words(facts.task, facts.kind).of(scored.n)
    return Remark(
        NOTE,
        Phrase(
            f"{en}, and {of.en} do not show that it is better than a baseline with {level}, {how.en}, which is the "
            "cheaper choice. More examples to evaluate on would tell.",
            f"{zh}，但 {of.zh}不足以说明它胜过基线的 {level}（{how.zh}），后者更省事。增加评估样本才能分出高下。",
        ),
    )


def remark_verdict(facts: FinetuneFacts) -> Remark | None:
    """`remark_baseline`, but nothing is called good where dev or test is partly in the training data."""
    found = remark_baseline(facts)
    if found is None or found.level != GOOD or not (facts.is_leaked("dev") or facts.is_leaked("test")):
        return found
    return replace(found, level=NOTE)


def remark_left_out_baseline(facts: FinetuneFacts) -> Remark | None:
    if not facts.left_out_baseline:
        return None
    most = count(MOST_CHARACTERS)
    return Remark(
        NOTE,
        Phrase(
            f"The baseline tf-idf was not computed: the training texts have more than {most.en} characters.",
            f"没有计算 tf-idf 基线：训练文本超过 {most.zh}字。",
        ),
    )


def remark_too_good(
    what: Metric, scored: Scored, baselines: Sequence[BaselineScore], words: TaskWords
) -> Remark | None:
    """Nearly perfect where no baseline is, though no text of dev is in training."""
    value, best = scored.values.get(scored.main, math.nan), best_baseline(baselines)
    if what.kind != SHARE or not value >= PERFECT or scored.n < 30 or (best is not None and best.value > 0.9):
        return None
    of = words.of(scored.n)
    return Remark(
        WARNING,
        Phrase(
            f"{what.name.en} is {what.shown(value)} on {of.en}, which is rarely true. No text of dev is in the "
            "training data as it stands: look for copies with small changes, and for texts that give their label away.",
            f"{of.zh}上，{what.name.zh}达 {what.shown(value)}，这很少是真的。验证集里没有与训练集相同的文本："
            "请看看有没有略作改动的副本，或文本本身透露了标签。",
        ),
    )


def remark_uncertainty(what: Metric, scored: Scored, words: TaskWords) -> Remark | None:
    """An interval wider than `WIDE`, and how many examples would halve it (four times as many)."""
    low, high = _interval(scored)
    if what.kind != SHARE or not high - low > _WIDE:
        return None
    of, more = words.of(scored.n), words.of(4 * scored.n)
    one = " is" if scored.n == 1 else " are"
    return Remark(
        WARNING if high - low > 2 * _WIDE else NOTE,
        Phrase(
            f"{of.en}{one} few to judge by: {what.plain} may be anywhere from {what.shown(low)} to "
            f"{what.shown(high)}." + (f" About {more.en} would halve that." if scored.n >= _FEWEST else ""),
            f"只有 {of.zh}用来评判，偏少：{what.zh}可能在 {what.shown(low)} 到 {what.shown(high)} 之间。"
            + (f"约 {more.zh}可使这个范围减半。" if scored.n >= _FEWEST else ""),
        ),
    )


def remark_chosen_on_dev(facts: FinetuneFacts) -> Remark | None:
    """Without a test set the score is the best of several evaluations on the same examples."""
    if facts.parts[0].name != "dev" or facts.n_evaluations < 2:
        return None
    return Remark(NOTE, explain_selection(facts.n_evaluations))


def remark_dev_and_test(facts: FinetuneFacts) -> Remark | None:
    """The test score beside that of dev, by which the weights and the seed were chosen.

    They differ if the difference is larger than the half-widths of both 95 % intervals together (as the sides of a
    right triangle), and agree if it is smaller than `_NEAR` as well. Nothing is said of a test set that leaked, nor of
    two scores that show nothing: 0, or not above always giving one answer.
    """
    what, dev, test = find_metric(facts.main), facts.scored, facts.test_scored
    if test is None or facts.is_leaked("test"):
        return None
    a, b = dev.values.get(dev.main, math.nan), test.values.get(dev.main, math.nan)
    low, high = _interval(dev)
    test_low, test_high = _interval(test)
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(low)):
        return None
    constants = [_constant(baselines) for baselines in (facts.baselines, facts.test_baselines)]
    trivial, test_trivial = (max(0.0, one.value) if one is not None else 0.0 for one in constants)
    if a <= trivial and b <= test_trivial:
        return None
    both_en = f"{what.name.en} is {what.shown(b)} on test and {what.shown(a)} on dev"
    both_zh = f"{what.name.zh}：测试集 {what.shown(b)}，验证集 {what.shown(a)}"
    if b > a + math.hypot(high - a, b - test_low):
        easier = Phrase(
            f"{both_en}, more than chance explains: test is easier.", f"{both_zh}，并非偶然：测试集更容易。"
        )
        return Remark(NOTE, easier)
    if b >= a - math.hypot(a - low, test_high - b):
        if abs(a - b) < _NEAR:
            return Remark(GOOD, Phrase(f"{both_en}: they agree.", f"{both_zh}，两者相符。"))
        return Remark(
            NOTE,
            Phrase(f"{both_en}: with so few examples that may be chance.", f"{both_zh}：样本这么少，可能是偶然。"),
        )
    return Remark(
        WARNING,
        Phrase(
            f"{both_en}, less than chance explains. Trust the test score: the model was chosen by dev, or the two "
            "files are not alike.",
            f"{both_zh}，相差并非偶然。请以测试集为准：模型是按验证集挑选的，或者两份数据并不相像。",
        ),
    )


def remark_seeds(what: Metric, seeds: Sequence[SeedFacts]) -> Remark | None:
    """What the seed alone moves."""
    found = measure_spread(seeds)
    if found is None or len(seeds) < 2:
        return None
    moved = what.change(found.deviation)
    return Remark(
        NOTE,
        Phrase(
            f"Over {len(seeds)} seeds {what.plain} on dev is {what.shown(found.mean)} on average, with a standard "
            f"deviation of {moved.en}: a gain smaller than that may be luck.",
            f"{len(seeds)} 个种子的验证集{what.after}平均 {what.shown(found.mean)}，标准差 {moved.zh}："
            "比这更小的提高可能只是运气。",
        ),
    )


def remark_more_steps(seeds: Sequence[SeedFacts]) -> Remark | None:
    """The best evaluation was the last one, for every seed."""
    if not seeds or any(seed.best_step < seed.steps or seed.steps < 1 for seed in seeds):
        return None
    steps = max(seed.steps for seed in seeds)
    return Remark(
        NOTE,
        Phrase(
            f"The score was still at its best at the last step ({steps:,}): training longer may help.",
            f"到最后一步（第 {steps:,} 步）分数仍是最高：再多训练一些可能会更好。",
        ),
    )


def remark_calibration(facts: CalibrationFacts | None) -> Remark | None:
    """How sure it was against how often it was right, before and after the temperature.

    The error counts as large above `OFF` and above what chance gives so many answers (`chance_calibration_error`).
    """
    total = facts.answers if facts else 0
    if facts is None or not total:
        return None
    if total < ENOUGH:
        return Remark(NOTE, explain_few_answers(total))
    sure = sum(confidence * n for confidence, _, n in facts.before) / total
    right = sum(share * n for _, share, n in facts.before) / total
    before, after = percent(facts.error_before), percent(facts.error_after)
    is_used = facts.temperature != 1.0
    chance = chance_calibration_error(facts.after)
    if OFF < facts.error_after <= chance:
        return Remark(
            NOTE,
            Phrase(
                f"Its probabilities are off by {after} on average, and of {total:,} answers chance alone gives up to "
                f"{percent(chance)}: more would show whether they can be believed.",
                f"它给的概率平均差 {after}，而 {total:,} 个回答仅凭偶然就可能差到 {percent(chance)}："
                "要有更多回答才看得出是否可信。",
            ),
        )
    if facts.error_after > OFF:
        how_en = f"even after calibration (before: {before})" if is_used else "and a temperature does not help"
        how_zh = f"概率平均差 {after}，调温度也没有帮助"
        if is_used:
            how_zh = f"校准之后概率平均仍差 {after}（校准前 {before}）"
        return Remark(
            WARNING,
            Phrase(
                f"Its probabilities are off by {after} on average {how_en}: read them as an order, not as chances.",
                f"{how_zh}：只能用来排序，不能当作真实的概率。",
            ),
        )
    if not is_used:
        return Remark(
            GOOD,
            Phrase(
                f"Its probabilities can be read as such: off by {after} on average, as trained. A temperature does not "
                "help, so none is used.",
                f"它给的概率可以当真：平均只差 {after}，未经校准；调温度没有帮助，所以不用。",
            ),
        )
    t = f"{facts.temperature:.2f}"
    if abs(sure - right) < 0.01:
        en, zh = "it was about as sure as it was right", "训练完时的把握与对错大致相当"
    elif sure > right:
        en = f"as trained it was too sure ({percent(sure)} sure on average, {percent(right)} right)"
        zh = f"训练完时过于自信（平均置信度 {percent(sure)}，答对 {percent(right)}）"
    else:
        en = f"as trained it was too modest ({percent(sure)} sure on average, {percent(right)} right)"
        zh = f"训练完时过于谦虚（平均置信度 {percent(sure)}，答对 {percent(right)}）"
    return Remark(
        GOOD,
        Phrase(
            f"Its probabilities can be read as such: off by {after} on average (before calibration {before}). "
            f"{en[0].upper()}{en[1:]}; temperature {t}.",
            f"它给的概率可以当真：平均只差 {after}（校准前 {before}）。{zh}；温度 {t}。",
        ),
    )


def remark_automation(facts: CalibrationFacts | None, test: Scored | None = None) -> Remark | None:
    """What share may be answered without a person, at the precision that was asked for, or why none; and whether an
    accuracy on test contradicts it."""
    found = None if facts is None else explain_threshold(facts.to_dict())
    if facts is None or found is None:
        return None
    if facts.answered is None:
        return Remark(WARNING if facts.answers >= ENOUGH else NOTE, found)
    if test is not None and test.main == "accuracy" and facts.answered >= 0.999 and test.value < facts.target:
        right = percent(test.value)
        return Remark(
            WARNING,
            Phrase(
                f"{found.en} On test {right} are right: a person should check the answers.",
                f"{found.zh}但测试集上只答对 {right}：回答应由人工复核。",
            ),
        )
    return Remark(GOOD if facts.answered >= 0.5 and facts.answers >= ENOUGH else NOTE, found)


def remark_long_texts(bins: Sequence[LengthBin]) -> Remark | None:
    """The longest bin against all shorter ones: only where their 95 % intervals do not touch."""
    known = [one for one in bins if one.n > 0]
    if len(known) < 2:
        return None
    last, rest = known[-1], known[:-1]
    right, n = sum(one.right for one in rest), sum(one.n for one in rest)
    if wilson_interval(last.right, last.n)[1] >= wilson_interval(right, n)[0]:
        return None
    a, b = percent(last.right / last.n, 0), percent(right / n, 0)
    return Remark(
        NOTE,
        Phrase(
            f"Long texts go worse: {a} right from {last.low:,} tokens on ({last.n:,} of them), {b} below that.",
            f"长文本较差：{last.low:,} 个词元以上（{last.n:,} 条）答对 {a}，以下为 {b}。",
        ),
    )


def remark_wrong_labels(errors: Sequence[Shown]) -> Remark | None:
    sure = sum(one.judgement.confidence >= SURE for one in errors)
    if not sure:
        return None
    line = percent(SURE, 0)
    return Remark(
        NOTE,
        Phrase(
            f"{sure:,} of the wrong answers shown below {'was' if sure == 1 else 'were'} given with {line} confidence "
            "or more. Look at these first: often it is the label that is wrong.",
            f"下面列出的错误中有 {sure:,} 个的置信度在 {line} 以上。请先看这些：往往是标签标错了。",
        ),
    )


def remark_bias(numbers: NDArray[np.float64] | None) -> Remark | None:
    """Numbers that lie too high or too low on average, by more than their own uncertainty."""
    if numbers is None or len(numbers) < 8:
        return None
    off = numbers[:, 1] - numbers[:, 0]
    off = off[np.isfinite(off)]
    if len(off) < 8:
        return None
    mean, error = float(off.mean()), 1.96 * float(off.std(ddof=1)) / math.sqrt(len(off))
    if abs(mean) <= error or abs(mean) < 0.02 * float(np.ptp(numbers[:, 0])):
        return None
    figures = f"{abs(mean):.3g} ± {error:.2g}"
    side_en, side_zh = ("high", "高") if mean > 0 else ("low", "低")
    return Remark(
        NOTE,
        Phrase(f"Its numbers are too {side_en} by {figures} on average.", f"它给的数平均偏{side_zh} {figures}。"),
    )


def remark_dropped(*parts: DataFacts) -> Remark | None:
    n, total = sum(part.n_dropped for part in parts), sum(part.examples + part.n_dropped for part in parts)
    if not n:
        return None
    share = n / total
    much = percent(share, 2 if share < 0.001 else 1)
    return Remark(
        WARNING if share > 0.01 else NOTE,
        Phrase(
            f"{n:,} of {total:,} examples ({much}) could not be used and "
            f"{'was' if n == 1 else 'were'} left out; see “Data”.",
            f"{total:,} 条样本中有 {n:,} 条（{much}）无法使用，已略去；见「数据」一节。",
        ),
    )


def remark_unknown(unknown: UnknownFacts | None, model: str = "MODEL") -> Remark | None:
    """1 % of the tokens of the training texts, or a whole text, are unknown to the vocabulary."""
    if unknown is None or not unknown.is_notable:
        return None
    share, n, texts = percent(unknown.share, 1), unknown.n_unknown, unknown.n_affected
    wholly, remedy = unknown.n_unreadable, unknown.remedy(model or "MODEL")
    en = f", {wholly:,} of them wholly" if wholly else ""
    zh = f"，其中 {wholly:,} 条完全读不懂" if wholly else ""
    return Remark(
        WARNING,
        Phrase(
            f"The model's vocabulary lacks {n:,} tokens ({share}) of the training texts, in {texts:,} texts{en}: "
            f"{unknown.examples}. It cannot tell these apart. {remedy}",
            f"训练文本里有 {n:,} 个词元（{share}）不在模型的词表中，涉及 {texts:,} 条文本{zh}：{unknown.examples}。"
            f"模型无法区分它们。{translate(remedy, 'zh')}",
        ),
    )


def _interval(scored: Scored) -> tuple[float, float]:
    found = scored.intervals.get(scored.main, (math.nan, math.nan))
    value = scored.values.get(scored.main, math.nan)
    # without an interval the value stands for itself against a baseline, and is never called wide
    return found if all(map(math.isfinite, found)) else (value, value)
