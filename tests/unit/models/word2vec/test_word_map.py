import math
import re

from qkv.models.word2vec.page import HEIGHT, WIDTH, PlacedWord, WordMap


def drawn(*words: PlacedWord) -> str:
    return WordMap("Map", words, "note").html()


def test_words_stand_where_they_lie() -> None:
    page = drawn(PlacedWord("left", -1.0, 0.0), PlacedWord("右", 1.0, 0.0), PlacedWord("<b>", 0.0, 2.0))
    found = re.findall(r'<text class="level" x="([0-9.]+)" y="([0-9.]+)"[^>]*>([^<]+)</text>', page)
    assert [word for _, _, word in found] == ["left", "右", "&lt;b&gt;"] and "<circle" not in page
    places = {word: (float(x), float(y)) for x, y, word in found}
    assert places["left"][0] < places["&lt;b&gt;"][0] < places["右"][0]
    assert places["&lt;b&gt;"][1] < places["left"][1] == places["右"][1]  # up is up
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places.values())


def test_a_word_without_room_is_a_dot_with_a_name() -> None:
    page = drawn(PlacedWord("often", 0.0, 0.0), PlacedWord("seldom", 0.001, 0.0), PlacedWord("away", 1.0, 1.0))
    assert ">often</text>" in page and ">away</text>" in page
    assert "<title>seldom</title></circle>" in page and page.index("<circle") < page.index("<text")


def test_nothing_to_draw() -> None:
    assert "There is nothing to draw." in drawn() and "没有可画的东西" in drawn(PlacedWord("lost", math.nan, 0.0))
    alone = drawn(PlacedWord("alone", 3.0, 3.0))
    assert f'x="{WIDTH / 2:.1f}"' in alone
