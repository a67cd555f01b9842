import json
from pathlib import Path
from typing import Any

import pytest

from qkv.errors import InputError
from qkv.models.folders.fields import SentenceFiles, read_sentence, write_sentence


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_folder_without_these_files(tmp_path: Path) -> None:
    assert read_sentence(tmp_path) == SentenceFiles()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_reads_what_it_writes(tmp_path: Path, pooling: str, normalize: bool) -> None:
    files = write_sentence(pooling, normalize, 32)
    assert read_sentence(write(tmp_path, files)) == SentenceFiles(pooling, normalize, files=files)


def step(number: int, path: str, kind: str) -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": kind}


def test_names_of_version_6(tmp_path: Path) -> None:
    steps = [
        step(0, "", "sentence_transformers.base.modules.transformer.Transformer"),
        step(1, "1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
        step(2, "2_Normalize", "sentence_transformers.base.modules.normalize.Normalize"),
    ]
    files = {
        "modules.json": json.dumps(steps).encode(),
        "1_Pooling/config.json": b'{"embedding_dimension": 384, "pooling_mode": "cls", "include_prompt": true}',
        "2_Normalize/config.json": b"{}",
        "config_sentence_transformers.json": b'{"prompts": {"query": "q: "}}',
    }
    assert read_sentence(write(tmp_path, files)) == SentenceFiles("cls", True, files=files)


@pytest.mark.parametrize(
    ("fields", "pooling", "note"),
    [
        ({"pooling_mode": "max"}, None, "pooling by max is not one"),
        ({"pooling_mode": ["mean", "cls"]}, None, "pooling by mean and cls is not one"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_cls_token": False}, None, "by pooling_mode_max_tokens"),
        ({"pooling_mode": ["mean"]}, "mean", None),
        ({}, "mean", None),
    ],
)
def test_modes(tmp_path: Path, fields: dict[str, Any], pooling: str | None, note: str | None) -> None:
    write(tmp_path, write_sentence("mean", False, 32) | {"1_Pooling/config.json": json.dumps(fields).encode()})
    found = read_sentence(tmp_path)
    assert found.pooling == pooling
    assert (found.foreign is None) == (pooling is not None)
    assert [note in text for text in found.notes] == ([True] if note else []) if note else not found.notes


def test_a_step_that_qkv_does_not_do_is_noted(tmp_path: Path) -> None:
    steps = [step(0, "", "x.Transformer"), step(1, "1_Pooling", "x.Pooling"), step(2, "2_Dense", "x.Dense")]
    found = read_sentence(write(tmp_path, {"modules.json": json.dumps(steps).encode()}))
    assert (found.pooling, found.foreign, found.files) == (None, "a step Dense", {})
    assert "the step Dense is not one that qkv does" in found.notes[0]


def test_lower_case_is_the_tokenizers_business(tmp_path: Path) -> None:
    write(tmp_path, write_sentence("mean", False, 32) | {"sentence_bert_config.json": b'{"do_lower_case": true}'})
    assert read_sentence(tmp_path).notes == ("sentence_bert_config.json: do_lower_case is left to the tokenizer",)


@pytest.mark.parametrize("content", [b"{}}", b"5", b'[{"type": "x.Pooling"}]', b'["x"]'])
def test_a_damaged_list(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match=r"modules\.json"):
        read_sentence(write(tmp_path, {"modules.json": content}))


def test_a_path_that_leads_away(tmp_path: Path) -> None:
    steps = [step(0, "", "x.Transformer"), step(1, "../other", "x.Pooling")]
    with pytest.raises(InputError, match=r"names the path '\.\./other'"):
        read_sentence(write(tmp_path, {"modules.json": json.dumps(steps).encode()}))


def test_a_missing_pooling_file(tmp_path: Path) -> None:
    files = write_sentence("mean", False, 32)
    del files["1_Pooling/config.json"]
    with pytest.raises(InputError, match=r"1_Pooling.config\.json is missing"):
        read_sentence(write(tmp_path, files))
