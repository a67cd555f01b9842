"""The table of docs/scale.md is what bench/scaling_model.py computes, from figures that docs/gpu.md has measured."""

from pathlib import Path

import pytest

from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import model_flops
from tests.support.bench_modules import bench_module

ROOT = Path(__file__).resolve().parents[2]
MODEL = bench_module("scaling_model")
ROWS = list(MODEL.lines(300e9, 40e9))


@pytest.mark.parametrize(("page", "lang"), [("scale.md", "en"), ("scale.zh.md", "zh")])
def test_the_page_has_the_table(page: str, lang: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert "\n".join(MODEL.table(ROWS, lang)) in text


@pytest.mark.parametrize("page", ["scale.md", "scale.zh.md", "gpu.md"])
def test_measured_figures_are_those_of_the_page(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert f"{MODEL.STEP * 1e3:.1f}" in text and f"{MODEL.PEAK} GiB" in text


def test_parameters_and_operations_are_those_of_the_network() -> None:
    import torch

    from qkv.data.batch import Batch

    base = MODEL.MODELS[0]
    with torch.device("meta"):
        network = BertWithHeads(BertConfig.preset("base"), ("masked", "next_sentence"), 2)
    assert base.parameters == sum(one.numel() for one in network.parameters())
    n_rows, masked = 4, 77
    labels = {"masked_at": torch.zeros(masked, dtype=torch.long)}
    batch = Batch.of([[0] * MODEL.LENGTH] * n_rows, labels=labels)
    share = masked / (n_rows * MODEL.LENGTH)
    head = base.config.width**2 + base.config.width * base.config.vocabulary_size
    counted = base.flops + 6 * head * (share - MODEL.MASKED)
    assert model_flops(network, batch) == pytest.approx(counted * n_rows * MODEL.LENGTH)


def test_what_is_sent_and_held() -> None:
    plain, divided = (next(row for row in ROWS if row.gpus == 8 and row.is_divided is which) for which in (False, True))
    alone = ROWS[0]
    assert alone.forward + alone.backward == 0 and alone.memory == pytest.approx(MODEL.PEAK * MODEL.GIB)
    assert plain.backward == pytest.approx(2 * 7 / 8 * 4 * plain.model.parameters)  # a ring: there and back
    assert divided.forward + divided.backward == pytest.approx(plain.backward)
    assert divided.memory < alone.memory < plain.memory
    slow = list(MODEL.lines(300e9, 1e9))
    assert slow[3].gpus == 64 and slow[3].tokens_per_second < ROWS[3].tokens_per_second
