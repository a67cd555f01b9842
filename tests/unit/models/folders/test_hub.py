import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from qkv.errors import InputError
from qkv.models.folders.hub import PICKLED, SAFE, locate


class Hub:
    """Stands in for the download: remembers what was asked for, and gives a folder or an error."""

    def __init__(self, folder: Path, has_safetensors: bool = True, error: Exception | None = None) -> None:
        self.folder, self.has_safetensors, self.error = folder, has_safetensors, error
        self.calls: list[tuple[str, str | None, list[str]]] = []

    def __call__(self, name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.calls.append((name, revision, allow_patterns))
        if self.error:
            raise self.error
        if self.has_safetensors:
            (self.folder / "model.safetensors").touch()
        return str(self.folder)


def fake(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> Hub:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    return hub


def test_a_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = fake(monkeypatch, Hub(tmp_path))
    (tmp_path / "模型 1").mkdir()
    assert locate(tmp_path / "模型 1") == tmp_path / "模型 1"
    assert locate(str(tmp_path)) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert locate("模型 1") == Path("模型 1")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("~/模型 1") == tmp_path / "模型 1"
    with pytest.raises(InputError, match="There is no folder ~nobody-of-that-name"):
        locate("~nobody-of-that-name/x")
    assert hub.calls == []


def test_a_missing_folder_names_its_neighbour_and_the_way_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = fake(monkeypatch, Hub(tmp_path))
    (tmp_path / "my-model").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"There is no folder my-modle\. Did you mean 'my-model'\?"):
        locate("my-modle")
    with pytest.raises(InputError, match=r"write hf:google/bert_uncased\."):
        locate("google/bert_uncased")
    with pytest.raises(InputError, match=r"There is no folder my-modle/a/b\. Did you mean 'my-model'\?"):
        locate("my-modle/a/b")
    with pytest.raises(InputError) as error:
        locate("/no/such/deep/folder")
    assert "hf:" not in str(error.value)
    assert hub.calls == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "is empty"), ("  ", "is empty"), ("巴黎是[MASK]国的首都。" * 99, "is not a folder"), ("a\0b", "There is no")],
)
def test_what_is_no_name_at_all(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        locate(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match="There is no folder"):
        locate(tmp_path / "model.safetensors" / "x")
    with pytest.raises(InputError, match="is a file. Give the folder"):
        locate(tmp_path / "model.safetensors")


def test_a_hub_name_downloads_what_is_needed_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = fake(monkeypatch, Hub(tmp_path))
    assert locate("hf:google-bert/bert-base-chinese@v1.0") == tmp_path
    (call,) = hub.calls
    assert call[:2] == ("google-bert/bert-base-chinese", "v1.0")
    assert set(SAFE) < set(call[2])
    assert not set(PICKLED) & set(call[2])
    assert not any(pattern in ("*", "*.json", "*.bin", "*.h5") for pattern in call[2])
    locate("hf:bert-base-uncased")
    assert hub.calls[1][:2] == ("bert-base-uncased", None)


def test_a_pickle_is_fetched_where_there_is_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = fake(monkeypatch, Hub(tmp_path, has_safetensors=False))
    locate("hf:owner/old")
    assert [set(PICKLED) <= set(patterns) for _, _, patterns in hub.calls] == [False, True]


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:owner/na me", "hf:../x@", "hf:我/你"])
def test_what_is_no_hub_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = fake(monkeypatch, Hub(tmp_path))
    with pytest.raises(InputError, match="is not the name of a model on the hub. Write hf:owner/name"):
        locate(name)
    assert hub.calls == []


def http(kind: Any) -> Exception:
    """An error as the hub's library raises it; how it is built differs between its versions."""
    error: Exception = kind.__new__(kind)
    error.args = ("404\nRequest ID: x",)
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http(GatedRepoError), "owner/name asks its users to accept its terms"),
        (http(RepositoryNotFoundError), "The hub has no model owner/name"),
        (http(RevisionNotFoundError), "owner/name has no revision 'v1'"),
        (
            LocalEntryNotFoundError("no connection\nlong advice"),
            "could not be fetched from the hub: no connection On a",
        ),
        (ConnectionError("offline"), "owner/name is not in the local cache .*: offline"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_every_error_of_the_hub_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    fake(monkeypatch, Hub(tmp_path, error=error))
    with pytest.raises(InputError, match=message) as caught:
        locate("hf:owner/name@v1")
    assert "\n" not in str(caught.value)


def test_a_path_never_imports_the_hubs_library(tmp_path: Path) -> None:
    code = (
        "import sys; from qkv.models.folders.hub import locate; locate(sys.argv[1])\n"
        "assert 'huggingface_hub' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
