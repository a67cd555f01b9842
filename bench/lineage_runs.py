"""One fine-tuning of bench/lineage.py: a system, a set, a seed; with what came of every single test example.

A Transformer is fine-tuned whole, with the rates that checkpoint_tasks.py had for small ones before any was scored; WiC
does not stand there, and has the rate of the other classifications. Vectors of words are read by one bidirectional
LSTM, as they were in their time: those of word2vec move along, ELMo is frozen and its layers are mixed (Peters et al.
2018), both at qkv's own rate for such readers and with their dropout; of a Transformer nothing is dropped out, as in
its training. Examples, epochs, texts a step and windows are the same for all. Scores are those of the last step:
nothing is chosen by what is scored. What GPT's loss of the next word counts beside the task's is chosen, by
lineage_choice.py, on examples held out of a training file.
"""

import lzma
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from checkpoint_tasks import TASKS, Task
from probe_data import read_pairs

from qkv.data.labelled.examples import AnswerExample, TagExample
from qkv.jobs.finetune.data import LabelledData, read_data
from qkv.jobs.finetune.settings import resolve_finetune_settings, start_model
from qkv.jobs.finetune.training import DevEvaluation, Prepared, build_trainer, prepare_examples, resolve_data_defaults
from qkv.metrics.spans import SCORERS
from qkv.report.run_log import read_run
from qkv.tasks.answer import accepted_texts
from qkv.tasks.predictor import Solver
from qkv.train.device import device_named
from qkv.train.log import Silent

LONGEST = 256  # tokens of a window; no more were seen in training
MOST = 30_000  # examples that are learned from, drawn from a larger file: the same for every system
READERS = ("word2vec", "elmo")  # systems that a reader is put on
RATE, READER_WIDTH = 1e-3, 256
HELD_OUT = 0.1  # of a training file, where something is chosen; qkv takes 5,000 at most

WIC = Task(  # its settings are ours: those of sst2, more epochs of a small file
    kind="classify",
    ending=".tsv",
    train="wic",
    scored={"test": "wic"},
    figures=("accuracy",),
    lr=TASKS["sst2"].lr,
    lr_wider=TASKS["sst2"].lr_wider,
    epochs=5,
    batch=32,
    max_length=128,
    seconds=20,
)
CHOSEN = ("sst2", "conll2003", "squad", "chnsenticorp", "msra_ner")
SETS: dict[str, Task] = {
    name: replace(TASKS[name], max_length=min(TASKS[name].max_length, LONGEST)) for name in CHOSEN
} | {"wic": WIC}
STATISTICS = {"classify": ("right", "1"), "tag": ("right", "answered", "expected"), "answer": ("f1", "exact", "1")}
"""What is kept of every example, by the kind of task."""


def scored_part(name: str) -> str:
    """The part that counts: the last one, which is a test part where there is one."""
    return list(SETS[name].scored)[-1]


@dataclass(frozen=True)
class Run:
    task: str
    system: str
    folder: str
    seed: int
    device: str
    data: str  # what `pack` wrote
    most: int = MOST  # examples to learn from
    scored: int | None = None  # examples to be scored; None: all
    epochs: float | None = None  # None: the set's own
    weights: str = ""  # of the folder's files: what tells one training from another
    language_model_weight: float | None = None  # of GPT
    part: str = "finetune"  # or "choose": scored by a tenth of the training file

    @property
    def key(self) -> dict[str, Any]:
        """What must be the same for a run to be the same; where the folder lies, and on which machine, is not."""
        own = {name: getattr(self, name) for name in ("part", "task", "system", "seed", "weights")}
        named = ("most", "scored", "epochs", "language_model_weight")
        return own | {"settings": {name: getattr(self, name) for name in named}}

    def __str__(self) -> str:
        weight = "" if self.language_model_weight is None else f" {self.language_model_weight:g}"
        return f"{self.part} {self.task} {self.system}{weight} {self.seed}"


def pack_wic(data: Path, out: Path) -> None:
    """WiC as pairs of sentences, the word in front of the first: every system can read that."""
    for part in ("train", "test"):
        lines = ["text\tpair\tlabel"]
        for pair in read_pairs(data / "wic", part):
            lines.append(f"{pair.word} : {' '.join(pair.first)}\t{' '.join(pair.second)}\t{'T' if pair.same else 'F'}")
        file = WIC.file(out, "wic", part)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode(), preset=9))


def model_flags(system: str, folder: str) -> tuple[str, dict[str, Any]]:
    if system in READERS:
        return "scratch:lstm", {"embeddings": folder, "reader.inner_width": READER_WIDTH}
    return folder, {}


def rate_of(task: Task, system: str) -> float:
    return RATE if system in READERS else task.lr


def made_ready(run: Run) -> Prepared:
    """What the verb `qkv finetune` does before it trains."""
    task = SETS[run.task]
    model, flags = model_flags(run.system, run.folder)
    files = {"data.train": "train"}
    if run.part == "finetune":
        files["data.dev"] = scored_part(run.task)
    else:
        flags["data.dev_share"] = HELD_OUT
    flags |= {key: str(task.file(Path(run.data), run.task, part)) for key, part in files.items()}
    flags |= {
        "device": run.device,
        "epochs": run.epochs or task.epochs,
        "evaluations": 1,  # and so one checkpoint
        "texts_per_step": task.batch,
        "max_length": task.max_length,
        "train.patience": "none",
        "train.threads": 1,
        "train.lr": rate_of(task, run.system),
        "train.seed": run.seed,
    }
    if run.language_model_weight is not None:
        flags["language_model_weight"] = run.language_model_weight
    config, folder = start_model(resolve_finetune_settings(task.kind, model, flags=flags), Silent().message)
    prepared = prepare_examples(config, folder, _fewer(read_data(config), run), Silent().message)
    return replace(prepared, config=resolve_data_defaults(prepared, Silent().message))


