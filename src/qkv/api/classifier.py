"""`qkv.Classifier`: fine-tuning with the interface of scikit-learn: fit, predict, predict_proba and score.

It supports cross-validation, grid search and pipelines without requiring scikit-learn. A fit is a run of
jobs/finetune/run.py in a temporary folder: part of the examples is held out for model selection and calibration.

Labels keep their type (3 is returned as 3, not "3"):

    single    one label each: texts, whole numbers, true and false
    lists     any number of labels each, as lists
    columns   the same as a table of 0 and 1, one column per label, as in scikit-learn
    numbers   numbers (kind="regression")
"""

import inspect
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from qkv.api.embedder import is_missing
from qkv.api.model import Model
from qkv.api.predict import fill_gaps, frame_inputs, is_frame, lacks_text, make_examples, remembered_columns
from qkv.data.labelled.examples import Place, TextExample
from qkv.data.labelled.tables import find_usual_column, quote_names
from qkv.errors import InputError, did_you_mean
from qkv.jobs.finetune.data import DataPart, LabelledData, split_examples
from qkv.jobs.finetune.run import make_finetuning
from qkv.jobs.finetune.settings import FinetuneConfig, load_run_tokenizer, resolve_finetune_settings
from qkv.models.folders.hub import DEFAULT_MODEL, locate
from qkv.models.folders.own import add_to_record
from qkv.models.table import open_model
from qkv.tasks import classify
from qkv.text.messages import write
from qkv.train.device import device_named
from qkv.train.log import Callback, Silent, WithCallbacks, for_stderr

LABEL_KINDS = {"auto": None, "single": "single", "multi": "lists", "regression": "numbers"}
_SEVERAL = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class TargetLabels:
    form: str
    classes: tuple[Any, ...]  # in order; () for numbers
    spelled: tuple[str | tuple[str, ...], ...] = ()  # of each example, as a task reads it

    def array(self) -> NDArray[Any]:
        """(L,) the classes, with their own type if all have the same."""
        if len({type(one) for one in self.classes}) == 1:
            return np.array(self.classes)
        mixed = np.empty(len(self.classes), dtype=object)
        mixed[:] = self.classes
        return mixed


def parse_labels(y: Any, kind: str) -> TargetLabels:
    """
    >>> parse_labels([1, 0, 1], "auto")
    TargetLabels(form='single', classes=(0, 1), spelled=('1', '0', '1'))
    >>> parse_labels([["好", "快"], []], "auto").spelled
    (('好', '快'), ())
    """
    y = _label_rows(y)
    if isinstance(y, np.ndarray) and y.ndim == 2:
        if y.shape[1] > 1 and LABEL_KINDS[kind] in (None, "lists"):
            return _columns(y)
        y = y[:, 0] if y.shape[1] == 1 else y
    items = [_plain(item) for item in y]
    several = any(isinstance(item, _SEVERAL) for item in items)
    form = LABEL_KINDS[kind] or ("lists" if several else "single")
    if form == "numbers":
        return TargetLabels(form, (), tuple(repr(_number(item, place)) for place, item in enumerate(items)))
    if form == "lists":
        rows = [tuple(item) if isinstance(item, _SEVERAL) else (item,) for item in items]
    else:
        rows = [(item,) for item in items]
    found: dict[str, Any] = {}
    spelled = [tuple(_known(_plain(one), place, found, kind) for one in row) for place, row in enumerate(rows)]
    classes = _in_order(found.values())
    return TargetLabels(form, classes, tuple(spelled) if form == "lists" else tuple(row[0] for row in spelled))


def spell_label(label: Any) -> str:
    """
    >>> spell_label(True), spell_label(2.0), spell_label(-3), spell_label("好")
    ('true', '2', '-3', '好')
    """
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def _columns(y: NDArray[Any]) -> TargetLabels:
    if not np.isin(y, (0, 1)).all():
        raise InputError("y is a table, a column a label, and holds something else than 0 and 1.")
    spelled = tuple(tuple(str(column) for column in np.flatnonzero(row)) for row in y)
    return TargetLabels("columns", tuple(range(y.shape[1])), spelled)


