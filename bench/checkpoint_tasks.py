"""The labelled sets that a checkpoint is fine-tuned on: where they come from, how they are scored, how long is learned.

    python bench/checkpoint_tasks.py ../shared/data .device-data/tasks      # the files of all sets, packed with xz

Every file is copied as it is, but for held-out texts of ChnSentiCorp that also stand in its training file: they are
left out. What was written, and how much was left out, stands in OUT/manifest.json.

Where the settings come from: rates and batches are from the lists that Turc et al. (2019) searched for small BERTs, the
highest rate for tags and answers; of each kind, a larger set is read fewer times. For narrow models they were written
down before there was one to score, and have not been changed since. Wider models have the rates of finetune_scores.py
where it knows the set, and it looks at MRPC's test part: there, the rate may owe something to the test. MRPC and MSRA
have no dev part, so whoever wants other values must choose them by examples held out of train.

What this file does NOT do: fine-tune. `checkpoint_scores.py` does.
"""

import hashlib
import json
import lzma
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from qkv.data.labelled.examples import fold_text
from qkv.data.labelled.reader import labelled


@dataclass(frozen=True)
class Task:
    """One set. Learning rates are those of a model of width 256 or less, and of a wider one."""

    kind: str  # the task of qkv
    ending: str
    train: str  # in the data folder
    scored: dict[str, str]  # part → file in the data folder; one or two, in the order they are shown
    figures: tuple[str, ...]
    lr: float
    lr_wider: float
    epochs: float
    batch: int  # texts, or windows of passages, a step
    max_length: int
    seconds: float  # of a run beside others on an H200, roughly: what is started first, and what still fits
    leaks_removed: bool = False

    def file(self, folder: Path, name: str, part: str) -> Path:
        return folder / name / f"{part}{self.ending}.xz"


# Short texts leave a GPU waiting for the next launch, so they come in larger steps.
TASKS = {
    "squad": Task(
        kind="answer",
        ending=".json",
        train="squad_v1.1/train-v1.1.json.xz",
        scored={"dev": "squad_v1.1/dev-v1.1.json.xz"},
        figures=("f1", "em"),
        lr=3e-4,
        lr_wider=1e-4,
        epochs=2,
        batch=48,
        max_length=384,
        seconds=120,
    ),
    "cmrc2018": Task(
        kind="answer",
        ending=".json",
        train="cmrc2018/train.json.xz",
        scored={"dev": "cmrc2018/dev.json.xz"},
        figures=("f1", "em"),
        lr=3e-4,
        lr_wider=1e-4,
        epochs=3,
        batch=32,
        max_length=384,
        seconds=60,
    ),
    "sst2": Task(
        kind="classify",
        ending=".tsv",
        train="sst2/train.tsv",
        scored={"dev": "sst2/dev.tsv"},
        figures=("accuracy",),
        lr=1e-4,
        lr_wider=5e-5,
        epochs=3,
        batch=64,
        max_length=128,
        seconds=60,
    ),
    "msra_ner": Task(
        kind="tag",
        ending=".bio",
        train="msra_ner/train.bio.xz",
        scored={"test": "msra_ner/test.bio.xz"},
        figures=("f1",),
        lr=3e-4,
        lr_wider=1e-4,
        epochs=4,
        batch=64,
        max_length=256,
        seconds=50,
    ),
    "conll2003": Task(
        kind="tag",
        ending=".conll",
        train="conll2003/eng.train",
        scored={"testa": "conll2003/eng.testa", "testb": "conll2003/eng.testb"},
        figures=("f1",),
        lr=3e-4,
        lr_wider=1e-4,
        epochs=5,
        batch=32,
        max_length=256,
        seconds=45,
    ),
    "afqmc": Task(
        kind="classify",
        ending=".txt",
        train="afqmc/train.txt",
        scored={"dev": "afqmc/dev.txt"},
        figures=("accuracy",),
        lr=1e-4,
        lr_wider=5e-5,
        epochs=3,
        batch=64,
        max_length=128,
        seconds=35,
    ),
    "chnsenticorp": Task(
        kind="classify",
        ending=".tsv",
        train="chnsenticorp/train.tsv",
        scored={"dev": "chnsenticorp/dev.tsv", "test": "chnsenticorp/test.tsv"},
        figures=("accuracy",),
        lr=1e-4,
        lr_wider=5e-5,
        epochs=4,
        batch=32,
        max_length=256,
        seconds=30,
        leaks_removed=True,
    ),
    "mrpc": Task(
        kind="classify",
        ending=".txt",
        train="mrpc/msr_paraphrase_train.txt",
        scored={"test": "mrpc/msr_paraphrase_test.txt"},
        figures=("accuracy", "f1 of 1"),
        lr=1e-4,
        lr_wider=1e-4,
        epochs=5,
        batch=32,
        max_length=128,
        seconds=15,
    ),
}


def pack(data: Path, out: Path) -> dict[str, Any]:
    """All sets from `data` into `out`; returns, and writes, what became of each file."""
    manifest: dict[str, Any] = {}
    for name, task in TASKS.items():
        learned = (
            {fold_text(one.text) for one in labelled(data / task.train, task.kind)} if task.leaks_removed else set()
        )
        for part, source in {"train": task.train, **task.scored}.items():
            text = unpacked(data / source)
            dropped: set[int] = set()
            if part != "train" and learned:
                dropped = {
                    one.place.line for one in labelled(data / source, task.kind) if fold_text(one.text) in learned
                }
                text = b"".join(line for number, line in enumerate(BytesIO(text), 1) if number not in dropped)
            file = task.file(out, name, part)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(lzma.compress(text, preset=9))
            manifest[f"{name}/{file.name}"] = {
                "source": source,
                "examples": sum(1 for _ in labelled(file, task.kind)),
                "left_out": len(dropped),  # they stand in the training file
                "sha256": hashlib.sha256(text).hexdigest(),  # of the text
            }
            print(f"{file}: {manifest[f'{name}/{file.name}']}", flush=True)
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def unpacked(file: Path) -> bytes:
    return lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        pack(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        print("The sets of checkpoint_scores.py. To pack their files: checkpoint_tasks.py DATA OUT.")