def _fewer(data: LabelledData, run: Run) -> LabelledData:
    """Drawn alike for every system and seed."""
    train = replace(data.train, examples=_some(data.train.examples, run.most))
    return replace(data, train=train, dev=replace(data.dev, examples=_some(data.dev.examples, run.scored)))


def _some(examples: tuple[Any, ...], most: int | None) -> tuple[Any, ...]:
    if most is None or len(examples) <= most:
        return examples
    chosen = sorted(Random(0).sample(range(len(examples)), most))
    return tuple(examples[place] for place in chosen)


def fine_tuned(run: Run) -> dict[str, Any]:
    """In a process of its own; a failure is a result too, so that it takes no other run with it."""
    told, begin = dict(run.key), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="qkv-lineage-") as folder:
        try:
            told |= _fine_tuned(run, Path(folder))
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
    if run.device.startswith("cuda"):
        torch.cuda.empty_cache()  # what this process does not need now, another does
    return told | {"whole_seconds": round(time.perf_counter() - begin, 1)}


def _fine_tuned(run: Run, out: Path) -> dict[str, Any]:
    prepared = made_ready(run)
    trainer = build_trainer(prepared, 0, out, device_named(run.device), Silent())
    assert isinstance(trainer.job.evaluate, DevEvaluation)
    solver = trainer.job.evaluate.solver
    trainer.job = replace(trainer.job, evaluate=None, best_by=None)  # what is scored chooses nothing
    outcome = trainer.run()
    solver.model.eval()
    examples = prepared.data.dev.examples
    scores = solver.scores(prepared.dev)
    results = solver.task.decode(prepared.dev, scores, solver.model.extra_arrays(), solver.calibration)
    scorer = solver.task.scorer()
    scorer.add(examples, results)
    single = {
        "scored": scored_part(run.task),
        "statistics": [statistics_of(example, result) for example, result in zip(examples, results, strict=True)],
        "groups": groups_of(examples),
    }
    return {
        **(single if run.part == "finetune" else {}),
        "scores": scorer.result(intervals=False).values,
        "examples": {"train": len(prepared.data.train.examples), "scored": len(examples)},
        "steps": outcome.step,
        "seconds": round(sum(line["seconds"] for line in read_run(out).timing), 1),  # of training
        "lr": prepared.config.train.lr,
        "epochs": prepared.config.epochs,
        "transfer": prepared.config.transfer,
        "dropout": prepared.opened.config.dropout,  # its own, since none was asked for
        "parameters": sum(parameter.numel() for parameter in solver.model.parameters()),
        "moving": sum(parameter.numel() for parameter in solver.model.parameters() if parameter.requires_grad),
    }


def statistics_of(example: Any, result: Any) -> list[float]:
    """As STATISTICS names them."""
    if isinstance(example, TagExample):
        wanted = {tuple(span) for span in example.spans or ()}
        said = {tuple(span) for span in result.spans}
        return [len(wanted & said), len(said), len(wanted)]
    if isinstance(example, AnswerExample):
        exact, f1 = SCORERS["squad"]
        accepted = accepted_texts(example)
        right = exact(result.text, accepted)
        return [round(1.0 if right == 1.0 else f1(result.text, accepted), 4), round(right), 1]
    return [int(example.label == result.label), 1]


def groups_of(examples: Sequence[Any]) -> list[int] | None:
    """Which questions are about one passage; None where examples stand for themselves."""
    if not isinstance(examples[0], AnswerExample):
        return None
    numbers: dict[str, int] = {}
    return [numbers.setdefault(example.text, len(numbers)) for example in examples]


def latency(run: Run, texts: int = 64, rounds: int = 5) -> dict[str, Any]:
    """How long a fine-tuned classifier of this shape takes for a text at a time, and for many together; how large it
    is. Weights do not matter for that, so none are trained."""
    prepared = made_ready(replace(run, most=texts, scored=texts))
    device = device_named(run.device)
    with tempfile.TemporaryDirectory(prefix="qkv-lineage-") as folder:
        trainer = build_trainer(prepared, 0, Path(folder), device, Silent())
        assert isinstance(trainer.job.evaluate, DevEvaluation)
        solver = trainer.job.evaluate.solver
        solver.model.eval()
        examples = prepared.data.dev.examples
        one = [_seconds(solver, [example], device) for _ in range(rounds) for example in examples[:16]]
        many = [_seconds(solver, examples, device) for _ in range(rounds)]
    return {
        "part": "latency",
        "task": run.task,
        "system": run.system,
        "weights": run.weights,
        "device": run.device,
        "threads": torch.get_num_threads(),
        "milliseconds": round(1000 * statistics.median(one), 3),  # a text by itself, tokens and all
        "texts_per_second": round(len(examples) / statistics.median(many), 1),
        "parameters": sum(parameter.numel() for parameter in solver.model.parameters()),
    }


def _seconds(solver: Solver, examples: Sequence[Any], device: torch.device) -> float:
    begin = time.perf_counter()
    solver.answers(examples)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
