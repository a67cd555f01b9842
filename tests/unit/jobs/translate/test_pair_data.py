"""Languages by name and by letters; what is pinned; what is held out is not trained on."""

from dataclasses import replace
from pathlib import Path

import pytest

from qkv.config import Requested
from qkv.data.pairs.files import fold_to_letters
from qkv.errors import InputError
from qkv.jobs.translate.data import PairData, TrainingPairs, check_bitext_unchanged, pin_bitext, read_pairs
from qkv.jobs.translate.settings import BitextChoice, TranslateConfig, resolve_translation_settings


def bitext(folder: Path, names: tuple[str, ...], *texts: str) -> BitextChoice:
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_text(text)
    return BitextChoice(train=tuple(str(folder / name) for name in names), dev_share=0.0)


def read(choice: BitextChoice, folder: Path) -> TranslateConfig:
    config = TranslateConfig(bitext=choice)
    return read_pairs(config, folder / "run", lambda message: None)[0]


ENGLISH, CHINESE = "a cat\n" * 3, "一只猫\n" * 3


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("train.de", "train.en"), ("de", "en")),
        (("de.txt", "en.txt"), ("de", "en")),
        (("one.txt", "other.txt"), ("und", "zh")),
        (("a.en", "b.en"), ("und", "zh")),
        (("train.in", "train.out"), ("und", "zh")),  # no Indonesian: of both names, or of none
        (("x.from", "x.to"), ("und", "zh")),
        (("train.xx", "train.cn"), ("und", "zh")),  # no codes of languages: the letters say what they can
    ],
)
def test_which_languages(tmp_path: Path, names: tuple[str, str], expected: tuple[str, str]) -> None:
    found = read(bitext(tmp_path, names, ENGLISH, CHINESE), tmp_path).bitext
    assert (found.source_language, found.target_language) == expected
    given = resolve_translation_settings(Requested(assignments=["bitext.target_language=yue"])).bitext.target_language
    assert given == "yue"


@pytest.mark.parametrize(
    ("names", "given", "texts", "meant"),
    [
        (("a.en", "a.tw"), "", CHINESE, "zh-TW"),
        (("a", "b"), "kr", "고양이 한 마리\n" * 3, "ko"),
    ],
)
def test_codes_that_are_those_of_other_languages(
    tmp_path: Path, names: tuple[str, str], given: str, texts: str, meant: str
) -> None:
    choice = replace(bitext(tmp_path, names, ENGLISH, texts), target_language=given)
    with pytest.raises(InputError, match=f"^bitext.target_language .*Did you mean '{meant}'"):
        read(choice, tmp_path)
    assert read(replace(choice, target_language=meant), tmp_path).bitext.target_language == meant


def test_files_are_known_again(tmp_path: Path) -> None:
    choice = pin_bitext(bitext(tmp_path, ("a.en", "a.zh"), ENGLISH, CHINESE))
    assert choice.sha256 is not None and all(Path(file).is_absolute() for file in choice.train)
    check_bitext_unchanged(choice)
    (tmp_path / "a.zh").write_text(CHINESE.replace("猫", "狗"))
    with pytest.raises(InputError, match="have changed since the run began"):
        check_bitext_unchanged(choice)
    with pytest.raises(InputError, match="no pairs to train on"):
        pin_bitext(BitextChoice())
    with pytest.raises(InputError, match="two files"):
        pin_bitext(BitextChoice(train=("a", "b", "c")))


