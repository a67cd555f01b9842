"""Preparing a corpus: the same bytes however it is done, killed and restarted included; and every refusal."""

import errno
import gzip
import json
import lzma
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qkv.data.corpus import prepare as preparing
from qkv.data.corpus import shards
from qkv.data.corpus.prepare import PrepareProgress, prepare_corpus
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import SPECIAL
from tests.support.corpora import documents, noisy, write_corpus
from tests.support.folders import make_tokenizer

SMALL: dict[str, Any] = {"hold_out": 0.1, "block_bytes": 300, "shard_tokens": 200}


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_what_is_left_behind(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    seen: list[PrepareProgress] = []
    manifest = prepare_corpus(file, make_tokenizer(), tmp_path / "out", progress=seen.append, **SMALL)
    files = content(tmp_path / "out")
    assert {name for name in files if "/" not in name and "-" not in name} == {
        "manifest.json", "sample.txt", "token_counts.safetensors"
    }  # fmt: skip
    assert json.loads(files["manifest.json"]) == manifest
    assert len([name for name in files if name.startswith("shard-")]) == len(manifest["train"]["shards"]) > 3
    assert {"tokenizer/tokenizer.json", "tokenizer/vocab.txt"} <= files.keys()
    totals = manifest["totals"]
    assert totals["documents"] == 39 == manifest["train"]["documents"] + manifest["valid"]["documents"]
    assert totals["bytes"] == file.stat().st_size
    assert totals["words"] < totals["tokens"] < totals["characters"]
    assert manifest["languages"]["zh"] > 0.2 and manifest["languages"]["en"] > 0.2
    assert manifest["settings"]["segmenter"].startswith("rjieba ")
    assert [one.share for one in seen] == sorted(one.share for one in seen) and seen[-1].share == 1.0
    assert seen[-1].tokens == totals["tokens"] and seen[-1].documents == 39 and seen[-1].bytes == totals["bytes"]


def test_the_sample_is_for_people(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("中国的首都是北京。Unhappyness!\nThe cats\n\n爱", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "dogs"}', encoding="utf-8")
    prepare_corpus([tmp_path / "a.txt", tmp_path / "b.jsonl"], make_tokenizer(), tmp_path / "out")
    assert (tmp_path / "out" / "sample.txt").read_text(encoding="utf-8").split("\n")[1:] == [
        "",
        "# a.txt",
        "",
        "中国的首都是北京。",
        "    | 中 国 | 的 | 首 都 | 是 | 北 京 | 。",
        "Unhappyness!",
        "    | un ##happy ##ness | !",
        "The cats",
        "    | the | cat ##s",
        "",
        "爱",
        "    | 爱",
        "",
        "# b.jsonl",
        "",
        "dogs",
        "    | dog ##s",
        "",
        "",
    ]


def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    files = [write_corpus(tmp_path / "a.txt"), write_corpus(tmp_path / "b.txt", 30, seed=1)]
    for workers in (1, 2, 3):
        prepare_corpus(files, make_tokenizer(), tmp_path / str(workers), workers=workers, **SMALL)
    assert content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "3")


def test_the_same_tokens_from_any_kind_of_file(tmp_path: Path) -> None:
    texts = documents(40)
    plain = "\r\n\r\n".join(text.replace("\n", "\r\n") for text in texts).encode()
    rows = "\n".join(json.dumps({"body": text}, ensure_ascii=number % 2 == 0) for number, text in enumerate(texts))
    for name, data in {
        "a.txt": plain,
        "a.txt.gz": gzip.compress(plain),
        "a.txt.xz": lzma.compress(plain),
        "a.jsonl": rows.encode(),
        "a.jsonl.gz": gzip.compress(rows.encode()),
    }.items():
        (tmp_path / name).write_bytes(data)
        prepare_corpus(tmp_path / name, make_tokenizer(), tmp_path / f"out-{name}", field="body", hold_out=0.1)
    expected = {name: data for name, data in content(tmp_path / "out-a.txt").items() if name.endswith("safetensors")}
    for name in ("a.txt.gz", "a.txt.xz", "a.jsonl", "a.jsonl.gz"):
        found = content(tmp_path / f"out-{name}")
        assert {name: data for name, data in found.items() if name.endswith("safetensors")} == expected


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_corpus(tmp_path / "a.txt")
    manifest = prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL)
    monkeypatch.setattr(preparing, "map_blocks", None)
    os.utime(file)
    assert prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL) == manifest
    (tmp_path / "out" / "shard-00000.safetensors").unlink()
    with pytest.raises(InputError, match="shard-00000.safetensors is missing"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL)


