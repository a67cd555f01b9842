"""Writes models/ and begun/: folders of models and runs that were stopped, as the code of their day wrote them.

    python -m tests.golden.make

They stand for what users have on their disks. Newer code has to open the models and to go on with the runs, so they
are not written anew when code changes, but only where a format changes on purpose.
"""

import shutil
import signal
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.golden.golden import BEGUN, MODELS, run_qkv
from tests.golden.material import JOBS, NEEDS, write_material

KEPT = (
    *("bert", "gpt", "elmo", "rnnlm", "nnlm", "word2vec", "classify", "tag", "answer", "choice", "crf", "cnn", "rnn"),
    *("transformer", "seq2seq"),
)
STOPPED = ("bert", "gpt", "elmo", "rnnlm", "word2vec", "classify", "tag", "transformer")
PLACE = "@HERE@"
"""Stands for the folder that begun/ lies in, in the files of its runs."""
WORDS = (".toml", ".json", ".jsonl")


def make(name: str, folder: Path) -> Path:
    """The folder of a job, and first those that it needs."""
    for needed in NEEDS.get(name, ()):
        make(needed, folder)
    if not (folder / name).exists():
        answer = run_qkv(JOBS[name], folder)
        assert answer.code == 0, answer.err
        if (folder / name / "model").exists():
            rewrite(folder / name / "model", str(folder), "/home/user")  # before its files are hashed by another job
    return folder / name


def begin(name: str, folder: Path, run: Path) -> None:
    """The job as another run, stopped by Ctrl-C when it has written something down."""
    stopped = False

    def stop() -> None:
        nonlocal stopped
        saved = list((run / "checkpoints").glob("step-*")) if not JOBS[name].startswith("finetune") else _lines(run)
        if saved and not stopped:
            stopped = True
            signal.raise_signal(signal.SIGINT)

    line = JOBS[name].replace(f"--out {name}", f"--out {run.relative_to(folder)}")
    answer = run_qkv(line, folder, stop)
    assert stopped and answer.code == 130, (answer.code, answer.err)
    assert list((run / "checkpoints").glob("step-*")) and not (run / "model").exists()


def _lines(run: Path) -> list[str]:
    log = run / "log.jsonl"
    return log.read_text(encoding="utf-8").splitlines()[3:] if log.exists() else []


def rewrite(folder: Path, old: str, new: str) -> None:
    """One place for another in all files with words."""
    for file in folder.rglob("*"):
        if file.suffix in WORDS and file.is_file():
            text = file.read_text(encoding="utf-8")
            if old in text:
                file.write_text(text.replace(old, new), encoding="utf-8", newline="\n")


def draw_weights(file: Path) -> None:
    """Larger ones than a few steps of training give, so that no two parts of a network can be mistaken."""
    draw = torch.Generator().manual_seed(7)
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    for name, tensor in sorted(tensors.items()):
        if tensor.is_floating_point():
            is_norm = tensor.dim() == 1 and "norm" in name.lower() and name.endswith("weight")
            tensors[name] = torch.randn(tensor.shape, generator=draw) * (0.2 if is_norm else 0.7) + is_norm
    save_file(tensors, file, metadata)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        write_material(folder)
        for target in (MODELS, BEGUN):
            shutil.rmtree(target, ignore_errors=True)
        for name in KEPT:
            shutil.copytree(make(name, folder) / "model", MODELS / name)
            draw_weights(MODELS / name / "model.safetensors")
            print(name, file=sys.stderr)
        (folder / "runs").mkdir()
        for name in STOPPED:
            begin(name, folder, folder / "runs" / name)
            (folder / "runs" / name / "report.html").unlink(missing_ok=True)  # written anew at the end
            for older in sorted((folder / "runs" / name / "checkpoints").iterdir())[:-1]:
                shutil.rmtree(older)
            print(f"{name}, stopped", file=sys.stderr)
        for name in ("runs", "shards", "word-shards", "bert/model"):
            shutil.copytree(folder / name, BEGUN / name)
        for name in ("texts.csv", "tags.jsonl", "pairs.txt", "dev.txt", "test.txt"):
            shutil.copy(folder / name, BEGUN / name)
        rewrite(BEGUN, str(folder), PLACE)


if __name__ == "__main__":
    main()
