"""Atomic writes of files and folders, and JSON files.

A file or folder is written under a hidden name next to its target, flushed to disk, and renamed. Other processes see
the old or the new version; an error or Ctrl-C leaves the old version and no temporary files.
"""

import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from qkv.errors import InputError


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file name; the file replaces `path` when the block ends without an error."""
    target = _behind(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield part
        flush_entry(part)
        part.replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}. Nothing was changed.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8 with \\n line ends."""
    with replaced_file(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def replaced_folder(path: Path, may_replace: Callable[[Path], str | None]) -> Iterator[Path]:
    """Yield a new empty folder, which replaces `path` when the block ends without an error.

    `may_replace` is called for an existing folder that is not empty; it returns the reason not to replace it, or None.
    """
    target = _behind(path)
    _check(target, may_replace)
    token = secrets.token_hex(4)
    fresh = target.with_name(f".{target.name}.{token}.part")
    aside = target.with_name(f".{target.name}.{token}.old")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
        yield fresh
        _flush(fresh)
        _check(target, may_replace)  # it may have changed in the meantime
        try:
            if target.exists():
                target.rename(aside)
            fresh.rename(target)
        except BaseException:
            if aside.exists() and not target.exists():
                aside.rename(target)
            raise
        flush_entry(target.parent)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}. The folder is unchanged.") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def locked(file: Path, busy: Callable[[str], InputError]) -> Iterator[None]:
    """Hold a lock in a file until the block or the process ends, however that ends. The file is removed afterwards.

    `busy` makes the error for a lock that somebody else holds, from who that is.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        stream = file.open("a+", encoding="utf-8")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with stream:
                stream.seek(0)
                raise busy(stream.read().strip()) from None
        except OSError:  # a file system without locks
            with stream:
                yield
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(file)):
                break
        stream.close()  # the one who had it has just removed it
    with stream:
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        stream.flush()
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def check_replaceable(path: Path, may_replace: Callable[[Path], str | None]) -> None:
    """Raise as `replaced_folder` would, so that a long job fails before it starts."""
    _check(_behind(path), may_replace)


def _behind(path: Path) -> Path:
    """Expand `~` and follow links, so that the target of a link is replaced and not the link.

    Path.resolve would raise for a link to itself and for the home of an unknown user.
    """
    return Path(os.path.realpath(os.path.expanduser(path)))


def _check(target: Path, may_replace: Callable[[Path], str | None]) -> None:
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file. Give the name of a folder, new or to be replaced.")
    if target.is_dir():
        if target == Path.cwd():
            raise InputError(f"{target} is the current folder, which cannot be replaced. Give another folder.")
        if any(target.iterdir()) and (reason := may_replace(target)):
            raise InputError(f"{target} is not replaced: {reason}. Give another folder, or empty this one first.")


def _flush(folder: Path) -> None:
    """Flush all files to disk before the rename."""
    for here, _, names in os.walk(folder):
        for name in names:
            flush_entry(Path(here) / name)
        flush_entry(Path(here))


def flush_entry(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk itself."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folder
    number = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_json(file: Path) -> Any:
    """Read a JSON file; an error names the file and the position."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))  # Windows editors put a byte order mark first
    except FileNotFoundError:
        raise InputError(f"{file} is missing.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file} is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}. Copy it again."
        ) from None
    except RecursionError:
        raise InputError(f"{file} nests too deeply to be read as JSON. It is damaged: copy it again.") from None


def read_object(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise InputError(f"{file} holds a JSON {type(content).__name__}; it must be an object {{…}}.")
    return content


def to_json(content: Any) -> str:
    """Serialize with indentation, unescaped 汉字 and a final newline."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