class Stop(BaseException):
    """As Ctrl-C would."""


def stopped(file: Path, out: Path, after: int, **changes: Any) -> None:
    """A preparation that ends after some blocks."""
    left = after

    def count(progress: PrepareProgress) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stop

    with pytest.raises(Stop):
        prepare_corpus(file, make_tokenizer(), out, progress=count, **SMALL | changes)


def test_a_stopped_run_goes_on_after_its_last_shard(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    prepare_corpus(file, make_tokenizer(), tmp_path / "whole", **SMALL)
    out = tmp_path / "out"
    for after in (1, 4, 9):
        stopped(file, out, after, workers=1 + after % 2)
        assert not (out / "manifest.json").exists()
    with pytest.raises(InputError, match="is not finished"):
        Shards.open(out)
    before = {name: (out / name).stat().st_mtime_ns for name in content(out) if name.startswith("shard-")}
    assert before
    (out / ".shard-00009.safetensors.abcd.part").write_bytes(b"half")  # what kill -9 leaves
    blocks = 0

    def count(progress: PrepareProgress) -> None:
        nonlocal blocks
        blocks += 1

    prepare_corpus(file, make_tokenizer(), out, progress=count, **SMALL)
    assert content(out) == content(tmp_path / "whole")
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before, "finished shards are not written again"
    assert blocks < file.stat().st_size / 300


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hold_out": 0.2}, "hold_out"),
        ({"shard_tokens": 100}, "shard_tokens"),
        ({"segmenter": "none"}, "segmenter"),
        ({"file": "other"}, "sources"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_are_refused_unless_they_may_overwrite(
    tmp_path: Path, change: dict[str, Any], named: str, finished: bool
) -> None:
    file = write_corpus(tmp_path / "a.txt")
    if finished:
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL)
    else:
        stopped(file, tmp_path / "out", 5)
    if "file" in change:
        write_corpus(file, 30, seed=5)
        change = {}
    before = content(tmp_path / "out")
    with pytest.raises(InputError, match=f"{'prepared' if finished else 'started'} from .* else: other {named}. "):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL | change)
    assert content(tmp_path / "out") == before
    prepare_corpus(file, make_tokenizer(), tmp_path / "out", overwrite=True, **SMALL | change)
    prepare_corpus(file, make_tokenizer(), tmp_path / "new", **SMALL | change)
    assert content(tmp_path / "out") == content(tmp_path / "new")


