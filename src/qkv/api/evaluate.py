"""Evaluate a model on a labelled file or on sentence pairs, alone or compared with another model.

All pairs count: a source that is too long for the model counts as an empty translation, as at the end of training.
Pairs with an empty side are dropped and reported. Decoding options are those of the model, updated by the caller.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.api.model import load_for
from qkv.api.predict import make_record, remembered_columns
from qkv.api.translator import Translator, load_translator
from qkv.config import merge, read_toml
from qkv.data.labelled.examples import Example, KnownTexts
from qkv.data.labelled.reader import labelled
from qkv.data.pairs.files import Pair, PairFiles
from qkv.errors import InputError
from qkv.files import replaced_file, sha256_of
from qkv.jobs.finetune.data import check_data_unchanged, read_data, read_rows
from qkv.jobs.finetune.evaluate import evaluate_examples
from qkv.jobs.finetune.run import scored_dict
from qkv.jobs.finetune.settings import FinetuneConfig
from qkv.jobs.translate.data import LOOKED_AT, detect_languages
from qkv.jobs.translate.training import PairEvaluation, find_untranslatable, translate_pairs
from qkv.metrics import translation as scores
from qkv.metrics.intervals import paired_difference
from qkv.models.family import HAS_TASK
from qkv.models.folders.hub import locate
from qkv.search.options import GenerateConfig
from qkv.tasks.baselines import Baseline, BaselineScores, fit_baselines
from qkv.tasks.table import AnyTask
from qkv.tasks.task import Judgement
from qkv.tasks.translate import check_scores, score_translations
from qkv.text.languages import base_of, check_language, check_letters
from qkv.train.run_folder import CONFIG, TRAINING_TEXTS

_Floats = NDArray[np.float64]
_FAULTS = 50  # told in full


def evaluate_file(
    run: str | Path,
    file: str | Path,
    *,
    against: str | Path | None = None,
    out: Path | None = None,
    columns: Mapping[str, str] | None = None,
    format: str | None = None,
    separator: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """Figures of `run` on `file`; with `against`, whether the other model is significantly worse. `skip_bad`: rows that
    cannot be used are left out and counted, instead of an error."""
    model = load_for(HAS_TASK, run, device, threads)
    task = model.solver.task
    other = None
    if against is not None:  # before the first is evaluated: that may take long
        other = load_for(HAS_TASK, against, device, threads)
        check_comparable(run, task, against, other.solver.task)
    trained = model.record.get("config", {}).get("data", {})
    if separator is None:
        separator = trained.get("separator")  # as in training
    source = labelled(
        file,
        task.name,
        columns=columns,
        format=format,
        separator=separator,
        lenient=skip_bad,
        remembered=remembered_columns(model.record),
    )
    known = trained.get("train_sha256")
    is_training = known is not None and sha256_of(source.path) == known
    trained_on = KnownTexts.read(locate(run).parent / TRAINING_TEXTS)
    n_trained_on = 0
    examples = Adapted(source, task)
    compared = BaselineScores(task, fit_run_baselines(run, task))
    mine: list[tuple[float, ...]] = []

    def keep(example: Example, result: Any, judgement: Judgement) -> None:
        if other is not None:
            mine.append(task.statistics(example, result, judgement))

    answers, unknown = model.watch_unknown(model.answer_stream(examples, needs_labels=True))

    def answered() -> Iterator[tuple[list[Example], list[Any]]]:
        nonlocal n_trained_on
        for chunk, results in answers:
            compared.add(chunk)
            if trained_on is not None:
                n_trained_on += sum(example.identity() in trained_on for example in chunk)
            yield chunk, results

    if out is None:
        found = evaluate_examples(task, answered(), progress, keep)
    else:
        with replaced_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as lines:

            def write(example: Example, result: Any, judgement: Judgement) -> None:
                keep(example, result, judgement)
                verdict = {"expected": judgement.expected, "right": judgement.right}
                lines.write(json.dumps(make_record(example, result) | verdict, ensure_ascii=False) + "\n")

            found = evaluate_examples(task, answered(), progress, write)
    faults, unread = source.faults, unknown.facts()
    document: dict[str, Any] = {
        "run": str(run),
        "file": str(file),
        "task": task.name,
        "scores": scored_dict(found.scored),
        "tokens": found.tokens,
        "longest": found.longest,
        "windowed": found.windowed,
        "most_windows": found.most_windows,
        "n_unknown": unread.n_unknown,
        "unknown": asdict(unread),
        "dropped": sum(fault.action == "dropped" for fault in faults),
        "mended": sum(fault.action == "mended" for fault in faults),
        "faults": [f"{fault.place}: {fault.message} ({fault.action})" for fault in faults[:_FAULTS]],
        "against": None,
        "is_training_file": is_training,
        "in_training": None if trained_on is None else n_trained_on,
        "read_as": source.describe(),
        "baselines": [one.to_dict() for one in compared.result()] or None,
    }
    if other is not None:
        theirs: list[tuple[float, ...]] = []
        evaluate_examples(
            other.solver.task,
            other.answer_stream(examples, needs_labels=True),
            progress,
            lambda example, result, judgement: theirs.append(task.statistics(example, result, judgement)),
        )
        document["against"] = {
            "run": str(against),
            "figure": found.scored.main,
            **compare_answers(task, np.array(mine), np.array(theirs)),
        }
    return document


def fit_run_baselines(run: str | Path, task: AnyTask) -> list[Baseline]:
    """The baselines of a run's training examples; none of a model without its run, or whose files have changed."""
    folder = Path(run).expanduser()
    if not (folder / CONFIG).is_file():
        return []
    config = merge(FinetuneConfig(), read_toml(folder / CONFIG), str(folder / CONFIG))
    try:
        check_data_unchanged(config.data)
        return fit_baselines(task, read_data(config).train.examples)
    except InputError:  # the files are gone or changed: the scores are right without a baseline
        return []


