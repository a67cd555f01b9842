"""Where files are: a folder of this machine (or NFS), or a folder in an object store, s3://…, gs://…, through fsspec.

Files of a `Store` appear whole or not at all. A local one is written under a hidden name and renamed; an object is put
in one piece. Stores cannot rename a folder, so whoever writes several files writes a marker last, and readers believe
the marker alone. Names inside a store are relative and stay inside it, whoever wrote them into a manifest.

What this file does NOT do: keep credentials or addresses. fsspec and its packages (s3fs, gcsfs, …) have their own
settings for those: environment variables, ~/.aws, ~/.config/fsspec.
"""

import io
import os
import re
import secrets
import shutil
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

from qkv.errors import InputError, did_you_mean, reading
from qkv.files import locked, replaced_file

AnyPlace = str | os.PathLike[str]
_Buffer = bytes | memoryview
_Found = TypeVar("_Found")

ANSWER = 60.0  # seconds within which a store answers a question
_TRANSFER = 900.0  # and within which one object is read or written
_url = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z][A-Za-z0-9+.-]+)*):/(/?)(.*)", re.DOTALL)
_draft = re.compile(r"(.*/)?\.[^/]+\.part")
_LOCAL = ("file", "local")
_LOCK = ".qkv-lock"
_LOCK_SECONDS = 60.0
_PACKAGES = dict(zip("s3 s3a gs gcs az abfs".split(), "s3fs s3fs gcsfs gcsfs adlfs adlfs".split(), strict=True))
_BEFORE_GIVING_UP = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 4}}  # of botocore


def is_url(where: AnyPlace) -> bool:
    """Whether a place is in a store. A `Path` made of a URL, which has lost a slash, is known as one too.

    >>> is_url("s3://bucket/corpus"), is_url(Path("gs://bucket/x")), is_url("C:/texts"), is_url("texts/s3.txt")
    (True, True, False, False)
    """
    found = _url.fullmatch(os.fspath(where))
    return found is not None and found[1].lower() not in _LOCAL and not Path(where).is_absolute()


def place_of(where: AnyPlace) -> str:
    """Return a place as text: a URL with both slashes, a local path with ~ expanded and without file://.

    >>> place_of(Path("s3://bucket/a/")), place_of("file:///data/a"), place_of("texts/a")
    ('s3://bucket/a', '/data/a', 'texts/a')
    """
    text = os.fspath(where)
    if (found := _url.fullmatch(text)) is None:
        return os.path.expanduser(text)
    if found[1].lower() in _LOCAL:
        return "/" + found[3].lstrip("/")
    return f"{found[1]}://{found[3]}".rstrip("/")


def check_name(name: str) -> str:
    """Return a name inside a store; one that would leave it is an error."""
    path = PurePosixPath(name)
    inside = name and not path.is_absolute() and ".." not in path.parts and str(path) == name and name != "."
    if not inside or re.search(r"[\\:\x00-\x1f]", name):
        raise InputError(f"{name!r} is not a name of a file inside a folder, so it is neither read nor written.")
    return name


def open_store(where: AnyPlace) -> "Store":
    """Return the store at a folder or URL, which need not exist; nothing is contacted before the first question."""
    place = place_of(where)
    return _Objects(place) if is_url(place) else _Folder(place)


