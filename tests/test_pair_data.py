"""Languages by name and by letters; what is pinned."""

from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.run.pair_data import TrainingPairs, check_pinned, pinned, read_pairs
from qkv.run.translate_config import BitextChoice, TranslateConfig, configured


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
    ],
)
def test_which_languages(tmp_path: Path, names: tuple[str, str], expected: tuple[str, str]) -> None:
    found = read(bitext(tmp_path, names, ENGLISH, CHINESE), tmp_path).bitext
    assert (found.source_language, found.target_language) == expected
    given = configured(None, {}, ["bitext.target_language=yue"]).bitext.target_language
    assert given == "yue"


def test_files_are_known_again(tmp_path: Path) -> None:
    choice = pinned(bitext(tmp_path, ("a.en", "a.zh"), ENGLISH, CHINESE))
    assert choice.sha256 is not None and all(Path(file).is_absolute() for file in choice.train)
    check_pinned(choice)
    (tmp_path / "a.zh").write_text(CHINESE.replace("猫", "狗"))
    with pytest.raises(InputError, match="have changed since the run began"):
        check_pinned(choice)
    with pytest.raises(InputError, match="no pairs to train on"):
        pinned(BitextChoice())
    with pytest.raises(InputError, match="two files"):
        pinned(BitextChoice(train=("a", "b", "c")))


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
