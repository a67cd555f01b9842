"""What `qkv demo` shows of a model, with the stand-in for it."""

from pathlib import Path

import numpy as np
import pytest

import qkv
from qkv.cli.demo import BLANKS, LOOKS, demo_tour, find_clearest_head
from qkv.errors import InputError
from qkv.report.attention import AttentionMap, Token
from tests.stories.test_bad_input import fails
from tests.support.stand_in import stand_in

pytestmark = pytest.mark.usefixtures("one_thread")


def test_blanks_pairs_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stand_in(tmp_path / "zoo", monkeypatch)
    demo_tour(tmp_path / "out", None, None)
    shown = capsys.readouterr().out
    best = qkv.load(folder).fill(BLANKS[0])[0].best
    assert f"{BLANKS[0]}\n    {best.text} {best.probability:.0%}, " in shown and all(text in shown for text in BLANKS)
    assert "The old man opened the door" in shown and "今天早上路面还是湿的。" in shown
    for lang, (text, word, meant) in LOOKS.items():
        layer, head = find_clearest_head(qkv.load(folder).attention(text), word, meant)
        assert f"layer {layer}, head {head}: {word} looks at" in shown
        for ending in (".svg", ".html"):
            file = tmp_path / "out" / f"attention.{lang}{ending}"
            assert str(file) in shown and file.stat().st_size > 10_000


def test_a_head_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path / "zoo", monkeypatch)
    with pytest.raises(InputError, match="0 … 1"):
        demo_tour(tmp_path / "out", 2, None)
    assert capsys.readouterr().out == "" and not (tmp_path / "out").exists()
    demo_tour(tmp_path / "out", 1, 3)
    assert capsys.readouterr().out.count("layer 1, head 3: ") == 2


def test_the_head_that_looks_most_beyond_the_others() -> None:
    """Head 0 looks at "b" from everywhere, head 1 from "c" alone."""
    tokens = tuple(Token(text, text, place * 2, place * 2 + 1) for place, text in enumerate("abc"))
    attn = np.zeros((1, 2, 3, 3), np.uint8)
    attn[0, 0, :, 1] = 255
    attn[0, 1, :, 0] = 255
    attn[0, 1, 2] = (0, 200, 55)
    assert find_clearest_head(AttentionMap("self", attn, (4,), (6, 7), tokens, tokens, ("a b c",)), "c", "b") == (4, 7)


def test_what_is_given_narrows_the_search() -> None:
    """The clearest of all is head 1 of layer 1; of layer 0 it is head 0."""
    tokens = tuple(Token(text, text, place * 2, place * 2 + 1) for place, text in enumerate("abc"))
    attn = np.zeros((2, 2, 3, 3), np.uint8)
    for layer, head, weight in ((0, 0, 100), (0, 1, 50), (1, 1, 250)):
        attn[layer, head, 2, 1] = weight
    found = AttentionMap("self", attn, (0, 1), (0, 1), tokens, tokens, ("a b c",))
    assert find_clearest_head(found, "c", "b") == (1, 1)
    assert find_clearest_head(found, "c", "b", layer=0) == (0, 0)
    assert find_clearest_head(found, "c", "b", head=0) == (0, 0)
    assert find_clearest_head(found, "c", "b", layer=0, head=1) == (0, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["finetune", "--layer", "1"], "--layer is for pictures, which qkv demo finetune does not draw"),
        (["finetune", "--head", "1"], "--head is for pictures"),
        (["pretrain", "--layer", "0"], "--layer is for pictures, which qkv demo pretrain does not draw"),
        (["--minutes", "1"], "--minutes is only for qkv demo pretrain"),
        (["finetune", "--minutes", "1"], "--minutes is only for qkv demo pretrain"),
    ],
)
def test_options_of_another_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in fails(capsys, "demo", *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