@dataclass(frozen=True)
class Adapted:
    """Examples in the form that a task expects; each iteration starts from the beginning."""

    source: Iterable[Example]
    task: AnyTask

    def __iter__(self) -> Iterator[Example]:
        return map(self.task.adapted, read_rows(self.source))


def check_comparable(run: str | Path, task: AnyTask, against: str | Path, other: AnyTask) -> None:
    """Refuse to compare models of different tasks, or of text pairs and single texts."""
    names = [(str(run), _in_words(task)), (str(against), _in_words(other))]
    reads = [task.paired, other.paired]
    if names[0][1] == names[1][1] and None not in reads and reads[0] != reads[1]:
        names = [
            (name, f"{words} of {'pairs' if paired else 'single texts'}")
            for (name, words), paired in zip(names, reads, strict=True)
        ]
    if names[0][1] != names[1][1]:
        raise InputError(
            f"{names[1][0]} is a model for {names[1][1]}, and {names[0][0]} one for {names[0][1]}: only two models for "
            "the same task can be compared. Give --against another model that was fine-tuned for it."
        )


def _in_words(task: AnyTask) -> str:
    # a tagger's kind is how it decodes, which is what one may want to compare
    return f"'{task.name}' ({task.about})" if task.about else f"'{task.name}'"


def compare_answers(task: AnyTask, mine: _Floats, theirs: _Floats) -> dict[str, float | None]:
    """The other model's figure, and the difference by the paired bootstrap over examples.

    None where a figure cannot be said, as a correlation with answers that are all alike.
    """
    mine, theirs = task.summands(mine), task.summands(theirs)
    difference = paired_difference(mine, theirs, task.figure)
    found = {"value": float(task.figure(theirs.sum(0)[None])[0]), **difference._asdict()}
    if math.isnan(found["difference"]):
        found["p"] = math.nan
    return {name: number if math.isfinite(number) else None for name, number in found.items()}


# Sentence pairs.

_UNKNOWN = 20  # words that the vocabulary lacks, likewise
ChooseDecoding = Callable[[Translator], GenerateConfig]


