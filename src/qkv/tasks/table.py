"""The tasks by name, one literal table; and the names of tasks, transfer methods and metrics in both languages.

A task is imported when it is asked for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from qkv.errors import InputError, did_you_mean
from qkv.report.bilingual import Phrase, percent, phrase
from qkv.tasks.task import Makers, Task

AnyTask = Task[Any, Any]


class Entry(NamedTuple):
    module: str
    makers: str  # the `Makers` in that module
    head: str
    longest: int  # tokens of a window, where the model allows as many
    epochs: int  # of a large file, at least

    def load(self) -> Makers:
        found: Makers = getattr(import_module(self.module), self.makers)
        return found


TASKS: dict[str, Entry] = {
    "classify": Entry("qkv.tasks.classify", "CLASSIFY", "sequence", 512, 3),
    "tag": Entry("qkv.tasks.tag", "TAG", "token", 512, 4),
    "answer": Entry("qkv.tasks.answer", "ANSWER", "span", 384, 2),
    "choice": Entry("qkv.tasks.choice", "CHOICE", "choice", 512, 3),
}


def detect_task(record: Mapping[str, Any], heads: Sequence[str]) -> str | None:
    """The task that was put on a model, as its folder says, or else by its head."""
    told = record.get("task")
    if isinstance(told, str) and told in TASKS:
        return told
    return next((name for name, entry in TASKS.items() if entry.head in heads), None)


def find_task(name: str) -> Entry:
    if name not in TASKS:
        raise InputError(f"Unknown task '{name}'.{did_you_mean(name, TASKS)} Known: {', '.join(TASKS)}.")
    return TASKS[name]


# --- Names of tasks, transfer methods and metrics in both languages, and the format of metric values.
#
# A metric that is not in the table keeps its own name.

SHARE, CORRELATION, ERROR = "share", "correlation", "error"


@dataclass(frozen=True)
class Metric:
    name: Phrase
    kind: str = SHARE
    means: Phrase | None = None  # one line for somebody who has never heard of it

    @property
    def plain(self) -> str:
        """The English name within a sentence.

        >>> METRICS["macro_f1"].plain, METRICS["pearson"].plain, METRICS["f1"].plain
        ('macro F1', 'Pearson correlation', 'F1')
        """
        keeps = self.name.en.startswith(("F1", "Pearson", "Spearman", "Matthews"))
        return self.name.en if keeps else self.name.en[:1].lower() + self.name.en[1:]

    @property
    def zh(self) -> str:
        """The Chinese name before 汉字: letters and 汉字 keep apart.

        >>> METRICS["f1"].zh + "为", METRICS["accuracy"].zh + "为"
        ('F1 为', '准确率为')
        """
        return self.name.zh + (" " if self.name.zh[-1:].isascii() else "")

    @property
    def after(self) -> str:
        """The Chinese name after 汉字, and before them.

        >>> "验证集" + METRICS["f1"].after + "最高"
        '验证集 F1 最高'
        """
        return (" " if self.name.zh[:1].isascii() else "") + self.zh

    def shown(self, value: float) -> str:
        """
        >>> METRICS["accuracy"].shown(0.5), METRICS["mcc"].shown(-0.25)
        ('50.0\\xa0%', '−0.250')
        """
        if not math.isfinite(value):
            return "–"
        if self.kind == SHARE:
            return percent(value)
        return f"{value:.3f}".replace("-", "−") if abs(value) < 100 else f"{value:,.0f}"

    def change(self, value: float) -> Phrase:
        """A difference of two values, without its sign.

        >>> METRICS["accuracy"].change(-0.031).en
        '3.1 points'
        """
        if self.kind == SHARE:
            return Phrase(f"{100 * abs(value):.1f} points", f"{100 * abs(value):.1f} 个百分点")
        return phrase(f"{abs(value):.3f}")


_F1 = Phrase("the harmonic mean of precision and recall", "精确率与召回率的调和平均")
METRICS = {
    "accuracy": Metric(Phrase("Accuracy", "准确率"), means=Phrase("the share answered right", "答对的比例")),
    "subset_accuracy": Metric(
        Phrase("Exact label sets", "标签全对的比例"),
        means=Phrase("the share of texts whose labels are all right", "一条文本的标签全部答对才算对"),
    ),
    "macro_f1": Metric(
        Phrase("Macro F1", "宏平均 F1"),
        means=Phrase("the mean F1 of the labels, rare ones counting as much", "各标签 F1 的平均，少见的标签同样算数"),
    ),
    "micro_f1": Metric(
        Phrase("Micro F1", "微平均 F1"),
        means=Phrase(
            "F1 over all decisions, frequent labels counting more", "所有判断合在一起的 F1，常见的标签分量更重"
        ),
    ),
    "weighted_f1": Metric(
        Phrase("Weighted F1", "加权 F1"),
        means=Phrase("the mean F1 of the labels, weighted by how frequent they are", "按标签频次加权的平均 F1"),
    ),
    "samples_f1": Metric(
        Phrase("F1 per text", "逐条 F1"), means=Phrase("the mean F1 of the texts", "各条文本 F1 的平均")
    ),
    "f1": Metric(Phrase("F1", "F1"), means=_F1),
    "precision": Metric(
        Phrase("Precision", "精确率"),
        means=Phrase("of what it says, the share that is right", "它给出的答案里对的比例"),
    ),
    "recall": Metric(
        Phrase("Recall", "召回率"), means=Phrase("of what is there, the share that it finds", "该找到的里面找到的比例")
    ),
    "em": Metric(
        Phrase("Exact match", "完全匹配"),
        means=Phrase("the share of answers that are right to the letter", "答案一字不差的比例"),
    ),
    "mcc": Metric(
        Phrase("Matthews correlation", "马修斯相关系数"),
        CORRELATION,
        Phrase("1 is perfect, 0 is guessing", "1 为全对，0 相当于瞎猜"),
    ),
    "pearson": Metric(
        Phrase("Pearson correlation", "皮尔逊相关系数"),
        CORRELATION,
        Phrase("1: the numbers lie on one line", "1 表示两组数在一条直线上"),
    ),
    "spearman": Metric(
        Phrase("Spearman correlation", "斯皮尔曼相关系数"),
        CORRELATION,
        Phrase("1: the same order", "1 表示排序完全一致"),
    ),
    "mean_absolute_error": Metric(
        Phrase("Mean absolute error", "平均绝对误差"), ERROR, Phrase("how far off it is on average", "平均差多少")
    ),
    "mean_squared_error": Metric(
        Phrase("Mean squared error", "均方误差"), ERROR, Phrase("large misses count more", "差得越多，分量越重")
    ),
}
METRICS["exact"] = METRICS["exact_match"] = METRICS["em"]

_PARTS = {
    "has_answer": Phrase("questions with an answer", "有答案的问题"),
    "no_answer": Phrase("questions without an answer", "无答案的问题"),
    "macro": Phrase("mean of the labels", "各标签平均"),
    "micro": Phrase("over all decisions", "所有判断合计"),
}


def find_metric(name: str) -> Metric:
    """
    >>> find_metric("has_answer_f1").name.en, find_metric("sparkle").name.en, find_metric("cost_error").kind
    ('F1, questions with an answer', 'sparkle', 'error')
    """
    if name in METRICS:
        return METRICS[name]
    for part, means in _PARTS.items():
        for rest in (name.removeprefix(f"{part}_"), name.removesuffix(f"_{part}")):
            if rest != name and rest in METRICS:
                whole = METRICS[rest]
                both = Phrase(f"{whole.name.en}, {means.en}", f"{whole.name.zh}（{means.zh}）")
                return Metric(both, whole.kind, whole.means)
    return Metric(phrase(name.replace("_", " ")), ERROR if name.endswith("_error") else CORRELATION)


_NOTHING = Phrase("nothing", "无")
_TEXTS = Phrase("Texts are counted.", "按文本计数。")
_HARDEST = Phrase("The right answer was given the least probability here.", "在这些样本上，正确答案得到的概率最小。")


@dataclass(frozen=True)
class TaskWords:
    """What a task's examples are called, and how a page writes what was said about them."""

    name: Phrase
    one: Phrase  # "text"
    many: Phrase  # "texts"; in Chinese with its measure word, to stand after a number
    between: str | None = None  # the parts of a judgement: entities, accepted answers, labels; None: it has one
    nothing: Phrase = _NOTHING  # said where a judgement is empty
    question_first: bool = False  # what is shown beside the text stands above it
    marks_answers: bool = False  # what was said stands in the text
    counts: Phrase = _TEXTS  # what figures by label count
    hardest: Phrase = _HARDEST  # what the hardest examples are
    f1: Phrase | None = None  # what it means here, if not what it means elsewhere
    f1_of_second: bool = False  # with two labels F1 is that of the second one

    def of(self, n: int) -> Phrase:
        """
        >>> _TASKS["answer", ""].of(1).en, _TASKS["classify", "single"].of(1200).zh
        ('1 question', '1,200 条文本')
        """
        return Phrase(f"{n:,} {self.one.en if n == 1 else self.many.en}", f"{n:,} {self.many.zh}")


