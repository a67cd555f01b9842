"""What the figures of single labels say, in words: rare ones, silent ones, two that are taken for each other.

Rules as in finetune_remarks.py: every sentence holds its figures, or there is none.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qkv.report.bilingual import Phrase, percent
from qkv.report.confusion import largest
from qkv.report.remarks import NOTE, WARNING, Remark
from qkv.tasks.task import LabelScore, Scored

FEW = 20
"""Training examples of a label under which it can hardly be learnt."""
UNBALANCED = 3
"""Times as many examples of the most frequent label as of the rarest, from which some are called rare."""
NAMED = 4
"""Labels that one sentence can hold."""


def hidden_by_accuracy(scored: Scored) -> Remark | None:
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


def never_answered(labels: Sequence[LabelScore]) -> Remark | None:
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


def not_in_dev(train: Mapping[str, int], labels: Sequence[LabelScore]) -> Remark | None:
    """Labels that training has and dev never expects: nothing can be said of them."""
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


def few_examples(train: Mapping[str, int], labels: Sequence[LabelScore]) -> Remark | None:
    """Labels with fewer than `FEW` training examples, with their F1 beside the mean of the others."""
    few = sorted((n, name) for name, n in train.items() if n < FEW)
    if not few or len(train) < 2:
        return None
    scores = {label.label: label.f1 for label in labels if label.support > 0}
    poor = [scores[name] for _, name in few if name in scores]
    others = [score for name, score in scores.items() if name not in {name for _, name in few}]
    names = _named([f"{name} ({n:,})" for n, name in few])
    en, zh = (
        f"Labels with fewer than {FEW} training examples: {names.en}.",
        f"训练样本不足 {FEW} 个的标签：{names.zh}。",
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


def most_confused(counts: NDArray[np.int64] | None, labels: tuple[str, ...]) -> Remark | None:
    """Two labels that hold a tenth of all errors between them, both ways counted, five at least."""
    if counts is None or len(labels) < 3:
        return None
    wrong = int(counts.sum() - np.trace(counts))
    both = np.triu(counts + counts.T, 1)
    pairs = largest(both, labels, 1)
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
    shown, more = names[:NAMED], len(names) - NAMED
    en, zh = ", ".join(shown), "、".join(shown)
    return Phrase(f"{en} and {more} more", f"{zh} 等 {len(names)} 个") if more > 0 else Phrase(en, zh)
