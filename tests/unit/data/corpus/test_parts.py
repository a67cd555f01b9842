"""A corpus prepared in parts: the same bytes as in order, wherever the files are and however often it was killed."""

import gzip
import json
import lzma
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from qkv.data.corpus.documents import open_sources, read_blocks, read_part
from qkv.data.corpus.parts import HereAndNow, PartsJob, plan_parts
from qkv.data.corpus.prepare import PrepareProgress, prepare_corpus
from qkv.data.stores import open_store
from qkv.errors import InputError
from tests.support.corpora import documents, write_corpus
from tests.support.folders import make_tokenizer
from tests.unit.data.corpus.test_prepare import SMALL, content

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


def material(folder: Path) -> list[Path]:
    """Every kind of file that makes trouble: long documents over borders, none, Windows lines, compressed ones."""
    folder.mkdir(exist_ok=True)
    text = "\n\n".join(documents(150))
    rows = "".join(json.dumps({"text": one}, ensure_ascii=False) + "\n" for one in documents(60, 2))
    long = "\n".join(line for one in documents(80, 3) for line in one.split("\n"))
    files = {
        "a.txt": text.encode(),
        "empty.txt": b"",
        "b.jsonl.gz": gzip.compress(rows.encode(), mtime=0),
        "windows.txt": text.replace("\n", "\r\n").encode(),
        "long.txt": long.encode() + "\n\n\n\n末尾".encode(),
        "c.txt.xz": lzma.compress(("\n\n" + text).encode()),
        "blank.txt": b"\n \n\n",
        "d.jsonl": rows.encode(),
        "e.txt": "".join(f"这是我们的第{number}个句子。\n你好，世界！\n\n" for number in range(200)).encode("gb18030"),
        "f.txt": ("没有换行。" * 900 + "\n\n" + "The end").encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


Work = Callable[[PartsJob, Any], Any]


class Shuffled(HereAndNow):
    """Tasks in any order, some of them twice, as those of lost machines are."""

    def __init__(self, seed: int = 0, most: int | None = None) -> None:
        self.draw, self.most, self.done = random.Random(seed), most, 0

    def map(
        self, work: Callable[[PartsJob, Any], Any], job: PartsJob, items: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]:
        order = [*range(len(items)), *self.draw.choices(range(len(items)), k=len(items) // 4)] if items else []
        self.draw.shuffle(order)
        found = {}
        for number in order:
            if self.most is not None and self.done >= self.most:
                raise KeyboardInterrupt
            self.done += 1
            found[number] = work(job, items[number])
        yield from found.items()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("whole")
    files = material(folder / "texts")
    prepare_corpus(files, make_tokenizer(), folder / "out", workers=1, **SMALL)
    return files, content(folder / "out")


def stored(where: str) -> dict[str, bytes]:
    store = open_store(where)
    return {name: store.read(name) for name in store.names()}


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_the_same_bytes_in_parts(whole: tuple[list[Path], dict[str, bytes]], place: str, tmp_path: Path) -> None:
    files: list[Any] = whole[0]
    out = str(tmp_path / "out")
    if place == "memory":
        store, out = open_store("memory://texts"), "memory://shards/new"
        for file in files:
            store.put(file.name, file)
        files = [f"memory://texts/{file.name}" for file in files]
    seen: list[PrepareProgress] = []
    for _ in range(2):  # the second time it is finished
        prepare_corpus(files, make_tokenizer(), out, tasks=Shuffled(), progress=seen.append, **SMALL)
        assert stored(out) == whole[1]
    assert [one.share for one in seen] == sorted(one.share for one in seen) and seen[-1].share == 1.0
    assert len(plan_parts(open_sources(files), 300)) > 20


def test_killed_at_any_task(whole: tuple[list[Path], dict[str, bytes]], tmp_path: Path) -> None:
    out, kills = tmp_path / "out", 0
    while True:
        try:
            prepare_corpus(whole[0], make_tokenizer(), out, tasks=Shuffled(kills, most=9), **SMALL)
            break
        except KeyboardInterrupt:
            kills += 1
            assert (out / "unfinished.json").exists() and not (out / "manifest.json").exists()
        with pytest.raises(InputError, match="was started with --cluster. Resume it with"):
            prepare_corpus(whole[0], make_tokenizer(), out, workers=1, **SMALL)
    assert kills > 4 and content(out) == whole[1]


DRIVER = """
import sys
from qkv.data.corpus.parts import HereAndNow
from qkv.data.corpus.prepare import prepare_corpus
from qkv.text.tokenizer import Tokenizer
tokenizer, out, *files = sys.argv[1:]
prepare_corpus(files, Tokenizer.load(tokenizer), out, tasks=HereAndNow(), hold_out=0.1, block_bytes=300,
               shard_tokens=200, progress=lambda now: print(now.share, flush=True))
"""


def test_kill_9(whole: tuple[list[Path], dict[str, bytes]], tmp_path: Path) -> None:
    make_tokenizer().save(tmp_path / "tokenizer")
    out = tmp_path / "out"
    for kill in range(2):
        command = [sys.executable, "-c", DRIVER, str(tmp_path / "tokenizer"), str(out), *map(str, whole[0])]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            shares = [float(process.stdout.readline()) for _ in range(20)]
            process.send_signal(signal.SIGKILL)
        assert shares[0] > 0 if kill else shares[0] == 0, "what was done is not done again"
    (out / "unfinished" / ".part-000000.json.ab.part").write_text("half")
    prepare_corpus(whole[0], make_tokenizer(), out, tasks=HereAndNow(), **SMALL)
    assert content(out) == whole[1]


def test_the_other_way_round(whole: tuple[list[Path], dict[str, bytes]], tmp_path: Path) -> None:
    file, blocks = write_corpus(tmp_path / "a.txt"), 0

    def stop(progress: PrepareProgress) -> None:
        nonlocal blocks
        blocks += 1
        if blocks == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", workers=1, progress=stop, **SMALL)
    with pytest.raises(InputError, match="was started without --cluster"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", tasks=HereAndNow(), **SMALL)
    prepare_corpus(file, make_tokenizer(), tmp_path / "out", tasks=HereAndNow(), overwrite=True, **SMALL)
    prepare_corpus(file, make_tokenizer(), tmp_path / "whole", workers=1, **SMALL)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_part_is_the_same_wherever_it_is_read(tmp_path: Path) -> None:
    """Blocks of all parts are those of the file, for any size and any place of blank lines and line ends."""
    draw = random.Random(1)
    for round in range(150):
        kind = draw.choice([".txt", ".jsonl"])
        weights = draw.choice([(8, 1, 1), (1, 3, 1), (30, 1, 0), (1, 1, 3)])
        data = b"".join(draw.choices([b"x", b"\n", b"\r\n"], weights, k=draw.randint(0, 400)))
        (tmp_path / f"a{kind}").write_bytes(data)
        (source,) = open_sources(tmp_path / f"a{kind}")
        size = draw.randint(1, 9)
        blocks = list(read_blocks([source], size=size))
        parts = [block for part in range(source.parts(size)) for block in read_part(source, 0, part, size)]
        assert b"".join(block.data for block in parts) == data, (round, data)
        assert [block.data for block in parts] == [block.data for block in blocks], (round, data)
        assert [block.place.offset for block in parts] == [block.place.offset for block in blocks]


def test_damage_and_change(tmp_path: Path) -> None:
    file, out = write_corpus(tmp_path / "a.txt", 120), tmp_path / "out"
    prepare_corpus(file, make_tokenizer(), tmp_path / "whole", workers=1, **SMALL)
    parts = len(plan_parts(open_sources(file), 300))
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(file, make_tokenizer(), out, tasks=Shuffled(most=parts), **SMALL)
    pieces = sorted((out / "unfinished").glob("part-*-000.safetensors"))
    pieces[2].write_bytes(pieces[2].read_bytes()[:-1] + b"?")
    pieces[3].unlink()
    for piece in pieces[2:4]:
        with pytest.raises(InputError, match=rf"{piece.name} is damaged. Run the same command again"):
            prepare_corpus(file, make_tokenizer(), out, tasks=HereAndNow(), **SMALL)
        assert not piece.with_name(f"{piece.name.removesuffix('-000.safetensors')}.json").exists()
    shutil.copytree(out, tmp_path / "other")
    prepare_corpus(file, make_tokenizer(), out, tasks=HereAndNow(), **SMALL)
    assert content(out) == content(tmp_path / "whole")

    other = sorted((tmp_path / "other" / "unfinished").glob("part-*.json"))[0]
    marker = json.loads(other.read_text(encoding="utf-8"))
    marker["pieces"][0]["file"] = "../../stolen"
    other.write_text(json.dumps(marker), encoding="utf-8")
    with pytest.raises(InputError, match="'../../stolen' is not a name of a file inside a folder"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "other", tasks=HereAndNow(), **SMALL)

    file.write_text(file.read_text(encoding="utf-8").replace("cat", "dog"), encoding="utf-8")
    with pytest.raises(InputError, match="started from something else: other sources"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "other", tasks=HereAndNow(), **SMALL)


class Changing(HereAndNow):
    def __init__(self, file: Path) -> None:
        self.file = file

    def map(
        self, work: Callable[[PartsJob, Any], Any], job: PartsJob, items: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]:
        yield from super().map(work, job, items)
        with self.file.open("a") as stream:
            stream.write("more\n")


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    with pytest.raises(InputError, match="changed while"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", tasks=Changing(file), **SMALL)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_lines_of_errors_count_from_the_beginning(tmp_path: Path) -> None:
    lines = [f"Line {number}.\n" for number in range(2000)]
    (tmp_path / "a.txt").write_bytes("".join(lines).encode() + b"b\xe9d\n")
    with pytest.raises(InputError, match="a.txt, line 2001, byte 2 of the line"):
        prepare_corpus(tmp_path / "a.txt", make_tokenizer(), tmp_path / "out", tasks=HereAndNow(), **SMALL)


def test_two_at_once_and_nothing(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    for place in (str(tmp_path / "out"), "memory://locked"):
        with open_store(place).lock(), pytest.raises(InputError, match=f"Another process works on {place}"):
            prepare_corpus(file, make_tokenizer(), place, tasks=HereAndNow(), **SMALL)
        made = prepare_corpus(file, make_tokenizer(), f"{place}/new", tasks=HereAndNow(), **SMALL)
        with open_store(f"{place}/new").lock():  # what is finished is only read
            assert prepare_corpus(file, make_tokenizer(), f"{place}/new", tasks=HereAndNow(), **SMALL) == made
        with pytest.raises(InputError, match="other files, such as a.tex"):
            open_store(place).write_text("a.tex", "")
            prepare_corpus(file, make_tokenizer(), place, tasks=HereAndNow(), overwrite=True, **SMALL)
    (tmp_path / "b.txt").write_text("\n\n")
    for place in (str(tmp_path / "new" / "out"), "memory://new"):
        with pytest.raises(InputError, match="nothing to prepare"):
            prepare_corpus(tmp_path / "b.txt", make_tokenizer(), place, tasks=HereAndNow(), **SMALL)
        assert open_store(place).entries() == []
    assert not (tmp_path / "new").exists()


def test_an_object_store_is_for_clusters(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="memory://x is in an object store, where only a cluster writes"):
        prepare_corpus(write_corpus(tmp_path / "a.txt"), make_tokenizer(), "memory://x")
    with pytest.raises(InputError, match="There is no file memory://x/a.txt"):
        prepare_corpus("memory://x/a.txt", make_tokenizer(), tmp_path / "out")
