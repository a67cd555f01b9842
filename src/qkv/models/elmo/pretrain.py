"""Every setting of ELMo's training, with its default: the keys of RUN/config.toml, of recipes and of --set."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.config import merge, override
from qkv.data.corpus.running_text import Integers, SpecialIds, TextConfig
from qkv.data.corpus.shards import Shards, map_arrays
from qkv.data.corpus.writer import COUNTS
from qkv.errors import InputError
from qkv.metrics.numbers import perplexity
from qkv.models.elmo.network import Elmo, ElmoConfig, tokens_by_id
from qkv.models.elmo.objective import (
    BothDirections,
    CarryingBoth,
    TrainingFlops,
    TwoWayBatches,
    TwoWays,
    Unigram,
    evaluated,
)
from qkv.models.elmo.page import elmo_page
from qkv.models.folders.own import save_folder
from qkv.models.language_model import LEAST, facts_of, row_sizes
from qkv.models.pretraining import Finished, Training, opened
from qkv.models.table import read_recipe
from qkv.nn.characters import Highway
from qkv.nn.gpu.layers import WeightCasts
from qkv.nn.recurrent import LSTM
from qkv.report.page import RunPage
from qkv.text.tokenizer import Tokenizer
from qkv.train.device import device_named
from qkv.train.loop import Job, TrainConfig, Trainer
from qkv.train.progress import Progress, Silent
from qkv.train.run_folder import Sessions

MODEL_TYPE = "elmo"


@dataclass(frozen=True)
class ElmoChoice:
    size: str = "small"  # a preset of models/elmo/network.py; the fields below change it
    filters: tuple[int, ...] = ()  # how many see 1 byte, 2 bytes, …; none given: the preset's
    byte_width: int | None = None
    longest: int | None = None
    highways: int | None = None
    layers: int | None = None
    width: int | None = None
    cell_width: int | None = None
    clip: float | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        # width and cell_width must fit together, which is checked when both were said (`configured`)
        ElmoConfig.preset(self.size, **self._given("width", "cell_width"), vocabulary_size=1)

    def config(self, vocabulary_size: int) -> ElmoConfig:
        return ElmoConfig.preset(self.size, vocabulary_size=vocabulary_size, **self._given())

    def _given(self, *left_out: str) -> dict[str, Any]:
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("size", *left_out)}
        return {name: value for name, value in named.items() if value not in (None, ())}


@dataclass(frozen=True)
class ElmoTraining:
    model_type: str = MODEL_TYPE
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    rows: int = 32  # a batch: streams of text in each direction
    negatives: int = 4096  # words that those of a step are told from; of a vocabulary less than twice as large, all are
    evaluation_tokens: int = 100_000  # of the held-out documents, at most
    device: str = "cpu"
    text: TextConfig = field(default_factory=TextConfig)
    model: ElmoChoice = field(default_factory=ElmoChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.model_type != MODEL_TYPE:
            raise InputError(f"These are the settings of model_type '{MODEL_TYPE}', not of '{self.model_type}'.")
        for name in ("rows", "negatives", "evaluation_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("compile", "recompute"):
            if getattr(self.train, name):
                raise InputError(f"train.{name} does nothing for {MODEL_TYPE}: leave it out.")

    def samples(self, vocabulary_size: int) -> bool:
        """Whether words are told from some of the vocabulary only."""
        return vocabulary_size >= 2 * self.negatives


def configured(data: str, recipe: Path | None, flags: Mapping[str, Any], assignments: Sequence[str]) -> ElmoTraining:
    """The defaults, then a recipe's differences, then the command line's flags, then each --set."""
    if "train.minutes" in flags and any(one.replace(" ", "").startswith("train.steps=") for one in assignments):
        raise InputError("--minutes and train.steps both say how long to train. Give one of them.")
    config = merge(ElmoTraining(), read_recipe(recipe, MODEL_TYPE), str(recipe))
    changes: dict[str, Any] = {"data": data}
    for key, value in flags.items():
        table, _, name = key.rpartition(".")
        (changes.setdefault(table, {}) if table else changes)[name] = value
    config = override(merge(config, changes, "command line"), assignments)
    config.model.config(1)
    return config


# --- How well ELMo's two language models predict documents they were not trained on: perplexity, over the same tokens
# every time and among the whole vocabulary.


class TwoWayEvaluation:
    """Called with a model, answers with what goes into the log."""

    def __init__(
        self,
        held_out: Shards,
        special: SpecialIds,
        config: TextConfig,
        rows: int,
        tokens: int,
        sizes: Integers | None = None,
    ) -> None:
        """`sizes` (V,) are how many bytes each token has."""
        self.count = 0  # of batches
        total = held_out.n_tokens
        if total < 2:
            return
        config = TextConfig(min(config.length, total - 1), config.ends)
        rows = max(1, min(rows, min(total, tokens) // (LEAST * config.length)))
        self.batches = TwoWayBatches(held_out, special, config, rows=rows, shuffle=False, sizes=sizes)
        self.count = min(self.batches.steps_per_epoch, -(-tokens // (rows * config.length)))

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, CarryingBoth)
        device = next(model.parameters()).device
        own = CarryingBoth(model.network, self.batches.streams).to(device).eval()  # those of the training go on after
        with torch.inference_mode():
            found = evaluated(own, (self.batches.two_ways(step)[0] for step in range(self.count)))
        result: dict[str, Any] = {}
        for name, (loss, right, count) in found.items():
            result |= {f"{name}_loss": loss, f"{name}_accuracy": right / max(1, count)}
            result |= {f"{name}_correct": right, f"{name}_count": count, f"{name}_perplexity": perplexity(loss)}
        return result


# --- A whole training of ELMo: shards in, a model folder out, exactly resumable; and the folder opened again.
#
# The folder of a run is that of a language model's (models/language_model.py). Checkpoints hold the states that both
# directions
# carry, so that a run which was killed goes on in the middle of its texts.


class TwoWayTrainer(Trainer[TwoWays]):
    """A trainer whose checkpoints hold the carried states as well, and whose trials leave none behind."""

    def _begin(self) -> None:
        super()._begin()
        assert isinstance(self.job.model, CarryingBoth)
        self.job.model.forget()

    def trained(self) -> dict[str, Tensor]:
        carried = {name: part for name, part in self.job.model.named_buffers() if name.startswith("carried_")}
        return super().trained() | carried


def start(config: ElmoTraining, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    return _training().start(config, out, progress)


def resume(run: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    return _training().resume(run, progress)


def _training() -> Training[ElmoTraining, TwoWays]:
    return Training(ElmoTraining(), _trainer, _save, _page)


def _trainer(config: ElmoTraining, out: Path, progress: Progress, begins: bool) -> TwoWayTrainer:
    tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    device = device_named(config.device)
    corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
    tokenizer = corpus.tokenizer()
    torch.manual_seed(config.train.seed)  # the initial weights
    network = Elmo(config.model.config(tokenizer.size), tokens_by_id(tokenizer))
    sizes = network.sizes().numpy()
    batches = TwoWayBatches(
        corpus,
        tokenizer,
        config.text,
        rows=config.rows,
        accumulate=config.train.accumulate,
        seed=config.train.seed,
        sizes=sizes,
    )
    sampler, words = None, float(tokenizer.size)  # and how many words a target is scored against
    if config.samples(tokenizer.size):
        sampler = Unigram(_counts(config, corpus, tokenizer).to(device), config.negatives)
        words = sampler.log_chances.exp().sum().item()
    evaluate = TwoWayEvaluation(held_out, tokenizer, config.text, config.rows, config.evaluation_tokens, sizes)
    if not evaluate.count:
        tell("No text is held out, so nothing is evaluated. For that, prepare the corpus with --hold-out.")
    return TwoWayTrainer(
        Job(
            CarryingBoth(network, batches.streams).to(device),
            BothDirections(sampler),
            batches.two_ways,
            out,
            evaluate=evaluate if evaluate.count else None,
            flops=TrainingFlops(network, words),
            matrices=_matrices(network),
            sizes=row_sizes(batches, out, TwoWayBatches.two_ways),
            around=WeightCasts,
        ),
        config.train,
        progress,
    )


def _counts(config: ElmoTraining, corpus: Shards, tokenizer: Tokenizer) -> Tensor:
    """(V,) How often each token is to be predicted: those of the shards, and what running text puts between them."""
    counts = torch.from_numpy(map_arrays(corpus.folder / COUNTS)["counts"].astype("int64"))
    counts[tokenizer.cls_id] += corpus.n_documents
    counts[tokenizer.sep_id] += corpus.n_sentences if config.text.ends == "sentence" else corpus.n_documents
    return counts


def _matrices(network: Elmo) -> dict[str, int]:
    """What Muon takes: the weights inside, and how many matrices lie in each; not the tables of bytes and words."""
    found = {"network.characters.project.weight": 1}
    for name, module in network.named_modules(prefix="network"):
        if isinstance(module, LSTM):
            found |= {f"{name}.from_input.weight": 4, f"{name}.from_state.weight": 4, f"{name}.project.weight": 1}
        elif isinstance(module, Highway):
            found |= {f"{name}.change.weight": 1, f"{name}.gate.weight": 1}
    return found


def _save(config: ElmoTraining, out: Path, trainer: Trainer[TwoWays], corpus: Shards) -> None:
    network = _trained(trainer)
    record = {"job": "pretrain", "steps": config.train.steps, "config": dataclasses.asdict(config)}
    sizes = dataclasses.asdict(network.config)
    save_folder(out / "model", MODEL_TYPE, sizes, network.state_dict(), corpus.tokenizer(), record)


def _trained(trainer: Trainer[TwoWays]) -> Elmo:
    assert isinstance(trainer.job.model, CarryingBoth)
    return trainer.job.model.network


def _page(config: ElmoTraining, out: Path, trainer: Trainer[TwoWays], corpus: Shards, sessions: Sessions) -> RunPage:
    network = _trained(trainer)
    sampled = config.negatives if config.samples(network.config.vocabulary_size) else None
    return elmo_page(out, facts_of(MODEL_TYPE, network, corpus, sessions), sampled)
