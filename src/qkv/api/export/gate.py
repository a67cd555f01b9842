"""Compare a quantised graph with the float32 network on held-out texts, before it is written.

Two figures: the cosine between the vectors of both, of the row that a head reads, or of the tokens; and, with labelled
examples, the score of the task, decoded by the same code as `qkv predict`. Texts are, in this order: the file that the
user gives, the development examples of the run, or texts of the package in the languages that the vocabulary knows.

Shapes: N tokens of a batch, R rows, D width, L outputs of the head.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.api.export.graph import ENDS, HIDDEN, IDS, LENGTHS, LOGITS, SEGMENTS, STARTS, ExportedNetwork
from qkv.api.export.int8 import describe_cpu
from qkv.config import merge, read_toml
from qkv.data.batch import Batch, plan_batches
from qkv.data.labelled.examples import Example
from qkv.data.labelled.reader import labelled
from qkv.data.pairs.groups import make_rows
from qkv.data.readers import stream_texts
from qkv.data.windows import Windowed
from qkv.errors import InputError
from qkv.jobs.finetune.data import check_data_unchanged, read_data, read_rows
from qkv.jobs.finetune.settings import FinetuneConfig
from qkv.models.family import Opened
from qkv.models.folders.hub import FOLDER
from qkv.tasks.predictor import Solver
from qkv.tasks.transfer import TaskModel
from qkv.text.tokenizer import Tokenizer
from qkv.text.unknown import count_unknown
from qkv.train.run_folder import CONFIG

_TOKENS_PER_BATCH = 4096
_MOST_ROWS = 512
"""Rows of which vectors are compared."""
MOST_EXAMPLES = 2000
"""Examples that are scored."""
FEWEST_SCORED = 100
"""Of fewer examples a score is shown and not held against the graph: one of them would be too many points."""
MOST_UNKNOWN = 0.2
"""Share of a text's tokens that a vocabulary may lack; a text of more says nothing about the model."""
FEWEST_TEXTS = 20
"""With fewer such texts of the package, all of them are taken."""
TEXTS_PER_FILE = 40
PACKAGE_TEXTS = ("news.en.test.csv", "news.zh.test.csv", "intents.en.csv", "intents.zh.csv")
PLAIN_SUFFIXES = (".txt", ".txt.gz", ".txt.xz")


def import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise InputError(
            "--int8 is measured with onnxruntime, which is not installed: pip install 'qkv[onnx]'."
        ) from None
    return onnxruntime


@dataclass(frozen=True)
class HeldOut:
    """Texts to compare on; `examples` have labels, where there is a task."""

    source: str
    texts: Sequence[str] = ()
    examples: Sequence[Example] = ()


