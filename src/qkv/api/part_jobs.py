"""What `qkv predict`, `embed` and `translate` do with a part of their input: open the model, and write the results as
the verb does by itself (predict.py, embed_files.py, translator.py).

A job is pickled to whoever does it, with no model in it. The model is opened there from its name: a folder that all
machines see, a model of the package, or hf:owner/name; its files must be those that the command saw.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.api.embed_files import embed_rows, is_table, open_rows
from qkv.api.model import Model, load, load_for
from qkv.api.parts import PartAnswerer, hash_model
from qkv.api.precision import MEASURED, measure_vectors, watch_results
from qkv.api.predict import Inputs, ResultWriter, remembered_columns
from qkv.api.table_files import PartLayout, format_cell, table_file
from qkv.api.translator import Translator, keep_foreign, load_translator, open_texts, resolve_decoding
from qkv.data.labelled.examples import UnlabelledInput
from qkv.data.labelled.reader import Labelled, Row, labelled
from qkv.errors import InputError
from qkv.models.family import ENCODES, HAS_TASK, TRANSLATES
from qkv.models.folders.hub import HUB, MODELS, foreign_language, locate
from qkv.models.table import describe_model
from qkv.search.options import GenerateConfig
from qkv.tasks.table import detect_task
from qkv.text.unknown import UnknownCounter, UnknownFacts

_LISTED = 5  # inputs of a kind that are named
_KEPT = 20  # unknown characters


@dataclass(frozen=True)
class JobModel:
    """A model, as the command saw it."""

    name: str  # as `locate` takes it on any machine
    sha256: str
    device: str  # cpu or cuda
    threads: int | None
    precision: str = "fp32"
    dtype: str = "float32"

    @classmethod
    def of(
        cls,
        name: str,
        device: str = "auto",
        threads: int | None = None,
        precision: str = "fp32",
        dtype: str = "float32",
    ) -> "JobModel":
        """The model of this name: a folder that all machines see, one of the package, or hf:owner/name."""
        if threads is not None and threads < 1:
            raise InputError(f"threads must be 1 or more, not {threads}.")
        path = locate(name)
        is_name = name in MODELS or name.startswith(HUB)
        return cls(name if is_name else str(path.absolute()), hash_model(path), device, threads, precision, dtype)

    def settings(self) -> dict[str, Any]:
        found = {"model_sha256": self.sha256, "--device": self.device, "--precision": self.precision}
        return found | ({} if self.dtype == "float32" else {"--dtype": self.dtype})

    def find(self) -> Path:
        """The folder on this machine."""
        try:
            path = locate(self.name)
        except InputError as error:
            raise InputError(f"{error} All nodes of the cluster must see the folder of the model.") from error
        if hash_model(path) != self.sha256:
            raise InputError(f"{path} on a node of the cluster is not the model that the command was given.")
        return path


# --- qkv predict


@dataclass(frozen=True)
class PredictParts:
    model: JobModel
    task: str
    columns: Mapping[str, str]
    remembered: Mapping[str, str]  # columns that the model was trained with
    format: str | None = None
    verb = "predict"
    reads_documents = True

    @classmethod
    def of(cls, model: JobModel, columns: Mapping[str, str], format: str | None = None) -> "PredictParts":
        """With what the folder of the model says, which is not opened."""
        facts = describe_model(locate(model.name))
        task = detect_task(facts.record, facts.heads) if HAS_TASK in facts.abilities else None
        if task is None:
            raise InputError(
                f"{model.name} is not fine-tuned, so it cannot predict: "
                f"qkv finetune classify --model {model.name} --train FILE --out RUN."
            )
        return cls(model, task, dict(columns), remembered_columns(facts.record), format)

    def settings(self) -> dict[str, Any]:
        named = {f"--{role}": name for role, name in self.columns.items()}
        return {"verb": self.verb, **self.model.settings(), **named, "--format": self.format}

    def open_file(self, path: Path) -> Labelled:
        return labelled(
            path, self.task, columns=self.columns, format=self.format, needs_labels=False, remembered=self.remembered
        )

    def check(self, row: Row) -> None:
        """The reader has done so."""

    def open_model(self) -> PartAnswerer:
        how = self.model
        return _Predictor(load_for(HAS_TASK, how.find(), how.device, how.threads, precision=how.precision))


class _Predictor:
    def __init__(self, model: Model) -> None:
        self._model = model
        task = model.solver.task
        given = UnlabelledInput("a", "a" if task.paired else None, "a", ("a", "b"))
        example = task.example.of(given)
        assert example is not None, "it has every field"
        self._like = example
        self._result = model.solver.answers([example])[0]

    def __call__(self, source: Labelled, layout: PartLayout, out: Path, suffix: str) -> dict[str, Any]:
        model = self._model
        inputs = Inputs(source, model.tokenizer)
        is_paired = model.solver.task.paired is not False
        answers = model.answer_stream(inputs)
        costs: list[dict[str, Any]] = []
        if model.precision != "fp32" and layout.before == 0:
            answers = watch_results(model, answers, lambda cost: costs.append(asdict(cost)))
        parts, unknown = model.watch_unknown(answers)
        with ResultWriter(out, suffix, is_paired, model.labels, inputs) as written:
            written.lay_out(layout, self._like, self._result)
            for examples, results in parts:
                written.add(examples, results)
        facts = written.facts()
        left_out = [str(fault.place) for fault in inputs.faults[:_LISTED]]
        return {
            "n_results": facts["n_results"],
            "n_empty": facts["n_empty"],
            "renamed": facts["renamed"],
            "lost": facts["lost"],
            "n_left_out": inputs.n_left_out,
            "left_out": left_out,
            "unknown": asdict(unknown.facts()),
            "cost": costs,
        }


# --- qkv embed


@dataclass(frozen=True)
class EmbedParts:
    model: JobModel
    text: str | None = None  # the column
    pooling: str | None = None
    normalize: bool | None = None
    layer: int | None = None
    skip_empty: bool = False
    verb = "embed"
    reads_documents = False

    def __post_init__(self) -> None:
        if ENCODES not in describe_model(locate(self.model.name)).abilities:
            raise InputError(f"{self.model.name} does not compute vectors of texts. Give another model with --model.")

    def settings(self) -> dict[str, Any]:
        own = {"--text": self.text, "--pooling": self.pooling, "--normalize": self.normalize, "--layer": self.layer}
        return {"verb": self.verb, **self.model.settings(), **own, "--skip-empty": self.skip_empty}

    def open_file(self, path: Path) -> Labelled:
        if self.text is not None or is_table(path) or ".jsonl" in path.name.lower():
            return open_rows(path, self.text)
        return labelled(path, "classify", format="lines", needs_labels=False)

    def check(self, row: Row) -> None:
        if row.record is None and not row.examples and not self.skip_empty:
            raise InputError(f"{row.place} is empty. Take it out, or add --skip-empty.")

    def open_model(self) -> PartAnswerer:
        how = self.model
        return partial(self._write, load(how.find(), how.device, how.threads, how.dtype, how.precision))

    def _write(self, model: Model, source: Labelled, layout: PartLayout, out: Path, suffix: str) -> dict[str, Any]:
        costs: list[dict[str, Any]] = []
        if model.precision != "fp32" and layout.before == 0:
            texts = (example.text for row in source.rows() for example in row.examples)
            first = list(islice((text for text in texts if model.lacks(text) is None), MEASURED))
            if first:
                costs.append(asdict(measure_vectors(model, first, self.pooling, self.layer)))
        unknown = UnknownCounter(model.tokenizer)
        done = embed_rows(
            model, source, out, self.pooling, self.normalize, self.layer, None, self.skip_empty, unknown, layout=layout
        )
        kept = ("n_texts", "n_tokens", "n_windows", "n_without_vector", "n_unknown", "n_empty", "width")
        named = {name: getattr(done, name) for name in (*kept, "renamed")}
        return {**named, "lost": list(done.lost), "unknown": asdict(unknown.facts()), "cost": costs}


# --- qkv translate


@dataclass(frozen=True)
class TranslateParts:
    model: JobModel
    source: str = ""
    target: str = ""
    decoding: Mapping[str, Any] = field(default_factory=dict)  # options that were given
    split: bool = False
    verb = "translate"
    reads_documents = False

    def __post_init__(self) -> None:
        if TRANSLATES not in describe_model(locate(self.model.name)).abilities:
            raise InputError(f"{self.model.name} does not translate. Give a translation model.")

    def settings(self) -> dict[str, Any]:
        own = {"--from": self.source or None, "--to": self.target or None, "--split": self.split}
        return {"verb": self.verb, **self.model.settings(), **own, "decoding": dict(self.decoding)}

    def open_file(self, path: Path) -> Labelled:
        return open_texts(path)

    def check(self, row: Row) -> None:
        """The reader has done so."""

    def open_model(self) -> PartAnswerer:
        how = self.model
        translator = load_translator(
            how.find(), how.device, how.threads, how.precision, source=self.source, target=self.target
        )
        return partial(self._write, translator, resolve_decoding(translator, dict(self.decoding)))

    def _write(
        self,
        translator: Translator,
        config: GenerateConfig,
        source: Labelled,
        layout: PartLayout,
        out: Path,
        suffix: str,
    ) -> dict[str, Any]:
        texts = ((one.text, str(one.place)) for row in source.rows() for one in row.examples)
        translate = partial(translator.stream_placed, decoding=config, first=layout.before, split=self.split)
        found = keep_foreign(texts, lambda text: foreign_language(translator.path, text, self.source), translate)
        count = n_foreign = n_unfinished = n_affected = 0
        unfinished: list[list[Any]] = []
        unknown: Counter[str] = Counter()
        shown = {} if layout.file is None else {"file": layout.file}
        with table_file(out, suffix) as table:
            more = {"foreign": _TEXT} if self.model.name in MODELS else {}
            more |= {"n_best": _TEXT} if config.n_best > 1 else {}
            table.kinds = dict.fromkeys(shown, _TEXT) | _TRANSLATION | more
            for one in found:
                row = shown | one.to_dict()
                if suffix == ".parquet":
                    flat = {
                        name: format_cell(value) if isinstance(value, list) else value for name, value in row.items()
                    }
                    row = {name: flat.get(name) for name in table.kinds}
                table.write(row)
                count += 1
                n_foreign += bool(one.foreign)
                unknown.update(one.unknown_words)
                n_affected += bool(one.unknown)
                if not one.best.finished:
                    n_unfinished += 1
                    if len(unfinished) < _LISTED:
                        unfinished.append([one.source[:40], one.best.n_tokens])
        return {
            "n_results": count,
            "n_foreign": n_foreign,
            "n_unfinished": n_unfinished,
            "unfinished": unfinished,
            "n_unknown": unknown.total(),
            "n_affected": n_affected,
            "unknown_words": dict(unknown.most_common(_KEPT)),
        }


_TEXT, _INT, _FLOAT = frozenset(["text"]), frozenset(["int"]), frozenset(["float"])
_TRANSLATION = {
    "source": _TEXT,
    "translation": _TEXT,
    "score": _FLOAT,
    "log_probability": _FLOAT,
    "finished": frozenset(["bool"]),
    "n_source_tokens": _INT,
    "n_tokens": _INT,
    "n_parts": _INT,
    "n_unknown": _INT,
    "unknown": _TEXT,
}
"""`Translation.to_dict`, and of what kind its values are in parquet."""


# --- Facts of all parts together.


def join_facts(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of a whole job from those of its parts, in their order: numbers are added, lists begin with those of
    the first parts, tables are put together."""
    found: dict[str, Any] = {}
    for one in facts:
        for name, value in one.items():
            found[name] = value if name not in found else _joined(name, found[name], value)
    return found


def _joined(name: str, one: Any, other: Any) -> Any:
    if name == "width":
        return one
    if name in ("unknown", "unknown_words", "most_frequent"):
        if name == "unknown":
            return {key: _joined(key, one[key], other[key]) for key in one}
        return dict((Counter(one) + Counter(other)).most_common(_KEPT))
    if isinstance(one, dict):
        return one | other
    if isinstance(one, list | tuple):
        joined = list(one)
        joined += [item for item in other if item not in joined]
        return joined[: max(_LISTED, len(one))]
    return one + other


def unknown_facts(found: Mapping[str, Any]) -> UnknownFacts:
    return UnknownFacts(**found)