def test_nothing_to_train_on_or_to_choose_by(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pair with text on both sides"):
        read(bitext(tmp_path, ("a.en", "a.zh"), "a\n \n", " \n猫\n"), tmp_path)
    choice = bitext(tmp_path, ("b.en", "b.zh"), ENGLISH, CHINESE)
    with pytest.raises(InputError, match="none fell to dev .* raise the share"):
        read(BitextChoice(train=choice.train, dev_share=0.001), tmp_path)
    choice = BitextChoice(train=choice.train, test=(str(tmp_path / "e.tsv"),), dev_share=0.0)
    (tmp_path / "e.tsv").write_text("a\t \n")
    with pytest.raises(InputError, match="e.tsv: there is no pair"):
        read(choice, tmp_path)


def test_more_pairs_are_all_trained_on(tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text("x\t甲\ny\t乙\n")
    (tmp_path / "t.tsv").write_text("".join(f"text {number}\t文{number}\n" for number in range(50)))
    choice = BitextChoice(
        train=(str(tmp_path / "t.tsv"),), more=(str(tmp_path / "more.tsv"),), dev_share=0.5, test_share=0.3
    )
    pairs = TrainingPairs(choice)
    kept = [pair.source for pair in pairs]
    assert kept[-2:] == ["x", "y"] and 2 < len(kept) < 30 and [pair.source for pair in pairs] == kept


def told(choice: BitextChoice, folder: Path) -> tuple[PairData, list[str]]:
    messages: list[str] = []
    config = resolve_translation_settings(Requested(assignments=["tokenizer.size=200", "max_length=64"]))
    return read_pairs(replace(config, bitext=choice), folder / "run", messages.append)[1], messages


def test_no_side_of_a_held_out_pair_is_trained_on(tmp_path: Path) -> None:
    """Every reference is also the translation of other sources, in other spellings."""
    lines = [f"text {number}\t文{number // 3}{'。' * (number % 2)}\n" for number in range(300)]
    (tmp_path / "t.tsv").write_text("".join(lines))
    choice = BitextChoice(train=(str(tmp_path / "t.tsv"),), dev_share=0.05, test_share=0.05)
    (tmp_path / "more.tsv").write_text("new\t新\n")
    held = TrainingPairs(choice).held
    assert held["dev"] and held["test"]
    one, other = held["dev"][0], held["test"][0]
    (tmp_path / "more.tsv").write_text(f"another\t{one.target}！\n{other.source.upper()}?\t别的\nnew\t新\n")
    choice = replace(choice, more=(str(tmp_path / "more.tsv"),))
    data, messages = told(choice, tmp_path)
    pairs = TrainingPairs(choice)
    trained = list(pairs)
    assert list(data.dev) == held["dev"] and list(data.test) == held["test"] and len(data.train) == len(trained)
    measured = [*data.dev, *data.test]
    assert not {fold_to_letters(pair.target) for pair in trained} & {fold_to_letters(pair.target) for pair in measured}
    assert not {fold_to_letters(pair.source) for pair in trained} & {fold_to_letters(pair.source) for pair in measured}
    # none is lost: each is trained on, measured with, or told
    assert len(trained) + len(measured) + len(pairs.known) == 303 and trained[-1].source == "new"
    assert [fault for fault in data.faults if fault.kind == "held out"] == pairs.known
    assert [(fault.place.line, fault.message.split()[1]) for fault in pairs.known[-2:]] == [
        (1, "target"),
        (2, "source"),
    ]
    assert [one for one in messages if f"held-out one: {len(pairs.known)}; they are not trained on" in one]
    assert not [one for one in messages if "trained on as well" in one]


def test_files_that_were_given_take_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"text {number}\t文{number}\n" for number in range(30)))
    (tmp_path / "dev.tsv").write_text("other\t文1\nanother\t文2！\nText 3!\t三\nnew\t新\n")
    choice = BitextChoice(train=(str(tmp_path / "t.tsv"),), dev=(str(tmp_path / "dev.tsv"),))
    data, messages = told(choice, tmp_path)
    assert len(data.train) == 30 and not data.faults
    assert "note: texts of dev that are trained on as well: 1 of 4" in messages
    assert "note: references of dev that are trained on as well: 2 of 4" in messages


def test_nothing_left_beside_what_was_held_out(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"text {number}\t文\n" for number in range(50)))
    with pytest.raises(InputError, match="no pair that has not a side of one that was held out"):
        told(BitextChoice(train=(str(tmp_path / "t.tsv"),), dev_share=0.2), tmp_path)


def test_columns_for_nothing_are_refused(tmp_path: Path) -> None:
    choice = bitext(tmp_path, ("a.en", "a.zh"), ENGLISH, CHINESE)
    with pytest.raises(InputError, match="--columns.* no file has both sides: of .*a.en and .*a.zh"):
        pin_bitext(replace(choice, columns=("1", "2")))
    (tmp_path / "m.tsv").write_text("1\ta\t甲\n")
    more = (str(tmp_path / "m.tsv"),)
    assert pin_bitext(replace(choice, columns=("2", "3"), more=more)).columns == ("2", "3")
    with pytest.raises(InputError, match="column 2 was given for both"):
        pin_bitext(BitextChoice(train=more, columns=("2", "2")))