_TEXT = (Phrase("text", "文本"), Phrase("texts", "条文本"))
_QUESTION = (Phrase("question", "问题"), Phrase("questions", "个问题"))
_TASKS = {
    ("classify", "single"): TaskWords(Phrase("text classification", "文本分类"), *_TEXT, f1_of_second=True),
    ("classify", "multi"): TaskWords(
        Phrase("multi-label classification", "多标签分类"),
        *_TEXT,
        between=", ",
        nothing=Phrase("no label", "无标签"),
    ),
    ("classify", "regression"): TaskWords(
        Phrase("scoring texts (regression)", "文本打分（回归）"),
        *_TEXT,
        hardest=Phrase("The numbers that are farthest off.", "差得最多的那些数。"),
    ),
    ("tag", ""): TaskWords(
        Phrase("marking spans (entities)", "片段标注（实体识别）"),
        *_TEXT,
        between="; ",
        nothing=Phrase("no span", "无片段"),
        counts=Phrase("Spans are counted, not texts.", "按片段计数，不按文本。"),
    ),
    ("answer", ""): TaskWords(
        Phrase("extractive question answering", "抽取式问答"),
        *_QUESTION,
        between=" / ",
        nothing=Phrase("no answer", "无答案"),
        question_first=True,
        marks_answers=True,
        f1=Phrase("how much of the answer's words is right", "答案用词与标准答案的重合程度"),
    ),
    ("choice", ""): TaskWords(Phrase("multiple choice", "选择题"), *_QUESTION, question_first=True),
}