def _plain(item: Any) -> Any:
    """Numbers and arrays of numpy as Python objects."""
    return item.tolist() if isinstance(item, np.generic | np.ndarray) else item


def _known(label: Any, place: int, found: dict[str, Any], kind: str) -> str:
    if _lacks_label(label):
        raise _without_label(label, place)
    if not isinstance(label, str | int | float):
        raise InputError(
            f"y[{place}] is {label!r}; a label is a text, a whole number, true or false, or a list of them."
        )
    if isinstance(label, float) and not label.is_integer() and kind == "auto":
        raise InputError(f"y[{place}] is {label}: to learn a number rather than a class, set kind='regression'.")
    spelled = spell_label(label)
    if found.setdefault(spelled, label) != label:
        raise InputError(f"y holds {found[spelled]!r} and {label!r}, which look the same when they are written down.")
    return spelled


def _number(item: Any, place: int) -> float:
    if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
        raise InputError(f"y[{place}] is {item!r}, and kind is 'regression', which learns numbers.")
    return float(item)


def _in_order(labels: Iterable[Any]) -> tuple[Any, ...]:
    found = list(labels)
    try:
        return tuple(sorted(found))
    except TypeError:  # names and numbers together
        return tuple(sorted(found, key=lambda label: (isinstance(label, str), spell_label(label))))


def restore_labels(form: str, classes: Sequence[Any]) -> TargetLabels:
    """The labels from the record of a saved folder."""
    return TargetLabels(form, tuple(classes))


# The estimator.

RECORD = "classifier"
"""Under this name a saved folder keeps what the labels were before they were written down."""


