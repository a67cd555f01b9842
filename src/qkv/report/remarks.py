"""Remarks on the figures of a run: each function takes figures and returns a remark or None.

Every remark states the figures it is based on; the rule is in the docstring. Losses are in nats.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from qkv.metrics.intervals import wilson_interval
from qkv.report.bilingual import SPACE, Phrase, percent

GOOD, NOTE, WARNING, FAILURE = "good", "note", "warning", "failure"
_Point = tuple[float, float]

SPIKE = 5.0
"""A gradient norm this many times the running median is a spike."""
WAITING = 0.05
"""Largest acceptable share of time spent waiting for batches."""
GAP = 0.2
"""Difference in nats between training and evaluation that deserves a remark."""
FLAT = 0.01
"""Negligible change in nats over a fifth of the run: one percent of the perplexity."""
WORSE = 0.05
"""Difference in nats at which the last evaluation is clearly worse than the best."""


@dataclass(frozen=True)
class Remark:
    level: str  # GOOD, NOTE, WARNING or FAILURE
    text: Phrase


def loss_and_frequencies(
    loss: float | None, vocabulary_size: int, unigram_entropy: float | None, masked_share: float = 0.8
) -> Remark | None:
    """Compare the loss with what a model without context could reach.

    ln V: all tokens equally likely. Unigram entropy of the corpus: every token as likely as it is frequent. Below that
    something was learned, but chosen tokens that were kept can be copied: without context, the loss can fall to
    `masked_share` (the share replaced by [MASK]) times the entropy. Only below that is the use of context certain.
    """
    if not _is_number(loss) or vocabulary_size < 2:
        return None
    even = math.log(vocabulary_size)
    v = f"{vocabulary_size:,}"
    if loss >= even:
        return Remark(
            WARNING,
            Phrase(
                f"The loss, {loss:.2f}, is not below ln V = {even:.2f}: the model does no better than taking all {v} "
                "tokens of the vocabulary as equally likely.",
                f"损失为 {loss:.2f}，没有低于 ln V = {even:.2f}：模型并不比把词表里的 {v} 个词元看作同样可能更好。",
            ),
        )
    if not _is_number(unigram_entropy):
        return Remark(
            NOTE,
            Phrase(
                f"The loss, {loss:.2f}, is {even - loss:.2f} below ln V = {even:.2f} (all {v} tokens equally likely). "
                "The corpus's unigram entropy is not known, so whether it is more than frequencies cannot be said.",
                f"损失为 {loss:.2f}，比 ln V = {even:.2f}（{v} 个词元同样可能）低 {even - loss:.2f}。"
                "语料的一元熵未知，无法判断模型学到的是否不止词频。",
            ),
        )
    entropy, certain = unigram_entropy, masked_share * unigram_entropy
    if loss >= entropy:
        return Remark(
            WARNING,
            Phrase(
                f"The loss, {loss:.2f}, is under ln V = {even:.2f} (all tokens equally likely) but not under the "
                f"corpus's unigram entropy, {entropy:.2f}: above it a model knows only how frequent tokens are.",
                f"损失为 {loss:.2f}，低于 ln V = {even:.2f}（所有词元同样可能），但没有低于语料的一元熵 {entropy:.2f}："
                "在它之上，模型只知道各词元的频率。",
            ),
        )
    times = f"{math.exp(entropy - loss):.3g}"
    if loss >= certain:
        return Remark(
            NOTE,
            Phrase(
                f"The loss, {loss:.2f}, is {entropy - loss:.2f} under the corpus's unigram entropy ({entropy:.2f}; "
                f"ln V is {even:.2f}). Some chosen tokens stay visible and can be copied, so context is certain only "
                f"below {masked_share:g} × {entropy:.2f} = {certain:.2f}.",
                f"损失为 {loss:.2f}，比语料的一元熵（{entropy:.2f}；ln V 为 {even:.2f}）低 {entropy - loss:.2f}。"
                f"被选中的词元有一部分保持原样、可以照抄，所以要低于 {masked_share:g} × {entropy:.2f} = {certain:.2f} "
                "才能断定模型用上了上下文。",
            ),
        )
    return Remark(
        GOOD,
        Phrase(
            f"The loss, {loss:.2f}, is {entropy - loss:.2f} under the corpus's unigram entropy ({entropy:.2f}; ln V is "
            f"{even:.2f}): the model uses context. It gives the right token {times} times the probability that the "
            "token's frequency would (geometric mean).",
            f"损失为 {loss:.2f}，比语料的一元熵（{entropy:.2f}；ln V 为 {even:.2f}）低 {entropy - loss:.2f}："
            f"模型用上了上下文。它给正确词元的概率是只按词频猜的 {times} 倍（几何平均）。",
        ),
    )


def next_sentence_accuracy(correct: int | None, count: int | None) -> Remark | None:
    """Compare the 95 % interval of the accuracy with chance, one half."""
    if correct is None or not count:
        return None
    low, high = wilson_interval(correct, count)
    en = f"{percent(correct / count)} of {count:,} pairs (95{SPACE}% interval {percent(low)} to {percent(high)})"
    zh = f"{count:,} 对中答对 {percent(correct / count)}（95{SPACE}% 区间 {percent(low)} 至 {percent(high)}）"
    if low > 0.5:
        return Remark(
            GOOD,
            Phrase(
                f"Next sentence: right for {en}, which is above the 50{SPACE}% of guessing.",
                f"下一句预测：{zh}，高于瞎猜的 50{SPACE}%。",
            ),
        )
    if high < 0.5:
        return Remark(
            WARNING,
            Phrase(
                f"Next sentence: right for only {en}, which is below the 50{SPACE}% of guessing: look at how pairs are "
                "made (qkv show).",
                f"下一句预测：{zh}，低于瞎猜的 50{SPACE}%：请检查句对是怎样造出来的（qkv show）。",
            ),
        )
    return Remark(
        WARNING,
        Phrase(
            f"Next sentence: right for {en}. The interval includes 50{SPACE}%: not distinguishable from guessing.",
            f"下一句预测：{zh}。区间包含 50{SPACE}%：与随机猜测没有显著差异。",
        ),
    )


def find_spikes(norms: Sequence[_Point], window: int = 50, least: int = 10) -> list[tuple[float, float, float]]:
    """Return (step, norm, ratio to the median) of norms above `SPIKE` times the median of the `window` norms before.

    The first `least` are skipped: a run begins with large gradients, and a median needs enough values.
    """
    known = [(step, norm) for step, norm in norms if _is_number(norm)]
    found = []
    for place in range(least, len(known)):
        step, norm = known[place]
        median = statistics.median(value for _, value in known[max(0, place - window) : place])
        if median > 0 and norm > SPIKE * median:
            found.append((step, norm, norm / median))
    return found


def gradient_spikes(norms: Sequence[_Point]) -> Remark | None:
    """Report the number of spikes and the steps of the five largest."""
    found = find_spikes(norms)
    if not found:
        return None
    largest = sorted(sorted(found, key=lambda spike: -spike[2])[:5])
    places = ", ".join(f"{step:,.0f} (×{times:.1f})" for step, _, times in largest)
    places_zh = "、".join(f"{step:,.0f}（×{times:.1f}）" for step, _, times in largest)
    n, more = len(found), len(found) - len(largest)
    one = n == 1
    return Remark(
        WARNING if n > 3 else NOTE,
        Phrase(
            f"{n:,} gradient spike{'' if one else 's'} over {SPIKE:g} times the running median, at "
            f"step{'' if one else 's'} {places}{f' and {more:,} more' if more else ''}.",
            f"梯度有 {n:,} 处尖峰，超过滑动中位数的 {SPIKE:g} 倍：第 {places_zh}步"
            f"{f'，另有 {more:,} 处' if more else ''}。",
        ),
    )


def vocabulary_unseen(seen: int | None, size: int) -> Remark | None:
    """Report tokens that do not occur in the training text: over 1 % a note, over 20 % a warning."""
    if seen is None or size < 1:
        return None
    unseen = max(0, size - seen)
    share = unseen / size
    if share <= 0.01:
        return None
    return Remark(
        WARNING if share > 0.2 else NOTE,
        Phrase(
            f"{percent(share)} of the vocabulary ({unseen:,} of {size:,} tokens) never occurs in the training text: "
            "their embeddings are not trained."
            + (" A vocabulary learned from this text would fit better." if share > 0.2 else ""),
            f"词表中有 {percent(share)}（{size:,} 个词元中的 {unseen:,} 个）从未在训练文本中出现："
            "它们的词向量没有得到训练。" + ("建议用这份文本重新训练词表。" if share > 0.2 else ""),
        ),
    )


def slope(points: Sequence[_Point]) -> tuple[float, float] | None:
    """Return the least-squares slope and its standard error; None for fewer than eight points."""
    n = len(points)
    if n < 8:
        return None
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return None
    rate = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    left = sum((y - mean_y - rate * (x - mean_x)) ** 2 for x, y in points)
    return rate, math.sqrt(left / (n - 2) / spread)


def trend(losses: Sequence[_Point]) -> Remark | None:
    """Report the change over the last fifth of the logged steps with its 95 % interval: falling, flat or rising.

    Flat: the interval contains 0, or the change is less than `FLAT` nats.
    """
    known = [(step, loss) for step, loss in losses if _is_number(loss)]
    last = known[len(known) - len(known) // 5 :] if known else []
    found = slope(last)
    if found is None:
        return None
    steps = last[-1][0] - last[0][0]
    change, error = found[0] * steps, 1.96 * found[1] * steps
    where = f"{last[0][0]:,.0f}–{last[-1][0]:,.0f}"
    figures = f"{change:+.3f} ± {error:.3f}".replace("-", "−")
    if abs(change) < FLAT or abs(change) <= error:
        return Remark(
            NOTE,
            Phrase(
                f"The training loss was flat at the end: {figures} over the last fifth (steps {where}).",
                f"训练损失到最后已经走平：最后五分之一（第 {where} 步）变化 {figures}。",
            ),
        )
    if change > 0:
        return Remark(
            WARNING,
            Phrase(
                f"The training loss was rising at the end: {figures} over the last fifth (steps {where}). The learning "
                "rate may be too high.",
                f"训练损失到最后在上升：最后五分之一（第 {where} 步）变化 {figures}。学习率可能太大。",
            ),
        )
    return Remark(
        NOTE,
        Phrase(
            f"The training loss was still falling at the end: {figures} over the last fifth (steps {where}). A longer "
            "run would probably reach a lower loss.",
            f"训练损失到最后仍在下降：最后五分之一（第 {where} 步）变化 {figures}。训练更久多半还会更低。",
        ),
    )


def waiting_for_batches(share: float | None) -> Remark | None:
    """Warn if more than `WAITING` of the time was spent waiting for data."""
    if not _is_number(share) or share <= WAITING:
        return None
    return Remark(
        WARNING,
        Phrase(
            f"The model waited for batches {percent(share)} of the time (more than {percent(WAITING, 0)}): reading the "
            "data slowed training down.",
            f"模型有 {percent(share)} 的时间在等待批次（超过 {percent(WAITING, 0)}）：数据读取拖慢了训练。",
        ),
    )


def training_and_evaluation(training: float | None, evaluation: float | None) -> Remark | None:
    """Compare training and evaluation loss; `GAP` nats is the threshold."""
    if not _is_number(training) or not _is_number(evaluation):
        return None
    gap = evaluation - training
    both_en = f"Evaluation loss {evaluation:.2f}, training loss {training:.2f}"
    both_zh = f"评估损失 {evaluation:.2f}，训练损失 {training:.2f}"
    if gap > GAP:
        return Remark(
            WARNING,
            Phrase(
                f"{both_en}: {gap:.2f} worse on unseen text. The model overfits; more text or fewer epochs would help.",
                f"{both_zh}：在未见过的文本上差 {gap:.2f}。模型过拟合；增加文本或减少轮数会有帮助。",
            ),
        )
    if gap < -GAP:
        return Remark(
            NOTE,
            Phrase(
                f"{both_en}: {-gap:.2f} better on unseen text. Dropout is off in evaluation, or the held-out "
                "documents are easier.",
                f"{both_zh}：在未见过的文本上反而好 {-gap:.2f}。评估时关闭了 dropout，或者留出的文档更容易。",
            ),
        )
    return Remark(
        GOOD,
        Phrase(
            f"{both_en}: within {GAP:g} of each other, no sign of overfitting.",
            f"{both_zh}：相差不到 {GAP:g}，没有过拟合的迹象。",
        ),
    )


def best_evaluation(losses: Sequence[_Point]) -> Remark | None:
    """Warn if the last evaluation is worse than an earlier one by more than `WORSE` nats."""
    known = [(step, loss) for step, loss in losses if _is_number(loss)]
    if not known:
        return None
    best, last = min(known, key=lambda point: point[1]), known[-1]
    if last[1] - best[1] <= WORSE:
        return None
    return Remark(
        WARNING,
        Phrase(
            f"The evaluation loss was lowest at step {best[0]:,.0f} ({best[1]:.2f}) and ended at {last[1]:.2f}.",
            f"评估损失在第 {best[0]:,.0f} 步最低（{best[1]:.2f}），最后是 {last[1]:.2f}。",
        ),
    )


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
