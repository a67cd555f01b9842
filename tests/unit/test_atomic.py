import os
from pathlib import Path

import pytest

from qkv.errors import InputError
from qkv.files import replaced_file, replaced_folder, write_text


def never(folder: Path) -> str | None:
    raise AssertionError("asked about a folder that is not there or empty")


def always(folder: Path) -> str | None:
    return None


def fill(path: Path, content: str) -> None:
    with replaced_folder(path, always) as fresh:
        (fresh / "a").write_text(content)
        (fresh / "sub").mkdir()
        (fresh / "sub" / "b").write_text(content)


def test_a_new_folder_and_its_parents(tmp_path: Path) -> None:
    with replaced_folder(tmp_path / "x" / "模型", never) as fresh:
        (fresh / "a").write_text("1")
        assert not (tmp_path / "x" / "模型").exists()
    assert [entry.name for entry in (tmp_path / "x").iterdir()] == ["模型"]
    assert (tmp_path / "x" / "模型" / "a").read_text() == "1"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with replaced_folder(tmp_path / "x", never) as fresh:
        (fresh / "a").write_text("1")
    assert (tmp_path / "x" / "a").is_file()


def test_replacing_leaves_nothing_of_the_old(tmp_path: Path) -> None:
    fill(tmp_path / "x", "old")
    (tmp_path / "x" / "more").write_text("")
    fill(tmp_path / "x", "new")
    assert sorted(entry.name for entry in (tmp_path / "x").iterdir()) == ["a", "sub"]
    assert (tmp_path / "x" / "sub" / "b").read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("existing", [True, False])
def test_an_interrupt_changes_nothing(tmp_path: Path, error: type[BaseException], existing: bool) -> None:
    if existing:
        fill(tmp_path / "x", "old")
    with pytest.raises(error), replaced_folder(tmp_path / "x", always) as fresh:
        (fresh / "a").write_text("half")
        raise error
    assert [entry.name for entry in tmp_path.iterdir()] == (["x"] if existing else [])
    assert not existing or (tmp_path / "x" / "a").read_text() == "old"


def test_an_interrupt_between_the_two_renames_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "x", "old")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name.endswith(".part"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "x", "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x" / "a").read_text() == "old"


def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    fill(tmp_path / "x", "old")
    message = r"x cannot be written: No space left.*is unchanged"
    with pytest.raises(InputError, match=message), replaced_folder(tmp_path / "x", always):
        raise OSError(28, "No space left on device")
    assert (tmp_path / "x" / "a").read_text() == "old"


def test_what_is_refused_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("1")
    with pytest.raises(InputError, match="file is a file"), replaced_folder(tmp_path / "file", always):
        pass
    fill(tmp_path / "x", "old")
    message = "x is not replaced: it holds a thesis"
    with pytest.raises(InputError, match=message), replaced_folder(tmp_path / "x", lambda folder: "it holds a thesis"):
        pass
    monkeypatch.chdir(tmp_path / "x")
    with pytest.raises(InputError, match="is the current folder"), replaced_folder(Path(), always):
        pass
    assert (tmp_path / "x" / "a").read_text() == "old"


def test_through_a_link_its_target_is_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fill(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "new"


def test_others_may_read_it(tmp_path: Path) -> None:
    fill(tmp_path / "x", "1")
    (tmp_path / "plain").mkdir()
    assert os.stat(tmp_path / "x").st_mode == os.stat(tmp_path / "plain").st_mode


# One file


def test_a_file_takes_its_name_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "文.txt"
    with replaced_file(target) as part:
        part.write_text("1")
        assert not target.exists() and part.parent == target.parent
    write_text(target, "二\n")
    assert target.read_bytes() == "二\n".encode()
    assert [entry.name for entry in target.parent.iterdir()] == ["文.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    write_text(tmp_path / "a", "old")
    with pytest.raises(error), replaced_file(tmp_path / "a") as part:
        part.write_text("half")
        raise error
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "old")]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    with pytest.raises(InputError, match="a cannot be written: No space left"), replaced_file(tmp_path / "a") as part:
        part.write_text("half")
        raise OSError(28, "No space left on device")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a", "old")]


def test_through_a_link_its_target_file_is_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "here" / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "here" / "real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "here" / "real").read_text() == "new"
    (tmp_path / "ahead").symlink_to(tmp_path / "here" / "later")
    write_text(tmp_path / "ahead", "first")
    assert (tmp_path / "ahead").is_symlink() and (tmp_path / "here" / "later").read_text() == "first"


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_text(Path("~/a"), "1")
    with replaced_folder(Path("~/b"), never):
        pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "b"]