class Classifier:
    """A text classifier that learns from examples, in the manner of scikit-learn.

    X is a list (or an array, a Series, a DataFrame) of texts, or of pairs (text, text); of a DataFrame the columns with
    usual names ("text", …), or all if they are one or two. y holds a label each, or names the column of X with the
    labels: texts, whole numbers, true or false; lists of them, or a table of 0 and 1, where a text has any number of
    labels; numbers with kind="regression". `model` is what it starts from: a folder, any name that `qkv.load` takes,
    word vectors, a language model (ELMo's folder, …), or "scratch:lstm" and the like with `embeddings` or a
    `tokenizer`, all as in `qkv finetune`. `transfer` None is what suits the model: everything learns, but ELMo gives
    features. `settings` are changes to a run's config in the words of `qkv finetune --set`, such as
    ["texts_per_step=16"]. `callbacks` have `on_log(line)` and `on_end(result)`: the lines of log.jsonl as they are
    written, and the figures. After `fit`: `classes_`, `model_` (a `qkv.Model`), `result_` (the figures of the run) and
    `columns_` (of a DataFrame, the columns by role, which `verbose` prints; `predict` uses the same).

    Rows without a text (None, NaN, "") or without a label are an error of `fit` and `score` that names them; with
    `skip_bad` they are left out, and `skipped_` are those of `fit`, counted from 0. In `predict` and `predict_proba` a
    row without a text stays, without an answer: None (in an array of objects), NaN for numbers and probabilities.

    >>> judge = Classifier(transfer="features")                                               # doctest: +SKIP
    >>> judge.fit(["快递太慢", "质量很好", …], ["bad", "good", …]).predict(["下次还来"])      # doctest: +SKIP
    array(['good'], dtype='<U4')
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        transfer: str | None = None,
        epochs: float | None = None,
        lr: float | None = None,
        seed: int = 0,
        class_weights: str = "none",
        dev_share: float = 0.1,
        kind: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        settings: Sequence[str] = (),
        verbose: bool = False,
        embeddings: str | Path | None = None,
        tokenizer: str | Path | None = None,
        callbacks: Sequence[Callback] = (),
        skip_bad: bool = False,
    ) -> None:
        # stored unchanged and checked by fit, since a grid search sets them one by one
        self.model = model
        self.transfer = transfer
        self.epochs = epochs
        self.lr = lr
        self.seed = seed
        self.class_weights = class_weights
        self.dev_share = dev_share
        self.kind = kind
        self.device = device
        self.threads = threads
        self.settings = settings
        self.verbose = verbose
        self.embeddings = embeddings
        self.tokenizer = tokenizer
        self.callbacks = callbacks
        self.skip_bad = skip_bad

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune the model on these examples, from the start. `sample_weight` has a number of 0 or more for each:
        how much it counts in training. Only their ratios matter; the held-out examples are scored alike."""
        if self.kind not in LABEL_KINDS:
            raise InputError(
                f"Unknown kind '{self.kind}'.{did_you_mean(self.kind, LABEL_KINDS)} Known: {', '.join(LABEL_KINDS)}."
            )
        if isinstance(y, str) and is_frame(X):
            X, y = _split_frame(X, y)
        texts, self.columns_ = _texts(X, {})
        if self.columns_ and self.verbose:
            write(f"columns of X: {', '.join(f'{role} = {name!r}' for role, name in self.columns_.items())}", err=True)
        if not texts:
            raise InputError("X is empty: there is nothing to learn from.")
        expected = _label_rows(y)
        if len(texts) != len(expected):
            raise InputError(f"X has {len(texts):,} texts and y has {len(expected):,} labels; give one each.")
        weights = _weights(sample_weight, len(texts))
        kept = self._usable(texts, expected)
        if not kept:
            raise InputError("No row of X and y has a text and a label: there is nothing to learn from.")
        labels = parse_labels(_select(expected, kept), self.kind)
        if labels.form == "single" and len(labels.classes) < 2:
            raise InputError(f"Every label in y is {labels.classes[0]!r}: a classifier needs at least two.")
        config = resolve_finetune_settings(
            "classify", str(self.model), self.transfer, None, self._flags(labels), self.settings
        )
        device = device_named(config.device)
        gaps: list[int] = []
        found = list(make_examples(TextExample, (texts[row] for row in kept), load_run_tokenizer(config), gaps))
        self._check_skipped([kept[gap] for gap in gaps], len(texts))
        examples = [
            TextExample(example.text, example.pair, label, Place("X", row + 1), weight=weights[row])
            for row, label, example in zip(kept, labels.spelled, fill_gaps(found, gaps), strict=True)
            if example is not None
        ]
        used = {example.place.line - 1 for example in examples}
        self.skipped_ = np.array([row for row in range(len(texts)) if row not in used], np.int64)
        if len(self.skipped_) and self.verbose:
            write(f"rows of X and y that cannot be used and are left out: {len(self.skipped_):,}", err=True)
        data = _split(examples, config)
        with tempfile.TemporaryDirectory(prefix="qkv-", ignore_cleanup_errors=True) as folder:
            with for_stderr() if self.verbose else nullcontext(Silent()) as progress:
                followed = WithCallbacks(progress, self.callbacks)
                finished = make_finetuning(data).start(config, Path(folder) / "run", followed)
            if not finished.finished:
                raise KeyboardInterrupt  # a run in a temporary folder cannot be resumed
            self.result_ = finished.result
            add_to_record(finished.run / "model", {RECORD: {"form": labels.form, "classes": list(labels.classes)}})
            loaded = open_model(finished.run / "model")
            self._labels = replace(labels, spelled=())
            self.model_ = Model(loaded, device, self.threads)
        return self

    def predict(self, X: Any) -> Any:
        """An array of labels in the form of y; a list of lists if y had lists. None or NaN for a row without a text."""
        return self._given(self._answers(X))

    def _given(self, results: Sequence[Any]) -> Any:
        """Results in the form of y."""
        labels = self._labels
        if labels.form == "numbers":
            return np.array([math.nan if one is None else one.value for one in results])
        if labels.form == "columns":
            names = [spell_label(one) for one in labels.classes]
            nothing = [math.nan] * len(names)
            return np.array(
                [nothing if one is None else [int(name in one.labels) for name in names] for one in results]
            )
        back = {spell_label(one): place for place, one in enumerate(labels.classes)}
        if labels.form == "lists":
            return [
                None if one is None else [labels.classes[place] for place in sorted(back[name] for name in one.labels)]
                for one in results
            ]
        given = self.classes_[np.array([back[one.label] for one in results if one is not None], dtype=np.int64)]
        if len(given) == len(results):
            return given
        whole = np.full(len(results), None, dtype=object)
        whole[[one is not None for one in results]] = given
        return whole

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(texts, classes) calibrated probabilities, columns in the order of `classes_`.

        Rows sum to 1 if a text has one label; with several labels the columns are independent.
        """
        results = self._answers(X)
        if self._labels.form == "numbers":
            raise InputError("A number that was learned (kind='regression') has no probabilities; use predict.")
        names = [spell_label(one) for one in self._labels.classes]
        # a column of zeros in y has no output: it was never seen
        rows = [
            [math.nan if result is None else result.probabilities.get(name, 0.0) for name in names]
            for result in results
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, len(names))

    def score(self, X: Any, y: Any) -> float:
        """The share of texts with all labels correct; R² for numbers."""
        self._require_fit()
        texts, wanted = _texts(X, getattr(self, "columns_", {}))[0], _label_rows(y)
        if len(wanted) != len(texts):
            raise InputError(f"X has {len(texts):,} texts and y has {len(wanted):,} labels; give one each.")
        kept = self._usable(texts, wanted)
        if (row := next((row for row in kept if _lacks_label(wanted[row])), None)) is not None:
            raise _without_label(wanted[row], row)
        if not kept:
            raise InputError("No row of X and y has a text and a label: there is nothing to score.")
        found = self.model_.predict([texts[row] for row in kept])
        self._check_skipped([row for row, one in zip(kept, found, strict=True) if one is None], len(texts))
        kept = [row for row, one in zip(kept, found, strict=True) if one is not None]
        answered, wanted = self._given([one for one in found if one is not None]), [wanted[row] for row in kept]
        if self._labels.form == "numbers":
            expected = np.asarray(wanted, dtype=np.float64)
            left, whole = ((expected - answered) ** 2).sum(), ((expected - expected.mean()) ** 2).sum()
            return float(1 - left / whole) if whole else float(left == 0)
        if self._labels.form == "lists":
            return float(np.mean([set(a) == set(b) for a, b in zip(answered, wanted, strict=True)]))
        return float(np.mean([np.all(a == b) for a, b in zip(answered, wanted, strict=True)]))

    @property
    def classes_(self) -> NDArray[Any]:
        """(L,) the labels of y, sorted. (An error before `fit`.)"""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("classes_ is known after fit.")
        return self._labels.array()

    def save(self, folder: str | Path) -> Path:
        """Write a Hugging Face folder, for `Classifier.load`, `qkv.load` and transformers."""
        self._require_fit()
        return self.model_.save(folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", threads: int | None = None) -> Self:
        """Load a folder that `save` wrote, or a classifier of `qkv finetune`; a further `fit` starts from it."""
        loaded = open_model(locate(folder))
        model = Model(loaded, device_named(device), threads)
        task = model.solver.task
        if task.name != "classify":
            raise InputError(f"{folder} was made for '{task.name}', not for classify: use qkv.load.")
        form = LABEL_KINDS[task.kind] or "single"
        known = loaded.record.get(RECORD) or {"form": form, "classes": () if form == "numbers" else task.labels}
        made = cls(str(loaded.path), device=device, threads=threads)
        made.columns_ = remembered_columns(loaded.record)
        made.model_, made._labels = model, restore_labels(known["form"], known["classes"])
        made.result_ = {"dev": loaded.record.get("scores")}
        return made

    # What scikit-learn asks of an estimator.

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        for name, value in params.items():
            if name not in self._names():
                known = self._names()
                raise InputError(f"Unknown parameter '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}.")
            setattr(self, name, value)
        return self

    @property
    def _estimator_type(self) -> str:
        return "regressor" if self._learns_numbers else "classifier"  # before scikit-learn 1.6

    @property
    def _learns_numbers(self) -> bool:
        return LABEL_KINDS.get(self.kind) == "numbers"

    def __sklearn_tags__(self) -> Any:
        of = import_module("sklearn.utils")
        numbers = self._learns_numbers
        return of.Tags(
            estimator_type=self._estimator_type,
            target_tags=of.TargetTags(required=True),
            classifier_tags=None if numbers else of.ClassifierTags(multi_label=True),
            regressor_tags=of.RegressorTags() if numbers else None,
            input_tags=of.InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name].default}
        return f"Classifier({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __getstate__(self) -> dict[str, Any]:
        """A pickle holds the files of the model's folder, so that it can be read wherever qkv can read a folder."""
        state = {name: value for name, value in self.__dict__.items() if name != "model_"}
        if self.__sklearn_is_fitted__():
            with tempfile.TemporaryDirectory(prefix="qkv-") as folder:
                saved = self.save(Path(folder) / "model")
                files = [file for file in sorted(saved.rglob("*")) if file.is_file()]
                state["files"] = {str(file.relative_to(saved).as_posix()): file.read_bytes() for file in files}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name != "files"})
        if "files" in state:
            with tempfile.TemporaryDirectory(prefix="qkv-", ignore_cleanup_errors=True) as folder:
                for name, content in state["files"].items():
                    file = Path(folder) / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
                self.model_ = Model(open_model(folder), device_named(self.device), self.threads)

    def _flags(self, labels: TargetLabels) -> dict[str, Any]:
        kinds = {"single": "single", "lists": "multi", "columns": "multi", "numbers": "regression"}
        given = {
            "epochs": self.epochs,
            "train.lr": self.lr,
            "train.seed": self.seed,
            "train.threads": self.threads,
            "data.split_seed": self.seed,
            "data.dev_share": self.dev_share,
            "class_weights": self.class_weights,
            "classify.kind": kinds[labels.form],
            "device": self.device,
            "embeddings": None if self.embeddings is None else str(self.embeddings),
            "tokenizer": None if self.tokenizer is None else str(self.tokenizer),
        }
        # a grid is often an array, and its values numpy's
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}
        return {key: value for key, value in plain.items() if value is not None}

    def _answers(self, X: Any) -> Sequence[Any]:
        """A result for each row of X; None for one without a text."""
        self._require_fit()
        return self.model_.predict(_texts(X, getattr(self, "columns_", {}))[0])

    def _usable(self, texts: Sequence[Any], labels: Sequence[Any]) -> list[int]:
        """The rows with a text and a label; with `skip_bad` the others are left out."""
        self._check_skipped([row for row, text in enumerate(texts) if lacks_text(text)], len(texts))
        if not self.skip_bad:
            return list(range(len(texts)))  # `parse_labels` says what is wrong with a label
        rows = enumerate(zip(texts, labels, strict=True))
        return [row for row, (text, label) in rows if not lacks_text(text) and not _lacks_label(label)]

    def _check_skipped(self, rows: Sequence[int], n: int) -> None:
        if rows and not self.skip_bad:
            places = ", ".join(f"X[{row}]" for row in rows[:5]) + (", …" if len(rows) > 5 else "")
            raise InputError(
                f"{len(rows):,} of the {n:,} texts in X are missing or empty: {places}. Leave these rows out, or set "
                "skip_bad=True."
            )

    def _require_fit(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise InputError(
                "This classifier has learned nothing yet. Call fit(X, y) first, or Classifier.load(folder)."
            )


def _texts(X: Any, remembered: Mapping[str, str]) -> tuple[list[Any], dict[str, str]]:
    """X as a list of texts or pairs, whose items are checked later, and the columns of a DataFrame by role."""
    if is_frame(X):
        names = [str(name) for name in X.columns]
        known = {role: name for role, name in remembered.items() if name in names}
        if not known and len(names) <= 2 and not find_usual_column("text", names, "X"):
            known = dict(zip(("text", "pair"), names, strict=False))
        rows, columns = frame_inputs(X, "classify", known)
        texts = [row and ((row["text"], row["pair"]) if "pair" in row else row["text"]) for row in rows]
        return texts, columns
    if hasattr(X, "to_numpy"):  # a column of pandas
        X = X.to_numpy()
    if isinstance(X, np.ndarray):
        if X.ndim == 2 and X.shape[1] <= 2:
            return (X[:, 0].tolist() if X.shape[1] == 1 else [tuple(row) for row in X.tolist()]), {}
        if X.ndim != 1:
            raise InputError(f"X is an array of shape {X.shape}; give texts (n,) or pairs (n, 2).")
        return X.tolist(), {}
    if isinstance(X, str | Mapping) or not isinstance(X, Iterable):
        raise InputError(f"X is {X!r:.60}; give a list of texts, or of pairs of texts.")
    return list(X), {}


def _label_rows(y: Any) -> Any:
    """A label, or several, of each text."""
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, str) or not isinstance(y, Iterable):
        raise InputError(f"y is {y!r}; it has one label for every text, in a list.")
    return y if isinstance(y, np.ndarray) else list(y)


