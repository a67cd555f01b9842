"""What a user reads when something is wrong."""

from pathlib import Path

import pytest

from qkv.errors import InputError, did_you_mean, reading


def test_the_nearest_name() -> None:
    assert did_you_mean("BertModle", ["BertModel", "Other"]) == " Did you mean 'BertModel'?"
    assert did_you_mean("汉", ["BertModel"]) == ""


def test_what_the_system_says_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.txt cannot be read: No such file or directory\.$"), reading(tmp_path):
        (tmp_path / "x.txt").read_text()
    with pytest.raises(InputError, match="^the folder cannot be read: Stale file handle"), reading("the folder"):
        raise OSError(116, "Stale file handle")
    with pytest.raises(KeyError), reading(tmp_path):
        raise KeyError