class PackedSession:
    """A packed graph in onnxruntime."""

    def __init__(self, file: Path) -> None:
        runtime = import_onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        # threads that spin between batches would slow torch down, which runs in turns with them
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.outputs = [one.name for one in self.session.get_outputs()]

    def run(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        given = {IDS: batch.ids, SEGMENTS: batch.segments, LENGTHS: torch.diff(batch.offsets)}
        feed = {name: given[name].to(torch.int64).numpy() for name in self.inputs}
        return dict(zip(self.outputs, self.session.run(None, feed), strict=True))


class GraphModel(TaskModel):
    """The model of a task, whose scores come from a graph."""

    def __init__(self, model: TaskModel, session: PackedSession) -> None:
        super().__init__(model.network, model.head, None, model.pooling, model.normalize)
        self.extra = model.extra
        self.session = session

    def scores(self, batch: Batch) -> Tensor:
        found = self.session.run(batch)
        both = np.stack([found[STARTS], found[ENDS]], -1) if STARTS in found else found[LOGITS]
        return torch.from_numpy(both)


def find_held_out(opened: Opened, solver: Solver | None, check: Path | None) -> HeldOut:
    if check is not None:
        if not check.is_file():
            raise InputError(
                f"There is no file {check} to check int8 on. Give texts, or labelled examples of the task."
            )
        if solver is None or check.name.endswith(PLAIN_SUFFIXES):
            return HeldOut(str(check), texts=_some(stream_texts([check]), _MOST_ROWS))
        trained = opened.record.get("config", {}).get("data", {})
        source = labelled(check, solver.task.name, separator=trained.get("separator"))
        return HeldOut(str(check), examples=_some(map(solver.task.adapted, read_rows(source)), MOST_EXAMPLES))
    if solver is not None and (examples := _development_examples(opened)):
        return HeldOut("development examples of the run", examples=examples[:MOST_EXAMPLES])
    texts = [text for name in PACKAGE_TEXTS for text in _first_column(FOLDER / "examples" / name)[:TEXTS_PER_FILE]]
    known = [text for text in texts if _is_known(opened.tokenizer, text)]
    return HeldOut("texts of the package", texts=known if len(known) >= FEWEST_TEXTS else texts)


def _some(values: Iterable[Any], most: int) -> list[Any]:
    return list(islice(values, most))


def _first_column(file: Path) -> list[str]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [row[0] for row in list(csv.reader(lines))[1:]]


def _is_known(tokenizer: Tokenizer, text: str) -> bool:
    ids = tokenizer.encode_ids([text])[0]
    return bool(ids) and count_unknown(tokenizer, ids) <= MOST_UNKNOWN * len(ids)


def _development_examples(opened: Opened) -> Sequence[Example]:
    """What the run held out of its files; nothing where there is no run, or its files are gone or changed."""
    run = opened.path.parent
    if not (run / CONFIG).is_file():
        return ()
    try:
        config = merge(FinetuneConfig(), read_toml(run / CONFIG), str(run / CONFIG))
        check_data_unchanged(config.data)
        return read_data(config).dev.examples
    except InputError:
        return ()


def compare_graph(
    file: Path,
    exported: ExportedNetwork,
    tokenizer: Tokenizer,
    max_length: int,
    solver: Solver | None,
    held_out: HeldOut,
) -> dict[str, Any]:
    """The figures of a packed graph that has the vectors of tokens among its outputs (`hidden=True`)."""
    session = PackedSession(file)
    rows: Windowed
    if held_out.examples:
        assert solver is not None, "examples are of a task"
        rows = solver.features(held_out.examples[:_MOST_ROWS]).rows
    else:
        ids = [one for one in tokenizer.encode_ids(held_out.texts) if one]
        if not ids:
            raise InputError(f"{held_out.source}: no text has a token that the model knows. Give others with --check.")
        rows = make_rows(ids, tokenizer, max_length)
    figures = {
        "held_out": held_out.source,
        "n_texts": len(held_out.examples) or len(held_out.texts),
        **_cosines(session, exported, rows),
        "cpu": describe_cpu(),
        "onnxruntime": import_onnxruntime().__version__,
    }
    if held_out.examples and solver is not None:
        quantised = replace(solver, model=GraphModel(solver.model, session).eval())
        scores = {"float32": _score(solver, held_out.examples), "int8": _score(quantised, held_out.examples)}
        figures["score"] = {"name": solver.task.main, "n_examples": len(held_out.examples), **scores}
    return figures


def _score(solver: Solver, examples: Sequence[Example]) -> float:
    scorer = solver.task.scorer()
    for some, results in solver.stream(examples, needs_labels=True):
        scorer.add(some, results)
    return float(scorer.result(intervals=False).value)


@torch.inference_mode()
def _cosines(session: PackedSession, exported: ExportedNetwork, rows: Windowed) -> dict[str, float]:
    """Of rows: the vector that is pooled, or the mean over a row's tokens; and of tokens."""
    of_rows: list[float] = []
    of_tokens: list[NDArray[np.float64]] = []
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(np.int64))
    for part in plan_batches(rows.lengths[chosen], _TOKENS_PER_BATCH):
        batch = rows.collate(chosen[part])
        wanted = exported.network.encoder(**batch.inputs(), pool=False).hidden.double()
        found = torch.from_numpy(session.run(batch)[HIDDEN]).double()
        each = torch.cosine_similarity(wanted, found, dim=-1)  # (N,)
        of_tokens.append(each.numpy())
        for a, b, c in zip(batch.rows(wanted), batch.rows(found), batch.rows(each), strict=True):
            if exported.pooling is None:
                of_rows.append(float(c.mean()))
            else:
                first, second = (x.mean(0) if exported.pooling == "mean" else x[0] for x in (a, b))
                of_rows.append(float(torch.cosine_similarity(first, second, dim=0)))
    tokens = np.concatenate(of_tokens)
    return {
        "least_cosine": min(of_rows),
        "mean_cosine": float(np.mean(of_rows)),
        "least_token_cosine": float(tokens.min()),
        "mean_token_cosine": float(tokens.mean()),
    }


def check_figures(figures: dict[str, Any], least_cosine: float, most_loss: float) -> None:
    """Refuse figures below the limits."""
    where, score = figures["held_out"], figures.get("score")
    lost = 0.0 if score is None or score["n_examples"] < FEWEST_SCORED else score["float32"] - score["int8"]
    if not figures["least_cosine"] >= least_cosine:
        raise InputError(
            f"int8 is refused and nothing was written: on {where} the least cosine with float32 is "
            f"{figures['least_cosine']:.4f} (mean {figures['mean_cosine']:.4f}), and at least {least_cosine} is asked "
            "for. Export without --int8, or accept less with --least-cosine."
        )
    if score is not None and not lost <= most_loss:
        raise InputError(
            f"int8 is refused and nothing was written: on {where} {score['name']} falls from {score['float32']:.4f} to "
            f"{score['int8']:.4f}, and a loss of {most_loss} is accepted. Export without --int8, or accept more with "
            "--most-loss."
        )
