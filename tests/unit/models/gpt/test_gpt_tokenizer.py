"""What the files of a GPT's tokenizer put around a text, read by the library and by us."""

import json
from pathlib import Path

import pytest
import tokenizers

from qkv.models.gpt.tokenizer import NAMES, SETTINGS, TOKENIZER, TaskTokenizer, files_for_tasks, files_for_writing
from qkv.text.tokenizer import Tokenizer
from tests.support.gpt_folders import VOCABULARIES

TEXT = "the cat didn't 今天"


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_to_write_on(tmp_path: Path, vocabulary: str) -> None:
    tokenizer = VOCABULARIES[vocabulary][0]()
    ids = tokenizer.encode_ids([TEXT])[0]
    for begins in (True, False):
        files = files_for_writing(tokenizer, 64, begins=begins)
        marked = begins and tokenizer.has_marks
        found = tokenizers.Tokenizer.from_str(files[TOKENIZER]).encode(TEXT)
        assert found.ids == ([tokenizer.sep_id, *ids] if marked else ids)
        settings, end = json.loads(files[SETTINGS]), tokenizer.token(tokenizer.sep_id)
        assert settings["tokenizer_class"] == "PreTrainedTokenizerFast" and settings["model_max_length"] == 64
        assert "token_type_ids" not in settings["model_input_names"]
        assert json.loads(files[NAMES]).get("eos_token") == (end if tokenizer.has_marks else None)
        folder = tmp_path / str(begins)
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        again = Tokenizer.load(folder)  # we know what to put where, and are not misled by a file
        assert again.encode_ids([TEXT])[0] == ids and again.lowercase == tokenizer.lowercase
        assert files_for_writing(again, 64, begins=begins) == files


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_for_a_task(vocabulary: str) -> None:
    tokenizer = TaskTokenizer(VOCABULARIES[vocabulary][0]())
    backend = tokenizers.Tokenizer.from_str(files_for_tasks(tokenizer, 64)[TOKENIZER])
    assert backend.encode(TEXT).ids == tokenizer.encode(TEXT).ids
    assert backend.encode(TEXT, "the dog").ids == tokenizer.encode(TEXT, "the dog").ids