def evaluate_pairs(
    run: str | Path,
    files: Sequence[str | Path],
    *,
    columns: Sequence[str] = (),
    language: str | None = None,
    decoding: ChooseDecoding | None = None,
    against: str | Path | None = None,
    out: Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Figures of `run` on sentence pairs in two files or one. `language` is that of the target, if the model has
    none."""
    if language is not None:
        check_language(language, "language (--language)")
    opened = PairFiles.of(files, columns)
    first = load_translator(run, device, threads)
    other = None if against is None else load_translator(against, device, threads)
    if other is not None:
        _check_comparable(run, first, against, other)
    pairs = list(opened)
    if not pairs:
        raise InputError(f"{opened.name}: there is no pair with text on both sides.")
    target = _target(run, language, first, opened, pairs[:LOOKED_AT])
    check_scores(target)  # what is missing is told before the work
    config, mine = _answered(first, pairs, decoding, progress)
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    score = score_translations(
        sources, mine.texts, references, target, interval=True, unfinished=mine.finished.count(False)
    )
    refused = find_untranslatable("pairs", pairs, first.languages, first.max_length)
    unknown = _unknown(first, pairs)
    words = Counter(word for found in unknown for word in found)
    if out is not None:
        _write(out, pairs, mine, unknown)
    faults = [*opened.faults, *refused]
    document: dict[str, Any] = {
        "run": str(run),
        "files": [str(one) for one in opened.files],
        "task": "translate",
        "source_language": first.source_language,
        "target_language": target,
        "decoding": {name: value for name, value in vars(config).items() if value is not None},
        "scores": score.to_dict(),
        "not_translated": len(refused),
        "dropped": len(opened.faults),
        "faults": [f"{fault.place}: {fault.message} ({fault.action})" for fault in faults[:_FAULTS]],
        "unknown": {
            "texts": sum(map(bool, unknown)),
            "pieces": words.total(),
            "most_frequent": dict(words.most_common(_UNKNOWN)),
        },
        "is_training_file": _is_training(first, opened),
        "against": None,
    }
    if other is not None:
        _, theirs = _answered(other, pairs, decoding, progress)
        document["against"] = {"run": str(against), **_compared(mine, theirs, references, target)}
    return document


def _answered(
    translator: Translator,
    pairs: Sequence[Pair],
    decoding: ChooseDecoding | None,
    progress: Callable[[int], None] | None,
) -> tuple[GenerateConfig, PairEvaluation]:
    config = translator.decoding if decoding is None else decoding(translator)
    if config.sample:
        raise InputError("decoding.sample draws by chance; a model is judged by what it thinks best.")
    found = translate_pairs(
        translator.network, translator.languages, pairs, config, translator.max_length, progress=progress
    )
    return config, found


def _target(
    run: str | Path, language: str | None, translator: Translator, opened: PairFiles, pairs: Sequence[Pair]
) -> str:
    """The target language, which decides BLEU's tokenization: as given, that of the model, or detected. A model trained
    as `und` has none."""
    what = "language (--language)" if language else f"The target language of {run} (--language gives another)"
    if not language and base_of(translator.target_language):
        language = translator.target_language
    if language:
        check_letters(language, (pair.target for pair in pairs), what)
    return language or detect_languages([str(one) for one in opened.files], pairs)[1]


def _check_comparable(run: str | Path, first: Translator, against: str | Path | None, other: Translator) -> None:
    """Refuse to compare models of different languages; unknown languages are accepted."""
    for side in ("source_language", "target_language"):
        one, two = getattr(first, side), getattr(other, side)
        if base_of(one) and base_of(two) and base_of(one) != base_of(two):
            raise InputError(
                f"{run} is for {first.source_language} → {first.target_language}, and {against} for "
                f"{other.source_language} → {other.target_language}: only models for the same languages are comparable."
            )


def _unknown(translator: Translator, pairs: Sequence[Pair]) -> list[list[str]]:
    """For every source, the parts that the vocabulary has no token for."""
    languages = translator.languages
    rows = languages.read([pair.source for pair in pairs])
    return [
        [pair.source[start:end] for start, end in languages.unknown(pair.source, row)]
        for pair, row in zip(pairs, rows, strict=True)
    ]


def _is_training(translator: Translator, opened: PairFiles) -> bool:
    known = translator.train_sha256
    return bool(known) and sha256_of(opened.files[0]) in known


def _write(out: Path, pairs: Sequence[Pair], found: PairEvaluation, unknown: Sequence[Sequence[str]]) -> None:
    """Write one line per pair, in order, with chrF, which is meaningful for single sentences."""
    references = [pair.target for pair in pairs]
    by_characters = scores.chrf_of(scores.chrf_counts(found.texts, references))
    rows = zip(pairs, found.texts, found.finished, by_characters.tolist(), unknown, strict=True)
    with replaced_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as lines:
        for pair, text, finished, chrf, words in rows:
            line: Mapping[str, Any] = {
                "file": pair.place.file,
                "line": pair.place.line,
                "source": pair.source,
                "reference": pair.target,
                "translation": text,
                "exact": text.split() == pair.target.split(),
                "chrf": round(chrf, 4),
                "finished": finished,
                "unknown": words,
            }
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


def _compared(mine: PairEvaluation, theirs: PairEvaluation, references: Sequence[str], language: str) -> dict[str, Any]:
    """The other model's BLEU, and the difference by the paired bootstrap over sentences (Koehn 2004); without
    sacrebleu, of the share of exact translations."""
    if scores.is_available():
        first, second = (scores.bleu_counts(one.texts, references, language) for one in (mine, theirs))
        value = scores.bleu(theirs.texts, references, language).value
        return {"figure": "BLEU", "value": value, **paired_difference(first, second, scores.bleu_of)._asdict()}
    exact = [
        [[float(text.split() == wanted.split()), 1.0] for text, wanted in zip(one.texts, references, strict=True)]
        for one in (mine, theirs)
    ]
    value = sum(right for right, _ in exact[1]) / len(references)
    difference = paired_difference(exact[0], exact[1], lambda sums: sums[:, 0] / sums[:, 1])
    return {"figure": "exact", "value": value, **difference._asdict()}
