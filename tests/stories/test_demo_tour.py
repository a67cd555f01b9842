"""What `qkv demo` shows: with stand-ins for every model, and with qkv-mini alone."""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import qkv
from qkv.cli.tour import (
    ANALOGIES,
    BLANKS,
    LOOKS,
    MEANINGS,
    PROMPTS,
    QUESTIONS,
    TRANSLATED,
    compare_word,
    demo_tour,
    find_clearest_head,
)
from qkv.errors import InputError
from qkv.models.folders import hub
from qkv.report.attention import AttentionMap, Token
from qkv.text.messages import speaking
from qkv.text.tokenizer import Tokenizer
from tests.stories.test_bad_input import fails
from tests.support.below_readers import WORDS, make_elmo
from tests.support.stand_in import make_zoo, stand_in, use_zoo
from tests.support.word_vectors import make_vectors_folder

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONAL = ("rjieba", "sacrebleu", "numba", "sklearn", "pandas")
TITLES = {
    "en": [
        "Words become vectors",
        "A sentence becomes a sentence of another language",
        "One word, several meanings",
        "A text, one word after another",
        "The word behind [MASK]",
        "Which sentence comes next?",
        "What does a word look at?",
        "A question finds its answer in another language",
    ],
    "zh": [
        "词变成向量",
        "把一句话译成另一种语言",
        "一词多义",
        "一个词接一个词地写下去",
        "[MASK] 处是哪个词？",
        "下一句是哪一句？",
        "一个词看向哪里？",
        "用一种语言提问，在另一种语言里找答案",
    ],
}
YEARS = {"word2vec": 2013, "Transformer": 2017, "ELMo": 2018, "GPT": 2018, "BERT": 2018}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models; the words of the tour have vectors, and ELMo reads Chinese words, as the one of the package."""
    path = make_zoo(tmp_path_factory.mktemp("tour") / "zoo")
    words = dict.fromkeys(word for lang in ANALOGIES for question in ANALOGIES[lang] for word in question)
    words |= dict.fromkeys(word for word, _ in MEANINGS.values())
    random = np.random.default_rng(0)
    for name in ("qkv-words", "qkv-elmo"):
        shutil.rmtree(path / name)
    make_vectors_folder(path / "qkv-words", **{word: tuple(random.normal(size=4).tolist()) for word in words})
    make_elmo(path / "qkv-elmo", Tokenizer.from_vocabulary(WORDS, "word", lowercase=True, segmenter="rjieba"))
    for name in ("qkv-words", "qkv-elmo"):
        hub.seal(path / name)
    return path


def titles(shown: str) -> list[tuple[str, str]]:
    return re.findall(r"^━━ (\d+)  (.*?) ━+$", shown, re.MULTILINE)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_model_has_its_section(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lang: str
) -> None:
    """Also without any optional package, as after `make demo`."""
    use_zoo(made, monkeypatch)
    for name in OPTIONAL:
        monkeypatch.setitem(sys.modules, name, None)
    with speaking(lang):
        assert demo_tour(tmp_path / "out", None, None) == len(TITLES[lang])
    shown = capsys.readouterr().out
    assert titles(shown) == [(str(number), title) for number, title in enumerate(TITLES[lang], 1)]
    for system, year in YEARS.items():
        assert re.search(rf"{system}(, |（| \(){year}", shown), system
    first, second = (lang, "zh" if lang == "en" else "en")
    examples = {
        one: [*TRANSLATED[one], MEANINGS[one][1][0], PROMPTS[one][0], *BLANKS[one], LOOKS[one][0], QUESTIONS[one]]
        for one in (first, second)
    }
    for mine, others in zip(examples[first], examples[second], strict=True):
        assert 0 <= shown.index(mine) < shown.index(others)  # those of the reader's language first
    assert "king − man + woman" in shown and "北京 − 中国 + 法国" in shown
    assert "ELMo: Python" in shown and "ELMo: 苹果" not in shown  # which needs a segmenter
    assert "word2vec: 苹果    1.00    1.00" in shown
    for name in ("alignment.svg", "attention.en.svg", "attention.en.html", "attention.zh.svg", "attention.zh.html"):
        assert str(tmp_path / "out" / name) in shown and (tmp_path / "out" / name).stat().st_size > 1000
    if lang == "zh":
        assert not re.search(r"[a-z]+ [a-z]+ [a-z]+: ", shown)


def test_a_copy_with_qkv_mini_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stand_in(tmp_path / "zoo", monkeypatch)
    assert demo_tour(tmp_path / "out", None, None) == 4
    shown = capsys.readouterr().out
    assert [title for _, title in titles(shown)] == [TITLES["en"][place] for place in (2, 4, 5, 6)]
    assert not re.search(r"qkv-(?!mini)\w+", shown) and "word2vec" not in shown and "ELMo" not in shown
    model = qkv.load(folder)
    best = model.fill(BLANKS["en"][0])[0].best
    assert re.search(rf"{re.escape(BLANKS['en'][0])} +{re.escape(best.text)} {best.probability:.0%}, ", shown)
    assert "The old man opened the door" in shown and "今天早上路面还是湿的。" in shown
    cosines = compare_word(model, *MEANINGS["zh"])
    assert f"BERT: 苹果    {cosines[0, 1]:.2f}    {cosines[2, 3]:.2f}    {cosines[0, 2]:.2f}" in shown
    for lang, (text, word, meant) in LOOKS.items():
        layer, head = find_clearest_head(model.attention(text), word, meant)
        assert f"layer {layer}, head {head}: {word} looks at" in shown
        for ending in (".svg", ".html"):
            file = tmp_path / "out" / f"attention.{lang}{ending}"
            assert str(file) in shown and file.stat().st_size > 10_000
    assert not (tmp_path / "out" / "alignment.svg").exists()


def test_a_head_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path / "zoo", monkeypatch)
    with pytest.raises(InputError, match="0 … 1"):
        demo_tour(tmp_path / "out", 2, None)
    assert capsys.readouterr().out == "" and not (tmp_path / "out").exists()
    demo_tour(tmp_path / "out", 1, 3)
    shown = capsys.readouterr().out
    assert shown.count("layer 1, head 3: ") == 2 and "the head that sees" not in shown


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
