"""The page: one file, its data inside, whatever the text says."""

import json
import re

import pytest

from qkv.errors import InputError
from qkv.report.attention import AttentionMap, attention_page
from tests.unit.report.test_attention_map import make_map


def data_of(page: str) -> dict[str, object]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    return dict(json.loads(found[0]))


def test_the_map_is_inside_and_comes_back() -> None:
    before = make_map(["他", "欠", "</script><script>alert(1)</script>", "<!--", "__DATA__"], second=["B"])
    page = attention_page(before, 1, 2, token="欠", lang="zh")
    data = data_of(page)
    carried = data["map"]
    assert isinstance(carried, dict)
    assert (AttentionMap.from_dict(carried).attn == before.attn).all()
    assert (data["layer"], data["head"], data["token"], data["lang"]) == (1, 2, 2, "zh")
    assert page.count("</script>") == 2 and "alert(1)<" not in page


def test_places_are_told_apart_from_numbers() -> None:
    whole = make_map(layers=4)
    part = AttentionMap("self", whole.attn[2:], (2, 3), whole.heads, whole.left, whole.right, whole.texts)
    assert data_of(attention_page(part, 3, 1))["layer"] == 1
    assert data_of(attention_page(part))["layer"] == 0
    with pytest.raises(InputError, match="no layer 0"):
        attention_page(part, 0, 1)


def test_nothing_is_fetched() -> None:
    page = attention_page(make_map())
    assert not re.search(r"src=|href=|@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"']+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name for a kind of XML, not an address"


def test_unknown_language() -> None:
    with pytest.raises(InputError, match="Unknown language"):
        attention_page(make_map(), lang="de")
