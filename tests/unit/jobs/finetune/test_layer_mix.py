"""The picture of a mix: a bar a layer, and γ, in two languages."""

from qkv.jobs.finetune.facts import MixFacts
from qkv.jobs.finetune.tables import layer_mix_table


def test_a_run_that_goes_on_marks_where_it_began() -> None:
    page = layer_mix_table(MixFacts((0.2, 0.5, 0.3), 1.25, (0.1, 0.6, 0.3))).html()
    assert all(f'<s style="left:{share}%">' in page for share in ("10.0", "60.0", "30.0"))
    assert "from those of the model that this run went on from" in page and "从所接续的模型的权重" in page
    assert "equal ones" not in page
    page = layer_mix_table(MixFacts((0.2, 0.5, 0.3), 1.25, (1 / 3,) * 3)).html()
    assert "from equal ones" in page and "从相等的值" in page


def test_every_layer_has_its_bar() -> None:
    page = layer_mix_table(MixFacts((0.2, 0.5, 0.3), 1.25)).html()
    assert page.count('class="track train"') == 3
    assert all(f"width:{share}%" in page for share in ("20.0", "50.0", "30.0"))
    assert page.count('<s style="left:33.3%">') == 3, "equal weights are marked"
    for words in ("γ = 1.250", "spelling", "recurrent layer 2", "拼写层", "第 2 层循环网络"):
        assert words in page