class Store(ABC):
    """Files at a folder or URL, by their relative names (`a.json`, `parts/b.json`). It may be pickled."""

    is_local = True
    is_shared = True
    """Whether other processes see it; memory:// is in this process only."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __str__(self) -> str:
        return self.where

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, (self.where,)

    def at(self, name: str) -> str:
        """Return the path or URL of a file, for messages and for others who open it."""
        return f"{self.where.rstrip('/')}/{check_name(name)}"

    def write_text(self, name: str, text: str) -> None:
        self.write(name, [text.encode()])

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def stream(self, name: str) -> BinaryIO:
        """Open a file for reading; it can seek."""

    @abstractmethod
    def write(self, name: str, pieces: Iterable[_Buffer]) -> None:
        """Write a file of these pieces; it appears whole, and replaces an earlier one."""

    @abstractmethod
    def put(self, name: str, file: Path) -> None:
        """Copy a local file into the store; it appears whole."""

    @abstractmethod
    def names(self, under: str = "") -> list[str]:
        """Return the names of all files, or of those in the folder `under`, sorted; drafts are left out."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None if there is none."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file if it is there."""

    @abstractmethod
    def entries(self) -> list[str]:
        """Return the names of files and folders directly in it, without drafts and the lock."""

    @abstractmethod
    def remove_folder(self, name: str) -> None:
        """Remove an empty folder if it is there."""

    @abstractmethod
    def lock(self) -> AbstractContextManager[None]:
        """Keep others from preparing files here at the same time, or raise."""

    def fetch(self, name: str, to: Path) -> None:
        """Copy a file to a local path; it appears there whole."""
        with replaced_file(to) as part, open(part, "wb") as out, self.stream(name) as stream:
            shutil.copyfileobj(stream, out, 1 << 20)

    def exists(self, name: str) -> bool:
        return self.size(name) is not None


class _Folder(Store):
    def _path(self, name: str) -> Path:
        return Path(self.where) / check_name(name)

    def read(self, name: str) -> bytes:
        with reading(self._path(name)):
            return self._path(name).read_bytes()

    def stream(self, name: str) -> BinaryIO:
        with reading(self._path(name)):
            return open(self._path(name), "rb")

    def write(self, name: str, pieces: Iterable[_Buffer]) -> None:
        with replaced_file(self._path(name)) as part, open(part, "wb") as out:
            for piece in pieces:
                out.write(piece)

    def put(self, name: str, file: Path) -> None:
        with replaced_file(self._path(name)) as part:
            shutil.copyfile(file, part)

    def names(self, under: str = "") -> list[str]:
        root = Path(self.where)
        with reading(root):
            found = (root / check_name(under) if under else root).rglob("*")
            names = [path.relative_to(root).as_posix() for path in found if path.is_file()]
        return sorted(name for name in names if name != _LOCK and not _draft.fullmatch(name))

    def entries(self) -> list[str]:
        with reading(self.where):
            found = [path.name for path in Path(self.where).iterdir()] if Path(self.where).is_dir() else []
        return sorted(name for name in found if name != _LOCK and not _draft.fullmatch(name))

    def remove_folder(self, name: str) -> None:
        with suppress(OSError):  # not there, or not empty
            self._path(name).rmdir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                held.enter_context(locked(self._path(_LOCK), lambda owner: _busy(self.where, owner)))
            except OSError as error:
                raise InputError(f"{self.where} cannot be written: {error.strerror or error}.") from error
            yield

    def size(self, name: str) -> int | None:
        path = self._path(name)
        with reading(path):
            try:
                return path.stat().st_size if path.is_file() else None
            except FileNotFoundError:  # removed between the two
                return None

    def remove(self, name: str) -> None:
        with reading(self._path(name)):
            self._path(name).unlink(missing_ok=True)


class _Objects(Store):
    is_local = False

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._files, root = _connect(where)
        self._root = root.rstrip("/")
        self.is_shared = where.partition(":")[0] != "memory"

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def read(self, name: str) -> bytes:
        with _reaching(self.at(name), "read"):
            found: bytes = _within(_TRANSFER, lambda: self._files.cat_file(self._path(name)))
            return found

    def stream(self, name: str) -> BinaryIO:
        return _open_object(self._files, self._path(name), self.at(name))

    def write(self, name: str, pieces: Iterable[_Buffer]) -> None:
        data = b"".join(pieces)
        with _reaching(self.at(name), "written"):
            _within(_TRANSFER, lambda: self._files.pipe_file(self._path(name), data))

    def put(self, name: str, file: Path) -> None:
        with _reaching(self.at(name), "written"):
            _within(_TRANSFER, lambda: self._files.put_file(str(file), self._path(name)))

    def names(self, under: str = "") -> list[str]:
        path = self._path(under) if under else self._root
        with _reaching(self.where, "read"):
            try:
                self._files.invalidate_cache()
                found: list[str] = _within(_TRANSFER, lambda: self._files.find(path))
            except FileNotFoundError:
                return []
        before = len(self._root) + 1
        return sorted(one[before:] for one in found if one[before:] not in ("", _LOCK))

    def entries(self) -> list[str]:
        with _reaching(self.where, "read"):
            try:
                self._files.invalidate_cache()
                found: list[str] = _within(_TRANSFER, lambda: self._files.ls(self._root, detail=False))
            except FileNotFoundError:
                return []
        # "shards/" itself is an object where a console of S3 has made the folder
        names = {one.rstrip("/").rpartition("/")[2] for one in found if one.rstrip("/") != self._root}
        return sorted(names - {_LOCK})

    def remove_folder(self, name: str) -> None:
        """Most object stores have no folders but names; some (memory://) have both."""
        with suppress(Exception):
            _within(ANSWER, lambda: self._files.rmdir(self._path(name)))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold an object that is written again every few seconds: of a process that was killed it is soon too old."""
        mine = f"{os.getpid()} on {socket.gethostname()} {secrets.token_hex(4)}"
        if (owner := self._owner()) and not _has_ended(owner):
            raise _busy(self.where, owner.rpartition(" ")[0])
        ended = threading.Event()

        def hold() -> None:
            while not ended.wait(_LOCK_SECONDS / 4):
                with suppress(InputError):  # a store that is away for a moment
                    self.write_text(_LOCK, f"{mine}\n{time.time():.0f}\n")

        self.write_text(_LOCK, f"{mine}\n{time.time():.0f}\n")
        if self._owner() != mine:  # two began at the same moment
            raise _busy(self.where, (self._owner() or "").rpartition(" ")[0])
        threading.Thread(target=hold, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            with suppress(InputError):
                self.remove(_LOCK)

    def _owner(self) -> str | None:
        """Return who holds the lock, by a fresh object."""
        if not self.exists(_LOCK):
            return None
        owner, _, moment = self.read(_LOCK).decode().strip().partition("\n")
        return owner if time.time() - float(moment or 0) < _LOCK_SECONDS else None

    def size(self, name: str) -> int | None:
        with _reaching(self.at(name), "read"):
            return _size(self._files, self._path(name))

    def remove(self, name: str) -> None:
        with _reaching(self.at(name), "written"):
            try:
                _within(ANSWER, lambda: self._files.rm_file(self._path(name)))
            except FileNotFoundError:
                return


def _has_ended(owner: str) -> bool:
    """Whether the process that held a lock was on this machine and is no more."""
    process, _, host = owner.rpartition(" ")[0].partition(" on ")
    if host != socket.gethostname() or int(process) == os.getpid() or os.name == "nt":  # there, 0 is Ctrl-C
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _busy(where: str, owner: str) -> InputError:
    return InputError(
        f"Another process works on {where} ({owner or 'just started'}). Wait for it, or stop it; or give another "
        f"folder. In an object store, the lock of a killed process ends after {_LOCK_SECONDS:.0f} seconds."
    )


@dataclass(frozen=True)
class StoredFile:
    """One file in a store, with the part of `Path` that reading needs."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    def open(self, mode: str = "rb") -> BinaryIO:
        assert mode == "rb"
        return _open_object(*_connect(self.url), self.url)

    def bytes(self) -> int:
        """Return its size; a file that does not exist is an error."""
        files, path = _connect(self.url)
        with _reaching(self.url, "read"):
            size = _size(files, path)
        if size is None:
            raise InputError(f"There is no file {self.url}.")
        return size

    def version(self) -> str:
        """Return what changes when the file is written again: a hash of its size, date and ETag."""
        files, path = _connect(self.url)
        with _reaching(self.url, "read"):
            found: str = _within(ANSWER, lambda: files.ukey(path))
            return found


class _Reader(io.RawIOBase):
    """An object as a stream whose errors are ours, also those in the middle of a file."""

    def __init__(self, files: Any, path: str, url: str) -> None:
        self._url, self._at = url, 0
        with _reaching(url, "read"):
            self._stream = _within(ANSWER, lambda: files.open(path, "rb", block_size=1 << 22))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _reaching(self._url, "read"):
            data = _within(_TRANSFER, lambda: self._read(len(buffer)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, size: int) -> bytes:
        self._stream.seek(self._at)  # all who have opened a file of memory:// share one position
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        before = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._stream.size}[whence]
        self._at = before + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _open_object(files: Any, path: str, url: str) -> BinaryIO:
    return io.BufferedReader(_Reader(files, path, url), 1 << 20)


def _size(files: Any, path: str) -> int | None:
    files.invalidate_cache()
    try:
        found = _within(ANSWER, lambda: files.info(path))
    except FileNotFoundError:
        return None
    return int(found["size"]) if found["type"] == "file" else None


def _connect(url: str) -> tuple[Any, str]:
    """Return the file system of fsspec for a URL, and the path inside it."""
    scheme = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations
    except ImportError:
        raise InputError(f"{url} needs fsspec, which is missing: pip install 'qkv[cluster]'.") from None
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        options["config_kwargs"] = _BEFORE_GIVING_UP
    try:
        files, path = url_to_fs(url, **options)
    except ImportError as error:
        if package := _PACKAGES.get(scheme):
            raise InputError(f"{url} needs {package}, which is missing: pip install {package}") from None
        raise InputError(f"{url} needs a package that is missing ({error}).") from None
    except Exception as error:
        if "Protocol not known" in str(error):
            raise InputError(f"{url}: qkv knows no {scheme}://.{did_you_mean(scheme, known_implementations)}") from None
        raise _refused(url, "read", error) from error
    return files, str(path)


def _within(seconds: float, ask: Callable[[], _Found]) -> _Found:
    """Return the answer of a store, or raise TimeoutError: whatever its library does, we do not wait for ever."""
    answers: list[_Found] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer within {seconds:.0f} seconds")
    return answers[0]


@contextmanager
def _reaching(url: str, done: str) -> Iterator[None]:
    """Turn whatever a store's library raises into an `InputError` that names the URL."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise _refused(url, done, error) from error


def _refused(url: str, done: str, error: Exception) -> InputError:
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        if done == "read":
            return InputError(f"There is no file {url}.")
        return InputError(f"{url} cannot be written: there is no such bucket or folder.")
    if isinstance(error, PermissionError) or "Credential" in name or "Forbidden" in name:
        return InputError(f"{url}: access is denied ({name}, {error}). Check the credentials and the permissions.")
    if isinstance(error, TimeoutError) or "Connect" in name or "Timeout" in name:
        return InputError(
            f"{url} cannot be reached ({str(error) or name}). Check the address, the network and the store's settings."
        )
    if done == "read":
        return InputError(f"{url} cannot be read: {name}, {error}.")
    return InputError(f"{url} cannot be written: {name}, {error}.")