def _lacks_label(label: Any) -> bool:
    if isinstance(label, np.ndarray):  # a row of a table
        return label.dtype.kind in "fO" and any(map(is_missing, label.tolist()))
    return is_missing(label) or (isinstance(label, str) and not label.strip())


def _select(labels: Any, rows: Sequence[int]) -> Any:
    return labels[list(rows)] if isinstance(labels, np.ndarray) else [labels[row] for row in rows]


def _without_label(label: Any, place: int) -> InputError:
    return InputError(
        f"y[{place}] is {label!r}: every text needs a label. Leave texts without one out, or set skip_bad=True."
    )


def _weights(sample_weight: Any, n: int) -> list[float]:
    if sample_weight is None:
        return [1.0] * n
    given = sample_weight.to_numpy() if hasattr(sample_weight, "to_numpy") else sample_weight
    found = [_plain(one) for one in given] if isinstance(given, Iterable) and not isinstance(given, str) else []
    if len(found) != n:
        raise InputError(f"X has {n:,} texts and sample_weight has {len(found):,} numbers; give one each.")
    for place, one in enumerate(found):
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one < math.inf:
            raise InputError(f"sample_weight[{place}] is {one!r}; a weight is a number, 0 or more.")
    return [float(one) for one in found]


def _split_frame(X: Any, y: str) -> tuple[Any, Any]:
    """Take the column of the labels out of a DataFrame."""
    if y not in X.columns:
        names = [str(name) for name in X.columns]
        raise InputError(f"X has no column {y!r}, only {quote_names(names)}.{did_you_mean(y, names)}")
    return X.drop(columns=[y]), X[y]


def _split(examples: list[TextExample], config: FinetuneConfig) -> LabelledData:
    train, dev = split_examples(examples, config.data, classify.choose_task(examples, config.classify).numbers)
    if not train or not dev:
        raise InputError(
            f"X has {len(examples):,} texts, too few different ones: part of them is held out to choose and "
            "calibrate by, and here nothing could be. Give more examples of each label."
        )
    return LabelledData(DataPart("X", train), DataPart("held out of X", dev), ())
