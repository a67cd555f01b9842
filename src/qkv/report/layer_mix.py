"""How much of each layer of ELMo a task uses: the weights of its mix, as bars (Peters et al. 2018, §5.1)."""

from qkv.report.bars import Bar, BarTable, Cell
from qkv.report.bilingual import Phrase, percent
from qkv.report.finetune_facts import MixFacts

EQUAL = Phrase("equal ones", "相等的值")
NEAR = 1e-6
"""Shares that differ by less are told as the same."""


def layer_mix(mix: MixFacts) -> BarTable:
    even = (1 / len(mix.shares),) * len(mix.shares)
    began = mix.began or even
    goes_on = any(abs(one - other) > NEAR for one, other in zip(began, even, strict=True))
    start = Phrase("those of the model that this run went on from", "所接续的模型的权重") if goes_on else EQUAL
    return BarTable(
        Phrase("What it takes from each layer of ELMo", "ELMo 各层用了多少"),
        (Phrase("layer", "层"), Phrase("weight", "权重")),
        tuple(
            _row(number, share, before) for number, (share, before) in enumerate(zip(mix.shares, began, strict=True))
        ),
        note=Phrase(
            "A token's vector is the weighted sum of its layers' vectors, times γ = "
            f"{_number(mix.gamma)}. The weights add up to 1 and were learned with the head, from {start.en} (the "
            "marks). Layers whose vectors are longer count for more than their weight says.",
            f"词元的向量是各层向量的加权和，再乘以 γ = {_number(mix.gamma)}。权重之和为 1，从{start.zh}（刻度线）开始，"
            "与任务头一起学得。向量较长的层，实际作用比权重显示的更大。",
        ),
        narrow=True,
    )


def _row(number: int, share: float, before: float) -> tuple[Cell, ...]:
    name = Phrase("spelling: the same in every sentence", "拼写层：与语境无关")
    if number:
        name = Phrase(f"recurrent layer {number}", f"第 {number} 层循环网络")
    return name, Bar(share, percent(share), "train", mark=before)


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")
