"""Training of ELMo (Peters et al. 2018): shards in, a model folder out.

The settings are the keys of RUN/config.toml, of recipes and of --set. The evaluation is the perplexity of both language
models on held-out documents, over the same tokens every time and the whole vocabulary. Checkpoints hold the recurrent
states of both directions, so that a resumed run continues in the middle of its texts and gives the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.config import JobSettings, Requested, given_changes
from qkv.data.batch import Integers
from qkv.data.corpus.rows import SpecialIds, TextConfig
from qkv.data.corpus.shards import Shards, map_arrays
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE
from qkv.metrics.numbers import perplexity
from qkv.models.elmo.network import Elmo, ElmoConfig, tokens_by_id
from qkv.models.elmo.objective import (
    BothDirections,
    CarryingBoth,
    TrainingFlops,
    TwoWayBatches,
    TwoWays,
    Unigram,
    evaluate_both_directions,
)
from qkv.models.nnlm.pretrain import CarryingTrainer, open_evaluation
from qkv.models.pretraining import (
    Pretraining,
    check_own,
    collect_page_facts,
    evaluation_figures,
    no_init,
    open_corpus,
    refuse_settings,
    row_sizes,
    save_network,
)
from qkv.nn.gpu.layers import WeightCasts
from qkv.nn.recurrent import LSTM
from qkv.nn.words import Highway
from qkv.report.bilingual import Phrase
from qkv.report.charts import Chart
from qkv.report.page import Charts, Figure, RunPage
from qkv.report.run_log import (
    EVALUATION,
    TRAINING,
    LanguageModelFacts,
    RunLog,
    language_model_page,
    pair_series,
    read_run,
)
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Progress
from qkv.train.loop import Job, TrainConfig, Trainer
from qkv.train.run_folder import Sessions


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
        # width and cell_width must fit together, which is checked when both were said (`_checked`)
        ElmoConfig.preset(self.size, vocabulary_size=1, **given_changes(self, "width", "cell_width"))

    def config(self, vocabulary_size: int) -> ElmoConfig:
        return ElmoConfig.preset(self.size, vocabulary_size=vocabulary_size, **given_changes(self))


@dataclass(frozen=True)
class ElmoTraining:
    model_type: str = "elmo"
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    rows: int = 32  # a batch: streams of text in each direction
    negatives: int = 4096  # negative samples per step; all words if the vocabulary is less than twice as large
    evaluation_tokens: int = 100_000  # of the held-out documents, at most
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    text: TextConfig = field(default_factory=TextConfig)
    model: ElmoChoice = field(default_factory=ElmoChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_own(self, "elmo", "rows", "negatives", "evaluation_tokens")
        refuse_settings(self, "compile", "recompute")

    def samples(self, vocabulary_size: int) -> bool:
        """Whether the softmax is sampled."""
        return vocabulary_size >= 2 * self.negatives


def _checked(config: ElmoTraining, given: Requested) -> ElmoTraining:
    config.model.config(1)
    return config


# Evaluation


class TwoWayEvaluation:
    """Evaluates a model on held-out text; returns the figures for the log."""

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
        build = partial(TwoWayBatches, held_out, special, shuffle=False, sizes=sizes)
        self.batches, self.count = open_evaluation(build, held_out, config, rows, tokens)

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, CarryingBoth) and self.batches is not None
        device, read = next(model.parameters()).device, self.batches
        # with its own states: those of the training stay unchanged
        own = CarryingBoth(model.network, read.streams).to(device).eval()
        with torch.inference_mode():
            found = evaluate_both_directions(own, (read.two_ways(step)[0] for step in range(self.count)))
        result: dict[str, Any] = {}
        for name, figures in found.items():
            result |= evaluation_figures(name, *figures)
        return result


# The run


def _trainer(config: ElmoTraining, out: Path, progress: Progress, begins: bool) -> CarryingTrainer[TwoWays]:
    device, corpus, held_out = open_corpus(config, begins)
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
    return CarryingTrainer(
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
    """(V,) how often each token is a target: its count in the shards, plus the tokens added between texts."""
    counts = torch.from_numpy(map_arrays(corpus.folder / TOKEN_COUNTS_FILE)["counts"].astype("int64"))
    counts[tokenizer.cls_id] += corpus.n_documents
    counts[tokenizer.sep_id] += corpus.n_sentences if config.text.ends == "sentence" else corpus.n_documents
    return counts


def _matrices(network: Elmo) -> dict[str, int]:
    """The weights that Muon optimises and the number of matrices in each; tables of bytes and words are not among
    them."""
    found = {"network.characters.project.weight": 1}
    for name, module in network.named_modules(prefix="network"):
        if isinstance(module, LSTM):
            found |= {f"{name}.from_input.weight": 4, f"{name}.from_state.weight": 4, f"{name}.project.weight": 1}
        elif isinstance(module, Highway):
            found |= {f"{name}.change.weight": 1, f"{name}.gate.weight": 1}
    return found


def _save(config: ElmoTraining, out: Path, trainer: Trainer[TwoWays], corpus: Shards) -> None:
    save_network(config, out, _trained(trainer), corpus)


def _trained(trainer: Trainer[TwoWays]) -> Elmo:
    assert isinstance(trainer.job.model, CarryingBoth)
    return trainer.job.model.network


def _page(config: ElmoTraining, out: Path, trainer: Trainer[TwoWays], corpus: Shards, sessions: Sessions) -> RunPage:
    network = _trained(trainer)
    sampled = config.negatives if config.samples(network.config.vocabulary_size) else None
    return elmo_page(out, collect_page_facts(config.model_type, network, corpus, sessions), sampled)


PRETRAINING_ELMO = Pretraining(
    JobSettings(ElmoTraining(), check=_checked, refused=no_init("elmo")), _trainer, _save, _page
)


# --- The report of ELMo's training: that of a language model (report/run_log.py), whose figures are those of the
# direction that reads forward, and beside them the other direction's.

BACKWARD = Phrase("Backward: the token before", "反向：前一个词元")


def elmo_page(run: Path, facts: LanguageModelFacts, sampled: int | None = None) -> RunPage:
    """`sampled`: negative samples per step; None for the full softmax."""
    page, log = language_model_page(run, facts), read_run(run)
    notices = page.notices
    if sampled is not None:
        notices += (
            Phrase(
                f"In training, words are told from {sampled:,} that are drawn at every step, and so its loss and its "
                "share guessed right are better than among all words. Those of held-out text are among all.",
                f"训练时，每步只与抽取的 {sampled:,} 个词比较，因此训练的损失和猜对的比例都比在全部词中好看。"
                "留出文本上的数字是在全部词中算的。",
            ),
        )
    if not log.steps:
        return replace(page, notices=notices)
    return replace(
        page,
        facts=(Phrase("ELMo: language models of both directions", "ELMo：正、反两个方向的语言模型"), *page.facts[1:]),
        notices=notices,
        figures=(*page.figures, *_figures(log)),
        sections=(Charts(BACKWARD, tuple(_curves(log, facts))), *page.sections),
    )


def _figures(log: RunLog) -> Iterator[Figure]:
    source, found = EVALUATION, log.evaluated("previous_loss")
    if not found:
        source, found = TRAINING, log.logged("previous_loss")
    if found:
        yield Figure(
            Phrase("Perplexity, backward", "困惑度（反向）"),
            f"{perplexity(found[-1][1]):,.1f}",
            Phrase(f"{source.en}: of the token before", f"{source.zh}：预测前一个词元"),
        )


def _curves(log: RunLog, facts: LanguageModelFacts) -> Iterator[Chart]:
    seams = tuple(float(step) for step in facts.resumed_from)
    loss = Phrase("Loss of the token before", "前一词元的损失")
    accuracy = Phrase("Tokens before guessed right", "前一词元猜对的比例")
    yield Chart(loss, pair_series(log, "previous_loss"), seams=seams, shape="wide")
    yield Chart(accuracy, pair_series(log, "previous_accuracy"), seams=seams, format="percent", from_zero=True)