def task_words(task: str, kind: str) -> TaskWords:
    found = _TASKS.get((task, kind)) or _TASKS.get((task, ""))
    return found or TaskWords(phrase(f"{task} {kind}".strip()), Phrase("example", "样本"), Phrase("examples", "条样本"))


def transfer_words(transfer: str, new_layers: bool = False) -> Phrase:
    """`new_layers`: the encoder is new, and what was trained before lies below it.

    >>> transfer_words("top:2").en
    'the last 2 layers and the head trained (top:2)'
    """
    if new_layers and transfer in ("freeze", "features"):
        return Phrase(
            f"pretrained vectors held still, what stands on them trained ({transfer})",
            f"预训练的向量保持不变，训练其上的部分（{transfer}）",
        )
    if transfer.startswith("top:"):
        layers = transfer.removeprefix("top:")
        one = layers == "1"
        return Phrase(
            f"the last {'layer' if one else f'{layers} layers'} and the head trained ({transfer})",
            f"训练最后 {layers} 层和任务头（{transfer}）",
        )
    known = {
        "full": Phrase("all weights trained (full)", "训练全部权重（full）"),
        "freeze": Phrase("encoder frozen, only the head trained (freeze)", "编码器冻结，只训练任务头（freeze）"),
        "features": Phrase(
            "encoder run once, its vectors kept, only a head trained (features)",
            "编码器只运行一遍、存下向量，只训练任务头（features）",
        ),
    }
    return known.get(transfer, phrase(transfer))


UNITS = {"text": Phrase("text", "文本"), "entity": Phrase("entity", "实体"), "question": Phrase("question", "问题")}
PART_NAMES = {"train": Phrase("training", "训练集"), "dev": Phrase("dev", "验证集"), "test": Phrase("test", "测试集")}
