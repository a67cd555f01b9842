"""`qkv train translate`: train a translation model on sentence pairs, exactly resumable.

RUN/config.toml        the resolved settings; a resumed run reads nothing else
RUN/tokenizer/         the vocabulary of both sides, or source/ and target/
RUN/held-out/          pairs held out of the training file, if no others were given
RUN/faults.jsonl       every pair that was dropped, or whose source is too long, with file, line and reason
RUN/encoded.safetensors  cached token ids, until the run is finished
RUN/log.jsonl          step, loss, learning rate, evaluations
RUN/translations.tsv   source, reference and translation of the evaluated pairs
RUN/model/             the finished model: qkv translate RUN TEXT
RUN/report.html        the report page
RUN/result.json        the figures; written last, so it exists only for a finished run
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qkv.config import merge
from qkv.data.labelled.examples import Fault
from qkv.data.pairs.batching import Languages, PairBatch, PairBatches, encode_pairs
from qkv.data.pairs.files import Pair
from qkv.errors import InputError
from qkv.files import sha256_of, to_json, write_text
from qkv.jobs.lifecycle import Finished, Lifecycle, write_faults
from qkv.jobs.translate.data import (
    PairData,
    cache_pairs,
    check_bitext_unchanged,
    clear_cached_ids,
    dropped_faults,
    pin_bitext,
    read_pairs,
    save_tokenizers,
    write_digit_pairs,
    write_held_out,
)
from qkv.jobs.translate.page import TranslationFacts, translation_page
from qkv.jobs.translate.settings import TranslateConfig, model_config
from qkv.metrics import translation as scores
from qkv.metrics.numbers import perplexity
from qkv.models.folders.hub import shown_name
from qkv.models.pretraining import resolve_minutes
from qkv.models.seq2seq.network import Seq2Seq
from qkv.models.transformer.folder import save_translation
from qkv.models.transformer.network import Transformer
from qkv.models.transformer.objective import TranslationObjective, evaluate_translation, translation_flops
from qkv.nn.block import find_matrices
from qkv.nn.gpu.layers import WeightCasts
from qkv.nn.recurrent import Cell
from qkv.report.page import write_report
from qkv.search.options import GenerateConfig
from qkv.tasks.translate import (
    SEARCH_TOKENS_PER_BATCH,
    TranslationNetwork,
    TranslationScore,
    check_scores,
    score_translations,
    translate_batch,
)
from qkv.train.device import Sizes, device_named, memory_for
from qkv.train.distributed import current_world
from qkv.train.log import Progress, Silent
from qkv.train.loop import Job, Trainer, step_seed
from qkv.train.run_folder import (
    CONFIG,
    Outcome,
    Sessions,
    average_checkpoints,
    checkpoints_to_keep,
    forget_stops,
    remove_run,
)

# --- Evaluation of a translation model: the loss of the references, and its own translations.
#
# The pairs are fixed: the loss uses all pairs that are not too long; during training some of them, evenly spaced, are
# translated greedily; at the end all are translated with beam search.

SELECTION = "selection"
"""What the best weights are chosen by; the more the better."""
_SHOWN = 8  # translations that are shown as the training goes on
TIE = 1e-9
"""What a nat of loss counts where weights translate equally well: less than any difference between translations."""


class TranslationEvaluation:
    """Evaluates a model on dev; returns the figures for the log."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        languages: Languages,
        language: str,
        *,
        select: str,
        translate: int,
        max_length: int,
        tokens_per_batch: int,
    ) -> None:
        self.languages, self.language, self.select = languages, language, select
        found = encode_pairs(pairs, languages, max_length)
        if not len(found.pairs):
            raise InputError(
                f"Every pair of dev has a side of more than max_length = {max_length} tokens: nothing to evaluate on."
            )
        self.batches = PairBatches(found.pairs, languages, tokens_per_batch)
        left_out = {*found.too_long, *found.nothing}
        fitting = [pair for number, pair in enumerate(pairs) if number not in left_out]
        self.pairs = [fitting[place] for place in pick_evenly(len(fitting), translate)]
        self.sources = languages.read([pair.source for pair in self.pairs])
        self.decoding = GenerateConfig(max_length=max_length, max_ratio=2.0)
        self.tokens_per_batch = tokens_per_batch

    def __call__(self, model: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        loss, right, count = evaluate_translation(model, map(self.batches.collate, self.batches.epoch(0)))
        result |= {"loss": loss, "next_loss": loss, "next_accuracy": right / max(1, count)}
        result |= {"next_correct": right, "next_count": count, "next_perplexity": perplexity(loss)}
        if self.pairs:
            texts = self._translations(model)
            references = [pair.target for pair in self.pairs]
            score = score_translations([pair.source for pair in self.pairs], texts, references, self.language)
            result |= {"exact": score.exact, "translated": len(texts)}
            if score.bleu is not None and score.chrf is not None:
                result |= {"bleu": score.bleu.value, "chrf": score.chrf.value}
            result["samples"] = [
                {"source": self.pairs[row].source, "reference": references[row], "translation": texts[row]}
                for row in pick_evenly(len(texts), _SHOWN)
            ]
        result[SELECTION] = -loss if self.select == "loss" else result[self.select] - TIE * loss
        return result

    def _translations(self, model: TranslationNetwork) -> list[str]:
        found = translate_batch(
            model, self.languages, self.sources, self.decoding, tokens_per_batch=2 * self.tokens_per_batch
        )
        return [self.languages.target.decode(hypotheses[0].tokens) for hypotheses in found]


def pick_evenly(count: int, wanted: int) -> list[int]:
    """At most this many of `count` indices, evenly spaced, since files are often sorted.

    >>> pick_evenly(10, 4), pick_evenly(3, 8)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    wanted = min(count, wanted)
    return [count * place // wanted for place in range(wanted)]


def find_unevaluated(dev: Sequence[Pair], languages: Languages, max_length: int) -> list[Fault]:
    """The faults of dev pairs that are too long or empty for the model, and therefore not evaluated."""
    found = encode_pairs(dev, languages, max_length)
    return dropped_faults(dev, found, max_length, "dev: {}, no weights are chosen by it")


def find_untranslatable(name: str, pairs: Sequence[Pair], languages: Languages, max_length: int) -> list[Fault]:
    """The pairs whose source `qkv translate` refuses or which have no tokens. They count with an empty translation:
    without them the score would be that of an easier set."""
    faults = []
    for pair, row in zip(pairs, languages.read([pair.source for pair in pairs]), strict=True):
        if not can_translate(row, max_length):
            kind, what = ("too long", f"more than {max_length - 1}") if len(row) > 1 else ("empty text", "no")
            message = f"{name}: {what} tokens in the source, which counts as translated with nothing"
            faults.append(Fault(pair.place, kind, message, "noted"))
    return faults


def can_translate(source: Sequence[int], max_length: int) -> bool:
    """Whether a source can be translated; `source` includes its end, as from `Languages.read`."""
    return 1 < len(source) <= max_length


class PairEvaluation(NamedTuple):
    """Translations of pairs, in order; empty for a source that cannot be translated."""

    texts: list[str]
    finished: list[bool]  # False: stopped because it was too long


def translate_pairs(
    network: TranslationNetwork,
    languages: Languages,
    pairs: Sequence[Pair],
    decoding: GenerateConfig,
    max_length: int,
    *,
    tokens_per_batch: int = SEARCH_TOKENS_PER_BATCH,
    progress: Callable[[int], None] | None = None,
) -> PairEvaluation:
    """Translate all pairs; those that `find_untranslatable` lists get an empty translation."""
    rows = languages.read([pair.source for pair in pairs])
    places = [place for place, row in enumerate(rows) if can_translate(row, max_length)]
    found = translate_batch(
        network,
        languages,
        [rows[place] for place in places],
        decoding,
        tokens_per_batch=tokens_per_batch,
        progress=progress,
    )
    result = PairEvaluation([""] * len(pairs), [True] * len(pairs))
    for place, hypotheses in zip(places, found, strict=True):
        result.texts[place] = languages.target.decode(hypotheses[0].tokens)
        result.finished[place] = hypotheses[0].finished
    return result


def check_selection(select: str, tell: Callable[[str], None]) -> None:
    """Refuse, before data is read, a selection metric that cannot be computed here; report which other scores will be
    missing."""
    if scores.is_available():
        return
    install = "sacrebleu, which is not installed: pip install 'qkv[translate]'"
    if select == "bleu":
        raise InputError(
            f"select = bleu: the best weights are to be those of the best BLEU, which is counted by {install}. Or "
            "choose by the loss (--set select=loss), in a new run."
        )
    by = "the lowest loss" if select == "loss" else "the most exact translations"
    tell(
        f"note: BLEU and chrF are counted by {install}. Without it the best weights are those of {by}, as was asked "
        "for, and of the translations no more is told than how many are exactly the reference."
    )


@dataclass(frozen=True)
class Chosen:
    name: str  # which weights are kept
    evaluation: dict[str, Any]


class TranslateSession:
    def __init__(self, config: TranslateConfig, out: Path, progress: Progress, begins: bool) -> None:
        self.out, self.progress = out, progress
        device_named(config.device)
        check_selection(config.select, progress.message)
        if begins:
            config = replace(config, bitext=pin_bitext(config.bitext))
        else:
            check_bitext_unchanged(config.bitext)
        config, self.data = _read(config, out, progress if begins else Silent())
        if begins:
            check_scores(config.bitext.target_language)
            config = _resolve_defaults(config, self.data, progress)
        self.network = new_network(config, self.data)
        self.trainer = _trainer(config, self.data, self.network, out, progress)
        self.config = resolve_minutes(config, self.trainer, progress) if begins else config
        self.begins = begins

    def train(self) -> Outcome:
        is_main = current_world().is_main
        if is_main:
            _write_data(self.config, self.data, self.out, self.progress)
        if is_main and not self.begins and self.config.average > 1:
            forget_stops(self.out / "checkpoints", self.config.train.save_every)
        self.began = time.perf_counter()
        return self.trainer.run()

    def stop(self, outcome: Outcome) -> None:
        sessions = Sessions.of(self.out).ended(outcome, self.began, self.trainer.device)
        sessions.write(self.out)
        write_report(self.out, translation_page(self.out, self._facts(sessions)))

    def finish(self, outcome: Outcome) -> None:
        """Choose the weights, evaluate, and write the model and the report."""
        config, data, out, trainer = self.config, self.data, self.out, self.trainer
        sessions = Sessions.of(out).ended(outcome, self.began, trainer.device)
        facts, chosen = self._facts(sessions), self._choose()
        name, score = self._judge()
        result: dict[str, Any] = {
            "model_type": config.model_type,
            "source_language": config.bitext.source_language,
            "target_language": config.bitext.target_language,
            "steps": outcome.step,
            "seed": config.train.seed,
            "best_step": trainer.best.step if data.dev else None,
            "weights": chosen.name,
            "dev": {key: value for key, value in chosen.evaluation.items() if key != "samples"},
            "scores": {} if score is None else {name: score.to_dict()},
            "parameters": facts.parameters,
            "seconds": round(sessions.seconds, 1),
        }
        record = {
            "job": "translate",
            **{key: result[key] for key in ("source_language", "target_language", "steps", "weights", "scores")},
            "max_length": config.max_length,
            "train_sha256": [sha256_of(Path(one)) for one in (*config.bitext.train, *config.bitext.more)],
            "config": _public(config),
        }
        save_translation(out / "model", self.network, data.source, data.target, record)
        write_report(out, translation_page(out, replace(facts, judged=name, score=score, weights=chosen.name)))
        sessions.write(out)
        write_text(out / "result.json", to_json(result))
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        clear_cached_ids(out)

    def _choose(self) -> Chosen:
        """The weights of the best evaluation, or the mean of the last checkpoints if it is better on dev."""
        config, data, trainer, tell = self.config, self.data, self.trainer, self.progress.message
        mean = average_checkpoints(
            self.out / "checkpoints", config.average, config.train.save_every, trainer.step, tell
        )
        if not data.dev:
            if mean:
                _take(trainer, mean.weights)
            return Chosen(f"the mean of {mean.count} checkpoints" if mean else "the last step's", {})
        trainer.take_best()
        best = trainer.evaluate()
        if not mean:
            return Chosen(f"step {trainer.best.step:,}'s", best)
        _take(trainer, mean.weights)
        found = trainer.evaluate()
        better = found[SELECTION] > best[SELECTION]
        tell(
            f"the mean of the last {mean.count} checkpoints has {config.select} {found[config.select]:.4g} on dev, "
            f"the best single one {best[config.select]:.4g}: the {'mean' if better else 'single one'} is kept"
        )
        if better:
            return Chosen(f"the mean of {mean.count} checkpoints", found)
        trainer.take_best()
        return Chosen(f"step {trainer.best.step:,}'s", best)

    def _judge(self) -> tuple[str, TranslationScore | None]:
        """Translate the test pairs, or else those of dev, with `decoding`; write and score them.

        All of them count: of a source that `qkv translate` would refuse as too long, the translation is empty.
        """
        config, data = self.config, self.data
        name, pairs = _evaluated_pairs(data)
        if not pairs:
            return name, None
        self.progress.message(f"translating {len(pairs):,} texts of {name}")
        network, budget = self.network.eval(), 4 * config.tokens_per_batch
        with memory_for(self.trainer.device, f"translating {name}"):
            found = translate_pairs(
                network, data.languages, pairs, config.decoding, config.max_length, tokens_per_batch=budget
            )
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        table = zip(sources, references, found.texts, strict=True)
        lines = ("\t".join(" ".join(text.split()) for text in row) + "\n" for row in table)
        write_text(self.out / "translations.tsv", "source\treference\ttranslation\n" + "".join(lines))
        language, unfinished = config.bitext.target_language, found.finished.count(False)
        return name, score_translations(
            sources, found.texts, references, language, interval=True, unfinished=unfinished
        )

    def _facts(self, sessions: Sessions) -> TranslationFacts:
        config, data = self.config, self.data
        return TranslationFacts(
            model_type=config.model_type,
            source_language=config.bitext.source_language,
            target_language=config.bitext.target_language,
            vocabulary_sizes=tuple(one.size for one in dict.fromkeys((data.source, data.target))),
            pairs=(len(data.train), len(data.dev), len(data.test)),
            left_out=sum(fault.action == "dropped" for fault in data.faults),
            target_tokens=int(data.train.target.offsets[-1]) + len(data.train),
            parameters=sum(parameter.numel() for parameter in self.network.parameters()),
            seconds=sessions.seconds,
            peak_memory=sessions.peak_memory,
            resumed_from=sessions.resumed_from,
        )


TRANSLATING = Lifecycle("translate", TranslateConfig(), TranslateSession)


def start_example(
    name: str, config: TranslateConfig, out: Path, progress: Progress, overwrite: bool = False
) -> Finished:
    """Write the digits of data.py into the run's folder and start it; if it cannot start, nothing is left."""
    TRANSLATING.check_folder(out, overwrite)
    world = current_world()
    if overwrite and world.is_main:
        remove_run(out)
    was_there = out.exists()
    try:
        with world.main_first():  # the others write the same
            files = {part: (str(file),) for part, file in write_digit_pairs(out / "pairs").items()}
        return TRANSLATING.start_in(merge(config, {"bitext": files}, f"example {name}"), out, progress)
    finally:
        if world.is_main and not (out / CONFIG).exists():
            shutil.rmtree(out / "pairs" if was_there else out, ignore_errors=True)


def _read(config: TranslateConfig, out: Path, progress: Progress) -> tuple[TranslateConfig, PairData]:
    """The pairs, and their faults with those of dev and test pairs that are too long."""
    config, data = read_pairs(config, out, progress.message)
    dev = find_unevaluated(data.dev, data.languages, config.max_length)
    name, pairs = _evaluated_pairs(data)
    judged = find_untranslatable(name, pairs, data.languages, config.max_length)
    longest = f"more than {config.max_length - 1} tokens, or none"
    if dev:
        progress.message(
            f"note: {len(dev):,} of {len(data.dev):,} pairs of dev have {longest}, on a side: no weights are chosen by "
            "them (faults.jsonl). max_length can be raised."
        )
    if judged:
        progress.message(
            f"note: {len(judged):,} of {len(pairs):,} sources of {name} have {longest}: they count as translated with "
            "nothing (faults.jsonl). max_length can be raised."
        )
    return config, replace(data, faults=(*data.faults, *dev, *judged))


def _write_data(config: TranslateConfig, data: PairData, out: Path, progress: Progress) -> None:
    """Write the tokenizers, faults and held-out pairs; also on a resume, since a run may have been killed before."""
    if not (out / "tokenizer").is_dir():
        save_tokenizers(out, data)
    cache_pairs(out, config, data, progress.message)
    write_held_out(out, config, data)
    write_faults(out, data.faults)


def _resolve_defaults(config: TranslateConfig, data: PairData, progress: Progress) -> TranslateConfig:
    """The settings with every default that depends on the data written out."""
    config = _divide_step(config, progress)
    batches = _batches(config, data)
    train = config.train
    if config.epochs is not None:
        train = replace(train, steps=max(1, round(config.epochs * batches.steps_per_epoch)))
    train = replace(train, keep=max(train.keep, checkpoints_to_keep(config.average)))
    tokens = int(batches.weights.sum())
    sides = "one vocabulary" if data.source is data.target else "two vocabularies"
    sizes = " and ".join(f"{one.size:,}" for one in dict.fromkeys((data.source, data.target)))
    progress.message(
        f"{config.bitext.source_language} → {config.bitext.target_language}: {len(data.train):,} pairs to train on, "
        f"{len(data.dev):,} development and {len(data.test):,} test pairs; {sides} of {sizes} tokens; about "
        f"{tokens / batches.steps_per_epoch:,.0f} tokens a step, {batches.steps_per_epoch:,.0f} steps an epoch"
    )
    return replace(config, train=train)


def _divide_step(config: TranslateConfig, progress: Progress) -> TranslateConfig:
    """With at least as many batches a step as there are processes, of about as many tokens in all."""
    size, number, tokens = current_world().size, config.train.accumulate, config.tokens_per_batch
    if number % size == 0:
        return config
    more = -(-number // size) * size
    progress.message(
        f"{size} processes: a step of {number * tokens:,} tokens is {more} batches (tokens_per_batch = "
        f"{max(1, number * tokens // more):,}, train.accumulate = {more})"
    )
    return replace(
        config, tokens_per_batch=max(1, number * tokens // more), train=replace(config.train, accumulate=more)
    )


def _batches(config: TranslateConfig, data: PairData) -> PairBatches:
    train = config.train
    return PairBatches(
        data.train, data.languages, config.tokens_per_batch, accumulate=train.accumulate, seed=train.seed
    )


def new_network(config: TranslateConfig, data: PairData) -> Transformer | Seq2Seq:
    """A network with random weights from the seed."""
    joint = data.source is data.target
    sizes = model_config(config, data.source.size, data.target.size, joint=joint)
    torch.manual_seed(step_seed(config.train.seed, 1 << 20))
    network: Transformer | Seq2Seq = config.choice.network(sizes)
    return network


def _trainer(
    config: TranslateConfig, data: PairData, network: Transformer | Seq2Seq, out: Path, progress: Progress
) -> Trainer[PairBatch]:
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    network.to(device_named(config.device))
    batches = _batches(config, data)
    return Trainer(
        Job(
            network,
            TranslationObjective(config.smoothing),
            batches,
            out,
            evaluate=_evaluation(config, data) if data.dev else None,
            flops=translation_flops(network),
            best_by=SELECTION if data.dev else None,
            matrices=_matrices(network),
            sizes=_sizes(batches),
            around=WeightCasts,
        ),
        config.train,
        progress,
    )


def _evaluation(config: TranslateConfig, data: PairData) -> TranslationEvaluation:
    return TranslationEvaluation(
        data.dev,
        data.languages,
        config.bitext.target_language,
        select=config.select,
        translate=config.evaluation_pairs,
        max_length=config.max_length,
        tokens_per_batch=config.tokens_per_batch,
    )


def _matrices(network: Transformer | Seq2Seq) -> dict[str, int]:
    """The weights that Muon optimises and the number of matrices in each."""
    found = find_matrices(network)
    for name, module in network.named_modules():
        if isinstance(module, Cell):
            found |= {f"{name}.from_input.weight": module.blocks, f"{name}.from_state.weight": module.blocks}
    return found


def _sizes(batches: PairBatches) -> Sizes[PairBatch]:
    """Smaller batches with more accumulation for the same step."""
    size, accumulate = batches.tokens_per_batch, batches.accumulate

    def cut(tokens: int, step: int) -> list[PairBatch]:
        more = accumulate * (size // tokens)
        return PairBatches(batches.pairs, batches.languages, tokens, accumulate=more, seed=batches.seed)(step)

    def settings(tokens: int) -> str:
        more = accumulate * (size // tokens)
        return (
            f"Begin anew with --set tokens_per_batch={tokens} --set train.accumulate={more}, for about the same step."
        )

    return Sizes(size, "tokens", [size >> shift for shift in range(1, 8) if size >> shift], cut, settings)


def _public(config: TranslateConfig) -> dict[str, Any]:
    """The settings without paths of this machine, since a model may be shared."""
    found = asdict(config)
    for name in ("train", "more", "dev", "test"):
        found["bitext"][name] = [Path(file).name for file in found["bitext"][name]]
    for name in ("source", "target"):
        if found["tokenizer"][name] is not None:
            found["tokenizer"][name] = shown_name(found["tokenizer"][name])
    return found


def _take(trainer: Trainer[PairBatch], weights: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in trainer.trained().items():
            parameter.copy_(weights[name])


def _evaluated_pairs(data: PairData) -> tuple[str, tuple[Pair, ...]]:
    return ("test", data.test) if data.test else ("dev", data.dev)
