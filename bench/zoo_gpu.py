"""Carry folders to a machine that takes little at a time, and back: a tar file, cut, packed, in folders under a limit.

    python bench/zoo_gpu.py pack shards tasks --out .device-data/in --limit 50      # in-1, in-2, …: at most 50 MB each
    python bench/zoo_gpu.py unpack .device-data/in-* --out .device-data             # there, when all have come
    python bench/zoo_gpu.py pack run/model run/log.jsonl --out $OUT/mini --limit 60 --piece 14    # one folder back

Every 16 MiB of the tar file are packed alone (xz, by all cores), so a folder may come with any call, and what was
unpacked stays. A folder names its pieces with their hashes; `unpack` refuses what is missing or changed. docs/zoo.md,
"The same with a GPU", has the commands (bench/zoo_gpu.sh).
"""

import argparse
import hashlib
import json
import lzma
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

MANIFEST = "pieces.json"
MB = 1_000_000


def pack(paths: Sequence[Path], out: Path, limit: int, piece: int, workers: int | None = None) -> list[Path]:
    """Write OUT-1, OUT-2, …; each path is stored by its last name. The folders have `limit` bytes at most."""
    with TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for path in paths:
                tar.add(path, arcname=path.name)
        size = stream.tell()
        stream.seek(0)
        with ProcessPoolExecutor(workers) as pool:
            packed = pool.map(lzma.compress, _blocks(stream, piece))
            folders: list[tuple[Path, dict[str, str]]] = []
            room = 0
            for number, content in enumerate(packed):
                if len(content) > limit:
                    raise SystemExit(f"A piece has {len(content) / MB:.1f} MB: give a lower --piece.")
                if len(content) > room:
                    folder = out.with_name(f"{out.name}-{len(folders) + 1}")
                    folder.mkdir(parents=True)
                    folders.append((folder, {}))
                    room = limit
                room -= len(content)
                folder, names = folders[-1]
                name = f"{number:04d}.xz"
                (folder / name).write_bytes(content)
                names[name] = hashlib.sha256(content).hexdigest()
    count = sum(len(names) for _, names in folders)
    for folder, names in folders:
        (folder / MANIFEST).write_text(json.dumps({"bytes": size, "count": count, "pieces": names}) + "\n")
        print(f"{folder}: {len(names)} pieces, {sum(one.stat().st_size for one in folder.iterdir()) / MB:.1f} MB")
    return [folder for folder, _ in folders]


def _blocks(stream: IO[bytes], size: int) -> Iterator[bytes]:
    while block := stream.read(size):
        yield block


def unpack(folders: Sequence[Path], out: Path, workers: int | None = None) -> None:
    """Write the paths that were packed under `out`."""
    found: dict[str, Path] = {}
    size = count = 0
    for folder in folders:
        if not (folder / MANIFEST).is_file():
            raise SystemExit(f"{folder} has no {MANIFEST}: it was not packed here, or did not come whole.")
        manifest = json.loads((folder / MANIFEST).read_text())
        size, count = manifest["bytes"], manifest["count"]
        for name, expected in manifest["pieces"].items():
            path = folder / name
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
                raise SystemExit(f"{path} is missing or is not what was packed.")
            found[name] = path
    if len(found) != count:
        raise SystemExit(f"{len(found)} of {count} pieces are in these folders: name all of them.")
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryFile() as stream:
        with ProcessPoolExecutor(workers) as pool:
            for content in pool.map(_content, [found[name] for name in sorted(found)]):
                stream.write(content)
        if stream.tell() != size:
            raise SystemExit(f"{stream.tell():,} bytes came, {size:,} were packed: the folders are of different packs.")
        stream.seek(0)
        with tarfile.open(fileobj=stream) as tar:
            tar.extractall(out, filter="data")
            names = sorted({Path(name).parts[0] for name in tar.getnames()})
    print(f"{out}: {', '.join(names)}")


def _content(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pack", "unpack"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=50, help="MB of a folder")
    parser.add_argument("--piece", type=float, default=16, help="MiB of the tar file that are packed together")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if missing := [str(path) for path in given.paths if not path.exists()]:
        sys.exit(f"{', '.join(missing)}: not there.")
    if given.what == "pack":
        pack(given.paths, given.out, int(given.limit * MB), int(given.piece * (1 << 20)), given.workers)
    else:
        unpack(given.paths, given.out, given.workers)


if __name__ == "__main__":
    main()
