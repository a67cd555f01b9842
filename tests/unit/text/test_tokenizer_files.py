"""The files of a tokenizer: what is read, what is refused, and that a save is all or nothing."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models

from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary import Kind
from qkv.text.wordpiece import SPECIAL


def made(kind: Kind = "wordpiece", lowercase: bool = True) -> Tokenizer:
    return Tokenizer.from_vocabulary([*SPECIAL, "a", "我", "A"][: 7 if lowercase else 8], kind, lowercase)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_added_tokens_of_an_older_folder(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "a"]) + "\n")
    (tmp_path / "added_tokens.json").write_text('{"<two>": 7, "<one>": 6}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.size == 8 and tokenizer.encode("a <two><one>", special=False).ids == [5, 7, 6]
    (tmp_path / "added_tokens.json").write_text('{"<two>": 9}')
    with pytest.raises(InputError, match=r"vocab\.txt has no room for the added token '<two>' at its id 9"):
        Tokenizer.load(tmp_path)


GOOD = "\n".join([*SPECIAL, "a"])
BAD: dict[str, tuple[dict[str, str | bytes], str]] = {
    "nothing there": ({"config.json": "{}"}, "has neither tokenizer.json nor vocab.txt, only config.json"),
    "half of it": ({"vocab.json": "{}"}, "only vocab.json. Copy one of the two there, or vocab.json and merges.txt"),
    "no special tokens": ({"vocab.txt": "[PAD]\n[UNK]\na\n"}, r"vocab.txt has no \[CLS\] \[SEP\] \[MASK\]: .*all of"),
    "empty vocabulary": ({"vocab.txt": ""}, "vocab.txt, line 1 is empty"),
    "a token twice": ({"vocab.txt": GOOD + "\na\n"}, "vocab.txt, line 7: 'a' is already on line 6"),
    "an empty line": ({"vocab.txt": "\n" + GOOD}, "vocab.txt, line 1 is empty"),
    "not UTF-8": ({"vocab.txt": "[PAD]\n汉".encode("gbk")}, "vocab.txt, line 2 is not UTF-8"),
    "not JSON": ({"tokenizer.json": '{"model":\n ...'}, "tokenizer.json is not valid JSON at line 2, column 2"),
    "cut short": ({"tokenizer.json": '{"version": "1.0", "truncation'}, "line 1, column 20: .*Copy it again"),
    "a list": ({"tokenizer.json": "[]"}, "holds a JSON list; it must be an object"),
    "no tokenizer": ({"tokenizer.json": "{}"}, "tokenizer.json is not a readable tokenizer"),
    "bad settings": ({"vocab.txt": GOOD, "tokenizer_config.json": "{"}, "tokenizer_config.json is not valid JSON"),
    "odd added tokens": (
        {"vocab.txt": GOOD, "tokenizer_config.json": '{"added_tokens_decoder": {"x": {"content": "b"}}}'},
        "tokenizer_config.json: the added tokens are not a table",
    ),
    "added tokens in a list": (
        {"vocab.txt": GOOD, "tokenizer_config.json": '{"added_tokens_decoder": ["b"]}'},
        "tokenizer_config.json: the added tokens are not a table",
    ),
    "added tokens without content": (
        {"vocab.txt": GOOD, "tokenizer_config.json": '{"added_tokens_decoder": {"6": {}}}'},
        "tokenizer_config.json: the added tokens .*content",
    ),
    "added tokens without ids": (
        {"vocab.txt": GOOD, "added_tokens.json": '{"b": null, "c": 7}'},
        "added_tokens.json: the added tokens are not a table",
    ),
    "an odd normalizer": ({"tokenizer.json": '{"normalizer": "x"}'}, "tokenizer.json is not a readable tokenizer"),
    "odd normalizers": (
        {"tokenizer.json": '{"normalizer": {"normalizers": [null]}}'},
        "tokenizer.json is not a readable tok",
    ),
    "odd settings": ({"vocab.txt": GOOD, "tokenizer_config.json": '{"do_lower_case": "no"}'}, "lowercase is 'no'; it"),
    "unigram": (
        {"tokenizer.json": Backend(models.Unigram([("a", 0.0)], 0, False)).to_str()},
        r"tokenizer.json has no \[PAD\] \[UNK\]",
    ),
    "sentencepiece": ({"spiece.model": b"x"}, "has spiece.model, and no tokenizer.json. Have transformers write one"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_folders(tmp_path: Path, name: str) -> None:
    files, message = BAD[name]
    for file, data in files.items():
        (tmp_path / file).write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="There is no tokenizer at .*modle. Did you mean 'model'?"):
        Tokenizer.load(tmp_path / "modle")
    with pytest.raises(InputError, match="There is no tokenizer at .*far/away.$"):
        Tokenizer.load(tmp_path / "far" / "away")


def test_null_says_nothing_about_added_tokens(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(GOOD)
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": null}')
    assert Tokenizer.load(tmp_path).size == 6


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    made().save(folder := tmp_path / "m")
    (folder / "tokenizer_config.json").unlink()

    def locked(self: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", locked)
    monkeypatch.setattr(Path, "read_text", locked)
    with pytest.raises(InputError, match=f"m/{name} cannot be read: Permission denied"):
        Tokenizer.load(folder / name)


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made().save("~/m")
    assert (tmp_path / "m" / "vocab.txt").is_file()
    assert Tokenizer.load("~/m").size == Tokenizer.load("~/m/vocab.txt").size == 7


@pytest.mark.parametrize("existing", ["nothing", "an empty folder", "a tokenizer"])
@pytest.mark.parametrize("which", range(4))
def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: str, which: int) -> None:
    folder = tmp_path / "m"
    if existing == "an empty folder":
        folder.mkdir()
    if existing == "a tokenizer":
        made().save(folder)
    before, there = content(tmp_path), folder.exists()
    written, write = 0, Path.write_text

    def full(self: Path, *data: str, **options: str) -> int:
        nonlocal written
        written += 1
        if written > which:
            raise OSError(28, "No space left on device")
        return write(self, *data, **options)

    with monkeypatch.context() as patch, pytest.raises(InputError, match="m cannot be written: No space left"):
        patch.setattr(Path, "write_text", full)
        made(lowercase=False).save(folder)
    assert written == which + 1
    assert content(tmp_path) == before and folder.exists() == there
    assert [entry.name for entry in tmp_path.iterdir()] == (["m"] if there else [])


def test_nothing_of_an_older_tokenizer_stays(tmp_path: Path) -> None:
    made().save(folder := tmp_path / "m")
    (folder / "added_tokens.json").write_text("{}")
    made("character").save(folder)
    assert set(content(folder)) == {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert Tokenizer.load(folder).kind == "character"


def test_what_is_not_replaced(tmp_path: Path) -> None:
    made().save(folder := tmp_path / "m")
    (folder / "thesis.docx").touch()
    with pytest.raises(InputError, match=r"m is not replaced: it holds thesis\.docx, which is not part of a tokenizer"):
        made("character").save(folder)
    (folder / "thesis.docx").unlink()
    for name in ("config.json", "model.safetensors"):
        (folder / name).touch()
    before = content(tmp_path)
    with pytest.raises(InputError, match="m is not replaced: it is a model folder"):
        made("character").save(folder)
    with pytest.raises(InputError, match=r"vocab\.txt is a file"):
        made().save(folder / "vocab.txt")
    assert content(tmp_path) == before


def test_what_is_written(tmp_path: Path) -> None:
    made().save(tmp_path / "m", max_length=77)
    assert content(tmp_path / "m") == {name: text.encode() for name, text in made().files(77).items()}
    assert json.loads(made().files(77)["tokenizer_config.json"])["model_max_length"] == 77
    assert "model_max_length" not in json.loads(made().files()["tokenizer_config.json"])
