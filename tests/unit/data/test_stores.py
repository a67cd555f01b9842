"""Stores: a local folder and fsspec's memory:// alike; names that would leave a store; stores that do not answer."""

import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.main import main
from qkv.data import stores
from qkv.data.stores import Store, StoredFile, check_name, open_store, place_of
from qkv.errors import InputError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    place = str(tmp_path / "new" / "store") if request.param == "folder" else f"memory://{tmp_path.name}/store"
    yield open_store(place)
    fsspec.filesystem("memory").store.clear()


def test_files_of_a_store(store: Store, tmp_path: Path) -> None:
    assert store.names() == [] and store.size("a.json") is None and not store.exists("parts/b")
    store.write_text("a.json", "一")
    store.write("parts/b", [b"12", memoryview(b"345")])
    (tmp_path / "c").write_bytes(b"c" * 10)
    store.put("parts/c", tmp_path / "c")
    assert store.names() == ["a.json", "parts/b", "parts/c"] and store.names("parts") == ["parts/b", "parts/c"]
    assert store.read("parts/b") == b"12345" and store.size("parts/b") == 5 and not store.exists("parts")
    with store.stream("parts/b") as stream:
        stream.seek(3)
        assert stream.read() == b"45"
    copy: Store = pickle.loads(pickle.dumps(store))
    copy.fetch("a.json", tmp_path / "deep" / "a.json")
    assert (tmp_path / "deep" / "a.json").read_text(encoding="utf-8") == "一"
    store.write("parts/b", [b"new"])
    store.remove("a.json")
    store.remove("a.json")
    assert copy.names() == ["parts/b", "parts/c"] and copy.read("parts/b") == b"new"
    with pytest.raises(InputError, match=r"a\.json"):
        store.read("a.json")
    assert store.at("parts/b") == f"{store.where}/parts/b"


def test_drafts_are_not_seen(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / ".a.json.12ab.part").write_text("half")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.write("a.json", pieces())
    assert store.names() == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../b", "/etc/a", "a//b", "a\\b", "C:a", "a\nb", "./a", "a/"]
)
def test_names_stay_inside(name: str, store: Store) -> None:
    for use in (check_name, store.read, store.stream, store.size, store.remove, store.at):
        with pytest.raises(InputError, match="neither read nor written"):
            use(name)
    with pytest.raises(InputError, match="neither read nor written"):
        store.write(name, [b""])


def test_a_file_of_a_store(tmp_path: Path) -> None:
    open_store("memory://texts").write_text("a.txt.gz", "text")
    file = StoredFile("memory://texts/a.txt.gz")
    assert (file.name, file.stem, file.suffix, file.bytes(), str(file)) == (
        "a.txt.gz", "a.txt", ".gz", 4, "memory://texts/a.txt.gz"
    )  # fmt: skip
    before = file.version()
    assert StoredFile(file.url).version() == before
    open_store("memory://texts").write_text("a.txt.gz", "longer")
    assert file.version() != before
    with pytest.raises(InputError, match="There is no file memory://texts/b"):
        StoredFile("memory://texts/b").bytes()


class Trouble:
    """What a store's library does: raise this, or never answer."""

    error: Exception | None = None


def trouble(*arguments: Any, **options: Any) -> Any:
    if Trouble.error is None:
        threading.Event().wait(5)
    raise Trouble.error or OSError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (None, r"broken://b/x cannot be reached \(no answer within 0 seconds\). Check the address"),
        (ConnectionRefusedError("refused"), r"broken://b/x cannot be reached \(refused\). Check the address"),
        (PermissionError("Forbidden"), r"broken://b/x: access is denied \(PermissionError, Forbidden\)"),
        (RuntimeError("odd"), r"broken://b/x cannot be \w+: RuntimeError, odd"),
    ],
)
def test_a_store_in_trouble(error: Exception | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = type("Broken", (fsspec.AbstractFileSystem,), {"protocol": "broken", "info": trouble, "pipe_file": trouble})
    fsspec.register_implementation("broken", broken, clobber=True)
    monkeypatch.setattr(Trouble, "error", error)
    monkeypatch.setattr(stores, "ANSWER", 0.05)
    monkeypatch.setattr(stores, "_TRANSFER", 0.05)
    store = open_store("broken://b")
    with pytest.raises(InputError, match=message):
        store.size("x")
    with pytest.raises(InputError, match=message):
        store.write("x", [b""])


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"qkv knows no gss://. Did you mean 'gs'\?"):
        open_store("gss://bucket")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InputError, match="s3://bucket/x needs s3fs, which is missing: pip install s3fs"):
        open_store("s3://bucket/x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match=r"pip install 'qkv\[cluster\]'"):
        open_store("memory://x")
    assert place_of("~") == str(Path.home()), "a local folder needs nothing"


@pytest.mark.parametrize(
    "words",
    [
        "finetune classify --train a.csv --out s3://bucket/run",
        "tokenizer train a.txt -o gs://bucket/x",
        "embed --file a.txt --out=s3://bucket/a.npy",
    ],
)
def test_verbs_without_stores_refuse_urls(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert "is a path on this machine here, not a URL: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_only_read_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "classify", "--train", "s3://bucket/a.csv", "--out", str(tmp_path / "run")]) == 2
    assert "s3://bucket/a.csv is a URL, and a path on this machine is needed here" in capsys.readouterr().err