def test_a_file_that_changed_in_between_is_noticed(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    stopped(file, tmp_path / "out", 5)
    os.utime(file, ns=(1, 1))
    with pytest.raises(InputError, match="started from something else: other sources"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL)


def test_a_run_that_got_nowhere_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Fine.\n\nb\xe9d\n")
    with pytest.raises(InputError, match="line 3, byte 2"):
        prepare_corpus(tmp_path / "a.txt", make_tokenizer(), tmp_path / "out")
    (tmp_path / "a.txt").write_text("Fine.\n\nmended\n")
    assert prepare_corpus(tmp_path / "a.txt", make_tokenizer(), tmp_path / "out")["totals"]["documents"] == 2


@pytest.mark.parametrize("text", ["", "\n \n\u3000\n", "\u200b\n\n\x00"])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_a_corpus_of_nothing(tmp_path: Path, text: str, kind: str) -> None:
    data = text if kind == "txt" else "\n\n".join(json.dumps({"text": part}) for part in text.split("\n\n"))
    (tmp_path / f"a.{kind}").write_text(data, encoding="utf-8")
    with pytest.raises(InputError, match=f"no text in .*a.{kind}: nothing to prepare"):
        prepare_corpus(tmp_path / f"a.{kind}", make_tokenizer(), tmp_path / "new" / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == [f"a.{kind}"], "nothing is left of the attempt"
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="nothing to prepare"):
        prepare_corpus(tmp_path / f"a.{kind}", make_tokenizer(), tmp_path / "out")
    assert (tmp_path / "out").is_dir() and content(tmp_path / "out") == {}, "it was there before"


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("")
    with pytest.raises(InputError, match=r"thesis already holds other files, such as chapter1.tex"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "thesis", overwrite=True)
    with pytest.raises(InputError, match="a.txt is a file"):
        prepare_corpus(file, make_tokenizer(), file)
    with pytest.raises(InputError, match="out cannot be written: Not a directory"):
        prepare_corpus(file, make_tokenizer(), file / "out")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        prepare_corpus(file, make_tokenizer(), tmp_path / "out")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_corpus(tmp_path / "a.txt")
    prepare_corpus(file, make_tokenizer(), tmp_path / "whole", **SMALL)

    def full(path: Path, mode: str) -> Any:
        if "shard-00002" in str(path):
            path.write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "open", full, raising=False)
        with pytest.raises(InputError, match="shard-00002.safetensors cannot be written: No space left on device"):
            prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL)
    left = content(tmp_path / "out").keys()
    assert not [name for name in left if ".part" in name or "00002" in name] and "shard-00001.safetensors" in left
    prepare_corpus(file, make_tokenizer(), tmp_path / "out", **SMALL)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_bad_arguments(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "a.txt")
    for arguments, message in (
        ({"workers": 0}, "workers is 0"),
        ({"hold_out": 0.9}, "hold_out is 0.9"),
        ({"shard_tokens": 0}, "at least 1"),
        ({"segmenter": "jieba"}, "Did you mean 'rjieba'"),
        ({"segmenter": lambda text: [text], "workers": 2}, "cannot be imported by other processes"),
    ):
        with pytest.raises(InputError, match=message):
            prepare_corpus(file, make_tokenizer(), tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()
    chinese = Tokenizer.from_vocabulary([*SPECIAL, "北京"], "word", segmenter="rjieba")
    for other in ("none", noisy):
        with pytest.raises(InputError, match="already segments Chinese words with rjieba"):
            prepare_corpus(file, chinese, tmp_path / "out", segmenter=other)
    with pytest.raises(InputError, match="no files were given"):
        prepare_corpus([], make_tokenizer(), tmp_path / "out")


def test_chinese_without_a_segmenter_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_corpus(tmp_path / "a.txt")
    monkeypatch.setattr(preparing, "is_installed", lambda name: False)
    manifest = prepare_corpus(file, make_tokenizer(), tmp_path / "out")
    assert manifest["settings"]["segmenter"] == "none"
    assert "each 汉字 counts as a word" in manifest["notes"][0]
    own = prepare_corpus(file, make_tokenizer(), tmp_path / "own", segmenter=noisy, workers=2)
    assert own["settings"]["segmenter"] == "tests.support.corpora.noisy" and own["notes"] == []
    assert own["totals"] == manifest["totals"]


KILLED = """
import sys
from qkv.data.corpus.prepare import prepare_corpus as prepare
from qkv.text.tokenizer import Tokenizer
file, tokenizer, out, workers = sys.argv[1:]
prepare(file, Tokenizer.load(tokenizer), out, workers=int(workers), segmenter="none", hold_out=0.1, block_bytes=300,
        shard_tokens=200, progress=lambda _: print("block", flush=True))
"""


def survives_kills(tmp_path: Path, kills: int) -> None:
    """kill -9 after some block and some moment more, each time into the folder that the one before left."""
    file, draw = write_corpus(tmp_path / "a.txt", 150), random.Random(kills)
    make_tokenizer().save(tmp_path / "tokenizer")
    prepare_corpus(file, make_tokenizer(), tmp_path / "whole", segmenter="none", **SMALL)
    for kill in range(kills):
        paths = (str(file), str(tmp_path / "tokenizer"), str(tmp_path / "out"))
        command = [sys.executable, "-c", KILLED, *paths, str(1 + kill % 2)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(draw.randint(1, 12)):
                process.stdout.readline()
            try:
                process.wait(draw.random() * 0.01)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
    prepare_corpus(file, make_tokenizer(), tmp_path / "out", segmenter="none", **SMALL)
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_kill_9(tmp_path: Path) -> None:
    survives_kills(tmp_path, 3)


@pytest.mark.slow
def test_kill_9_at_twenty_moments(tmp_path: Path) -> None:
    survives_kills(tmp_path, 20)
