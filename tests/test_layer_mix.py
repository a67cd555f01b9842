"""The picture of a mix: a bar a layer, and γ, in two languages."""

from qkv.report.finetune_facts import MixFacts
from qkv.report.layer_mix import layer_mix


def test_every_layer_has_its_bar() -> None:
    page = layer_mix(MixFacts((0.2, 0.5, 0.3), 1.25)).html()
    assert page.count('class="track train"') == 3
    assert all(f"width:{share}%" in page for share in ("20.0", "50.0", "30.0"))
    assert page.count('<s style="left:33.3%">') == 3, "equal weights are marked"
    for words in ("γ = 1.250", "spelling", "recurrent layer 2", "拼写层", "第 2 层循环网络"):
        assert words in page
