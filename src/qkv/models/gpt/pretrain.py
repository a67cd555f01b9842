"""Pretraining of a GPT (Radford et al. 2018, 2019): shards in, a folder of transformers' GPT-2 or OpenAI GPT out.

The settings are the keys of RUN/config.toml, of recipes and of --set. An evaluation predicts held-out documents and
continues prompts, the same ones every time. The loss is a mean over tokens, comparable between models of one tokenizer;
bits per character are comparable between all. They count the characters of the predicted tokens; characters that no
token shows, such as spaces between words, are shared out evenly. A resumed run gives the same bytes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn

from qkv.config import JobSettings, Requested, given_changes
from qkv.data.batch import Batch
from qkv.data.corpus.shards import Shards, hash_of, map_arrays
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE
from qkv.errors import InputError, listed
from qkv.metrics.numbers import bits_per_character
from qkv.models.family import WRITES, Loading
from qkv.models.folders.hub import locate
from qkv.models.gpt.dialects import GPT_FAMILY, dialect_of
from qkv.models.gpt.folder import open_gpt, save
from qkv.models.gpt.network import GPT, GPTConfig
from qkv.models.gpt.objective import Causal, CausalBatches, causal_flops, evaluate_causal
from qkv.models.gpt.tokenizer import never_written
from qkv.models.pretraining import (
    Pretraining,
    check_own,
    check_shape,
    check_size,
    collect_page_facts,
    evaluation_figures,
    init_licences,
    make_record,
    open_corpus,
    other_tokenizer,
    row_sizes,
)
from qkv.nn.block import FeedForward, find_matrices
from qkv.nn.gpu.layers import WeightCasts
from qkv.report.bilingual import Phrase, Words, safe, spans
from qkv.report.page import Figure, RunPage
from qkv.report.run_log import EVALUATION, LanguageModelFacts, RunLog, choose_evaluations, language_model_page, read_run
from qkv.search.beam import generate
from qkv.search.options import SAMPLING_DEFAULTS, GenerateConfig
from qkv.search.sampling import decode_continuation
from qkv.text.backend import ENDS_WORD
from qkv.text.tokenizer import Tokenizer
from qkv.text.wordpiece import CONTINUES
from qkv.train.log import Progress
from qkv.train.loop import Job, Trainer
from qkv.train.optim import TrainConfig
from qkv.train.run_folder import Sessions

_SHAPE = ("size", "layers", "width", "heads", "inner_width", "max_length", "order")
DROPOUTS = ("dropout", "attention_dropout", "embedding_dropout")


@dataclass(frozen=True)
class GPTChoice:
    size: str = "mini"  # a preset of models/gpt/network.py; the fields below change it
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    inner_width: int | None = None
    max_length: int | None = None  # positions; None: `length`, since no others would be trained
    order: str | None = None  # of norm and residual: "pre" as in GPT-2, "post" as in GPT
    # None: that of the --init folder, or the default of GPTConfig
    dropout: float | None = None  # of what each half of a block adds
    attention_dropout: float | None = None
    embedding_dropout: float | None = None

    def __post_init__(self) -> None:
        # width and heads must fit together, which is checked when both were said (`_checked`)
        GPTConfig.preset(self.size, vocabulary_size=1, **given_changes(self, "width", "heads"))
        GPTConfig.preset(self.size, vocabulary_size=1, heads=1, **given_changes(self, "heads"))

    def config(self, vocabulary_size: int, length: int) -> GPTConfig:
        """The config for rows of this many tokens; it must have a class of transformers, so that it can be saved."""
        settings = {"max_length": length} | given_changes(self)
        config = GPTConfig.preset(self.size, vocabulary_size=vocabulary_size, **settings)
        dialect_of(config)
        return config


@dataclass(frozen=True)
class GPTTrainConfig:
    model_type: str = "gpt"
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    init: str | None = None  # a folder to start from; None: random weights
    rows: int = 32  # a batch has about rows · length tokens
    length: int = 128  # tokens of a row; a document that has more becomes several rows
    evaluation_tokens: int = 100_000  # of the held-out documents, about so many at most
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    model: GPTChoice = field(default_factory=GPTChoice)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_own(self, "gpt", "rows", "length", "evaluation_tokens")


def _checked(config: GPTTrainConfig, given: Requested) -> GPTTrainConfig:
    check_size(config, given)
    if config.init is None and config.length > config.model.config(1, config.length).max_length:
        raise InputError(
            f"Rows of {config.length} tokens do not fit a model of {config.model.max_length} positions. Set length "
            "lower, or model.max_length higher."
        )
    return config


# Evaluation

_SEED = 20_180_611  # the day GPT was made known
PROMPTS = 2  # in addition to a text without a prompt
_SHORTEST = 3  # tokens of a prompt
WRITTEN = 100  # tokens of a sample, at most
_INSIDE = frozenset(map(chr, (*range(161, 173), *range(174, 192), *range(290, 324))))
"""How a byte tokenizer spells the continuation bytes of UTF-8 (80 to BF)."""


class _Prompt(NamedTuple):
    ids: list[int]  # the first may be the special token before documents
    text: str


class GPTEvaluation:
    """Evaluates a model on held-out text; returns the figures for the log."""

    def __init__(
        self, held_out: Shards, tokenizer: Tokenizer, end_id: int, length: int, rows: int, tokens: int
    ) -> None:
        self.tokenizer, self.end_id, self.length = tokenizer, end_id, length
        self.batches: list[Batch] = []
        self.prompts: list[_Prompt] = []
        if not held_out.n_documents:
            return
        self.batches = CausalBatches(held_out, end_id, length, rows=rows, seed=_SEED).beginning(tokens)
        written, everything = characters_of(tokenizer), np.array([held_out.n_tokens])
        counts = map_arrays(held_out.folder / TOKEN_COUNTS_FILE)["counts"] + np.bincount(
            held_out.tokens(np.zeros_like(everything), everything), minlength=len(written)
        )
        shares = written * (held_out.manifest["totals"]["characters"] / max(float(written @ counts), 1.0))
        self.characters = sum(float(shares[batch.labels["next"].numpy()].sum()) for batch in self.batches)
        self.prompts = [_Prompt([end_id], ""), *prompts(held_out, tokenizer, end_id, longest=length // 2)]

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, GPT)
        loss, right, count = evaluate_causal(model, self.batches)
        return {
            **evaluation_figures("next", loss / count, right, count),
            "bits_per_character": bits_per_character(loss, self.characters),
            "samples": self.written(model) if math.isfinite(loss) else [],
        }

    def written(self, model: GPT) -> list[dict[str, str]]:
        """Continuations of the prompts; sampled, from a fixed seed."""
        source = Batch.of([prompt.ids for prompt in self.prompts]).to(next(model.parameters()).device)
        room = min(WRITTEN, model.config.max_length + 1 - source.longest)
        options = GenerateConfig.of({"sample": True, **SAMPLING_DEFAULTS, "max_length": room, "seed": _SEED})
        never = never_written(self.tokenizer, model.config.vocabulary_size, self.end_id)
        state = model.start(source.ids, source.packing, longest=room)
        begin = source.ids[source.offsets[1:].long() - 1]
        texts = generate(model.step, state, begin, self.end_id, options, never=never)
        return [
            {
                "prompt": prompt.text,
                "text": decode_continuation(
                    self.tokenizer.decode, prompt.ids[prompt.ids[0] == self.end_id :], best.tokens
                ),
            }
            for prompt, (best,) in zip(self.prompts, texts, strict=True)
        ]


def characters_of(tokenizer: Tokenizer) -> NDArray[np.float64]:
    """(V,) the number of characters of each token: 0 for special tokens, at least 1 for an unknown one. A byte counts
    if a character begins with it."""
    found = np.zeros(tokenizer.size)
    of_bytes = isinstance(tokenizer.backend.pre_tokenizer, ByteLevel)
    for token, number in tokenizer.vocabulary.items():
        if number not in tokenizer.special_ids:
            plain = token.removeprefix(CONTINUES).removesuffix(ENDS_WORD) if tokenizer.kind != "character" else token
            found[number] = sum(one not in _INSIDE for one in token) if of_bytes else len(plain or token)
    if tokenizer.unk_id in tokenizer.special_ids - {tokenizer.sep_id}:
        found[tokenizer.unk_id] = 1
    return found


def prompts(held_out: Shards, tokenizer: Tokenizer, end_id: int, longest: int) -> list[_Prompt]:
    """The first sentences of documents, or any sentences if there are few documents, spread over the held-out text."""
    offsets = held_out.sentence_offsets
    lengths = np.diff(offsets)
    firsts = held_out.document_offsets[:-1]
    suits = (lengths >= _SHORTEST) & (lengths <= longest)
    suitable = firsts[suits[firsts]]
    if len(suitable) < PROMPTS:
        suitable = np.flatnonzero(suits)
    found = []
    for number in np.random.default_rng(_SEED).permutation(suitable)[:PROMPTS]:
        ids = held_out.tokens(offsets[number : number + 1], lengths[number : number + 1]).tolist()
        begins = [end_id] if number in firsts else []
        found.append(_Prompt([*begins, *ids], tokenizer.decode(ids)))
    return found


# The run


def _trainer(config: GPTTrainConfig, out: Path, progress: Progress, begins: bool) -> Trainer[Batch]:
    device, corpus, held_out = open_corpus(config, begins)
    tokenizer = corpus.tokenizer()
    if not tokenizer.has_marks:
        raise InputError(
            f"The tokenizer of {config.data} has no mark that ends a text, such as [SEP] or <|endoftext|>, and GPT "
            "learns where texts end. Prepare the corpus with another tokenizer."
        )
    torch.manual_seed(config.train.seed)  # the initial weights
    model = _model(config, tokenizer).to(device)
    end_id = tokenizer.sep_id
    batches = CausalBatches(
        corpus, end_id, config.length, rows=config.rows, accumulate=config.train.accumulate, seed=config.train.seed
    )
    evaluate = GPTEvaluation(held_out, tokenizer, end_id, config.length, config.rows, config.evaluation_tokens)
    return Trainer(
        Job(
            model,
            Causal(),
            batches,
            out,
            evaluate=evaluate if evaluate.batches else None,
            flops=partial(causal_flops, model),
            compiled=[part for part in model.modules() if isinstance(part, FeedForward)],
            recomputed=list(model.blocks),
            matrices=find_matrices(model),
            sizes=row_sizes(batches, out),
            around=WeightCasts,
        ),
        config.train,
        progress,
    )


def _model(config: GPTTrainConfig, tokenizer: Tokenizer) -> GPT:
    if config.init is None:
        return GPT(config.model.config(tokenizer.size, config.length))
    check_shape(config.init, config.model, *_SHAPE)
    plan = GPT_FAMILY.plan(locate(config.init), True)
    folder = open_gpt(plan, GPT_FAMILY.facts(plan), Loading())
    if heads := folder.facts.heads:
        raise InputError(
            f"{config.init} holds a GPT that was made for a task ({listed(heads)}), and has the marks of tasks in its "
            "vocabulary. Go on from the one that it was made of."
        )
    found = folder.ability(WRITES)
    begun = found.writer
    assert isinstance(begun, GPT)
    if hash_of(tokenizer) != hash_of(found.tokenizer):
        raise other_tokenizer(config)
    if config.length > begun.config.max_length:
        raise InputError(
            f"{config.init} reads {begun.config.max_length} tokens at most, and length is {config.length}. "
            "Set it lower."
        )
    said = {name: getattr(config.model, name) for name in DROPOUTS}
    dropouts = {name: value for name, value in said.items() if value is not None}
    model = GPT(replace(begun.config, **dropouts))
    model.load_state_dict(begun.state_dict())
    return model


def _save(config: GPTTrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards) -> None:
    record, terms = make_record(config), init_licences(config)
    save(out / "model", _trained(trainer).eval(), corpus.tokenizer(), record=record, files=terms)


def _trained(trainer: Trainer[Batch]) -> GPT:
    assert isinstance(trainer.job.model, GPT)
    return trainer.job.model


def _page(config: GPTTrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards, sessions: Sessions) -> RunPage:
    return gpt_page(out, collect_page_facts(config.model_type, _trained(trainer), corpus, sessions))


PRETRAINING_GPT = Pretraining(
    JobSettings(GPTTrainConfig(), check=_checked),
    _trainer,
    _save,
    _page,
    model="the model, for qkv and transformers. Try: qkv generate {model} TEXT",
    report="curves, what it writes, remarks",
)


# --- The report of a GPT's training: that of a language model (report/run_log.py), what a character costs, and
# what the model wrote as training went on.


@dataclass(frozen=True)
class Writing:
    """The continuation of one prompt at one step."""

    when: Words
    text: str


@dataclass(frozen=True)
class Writings:
    """Prompts with their continuations at several steps, as a section of a page."""

    title: Words
    by_prompt: tuple[tuple[str, tuple[Writing, ...]], ...]
    note: Words = ""
    narrow: ClassVar[bool] = False
    style: ClassVar[str] = (
        ".written{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:16px;margin:8px 0 24px}"
        ".written h4{margin:0 0 4px}.written p{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}"
        ".written .prompt{opacity:.55}"
    )

    def html(self) -> str:
        note = f'<p class="note">{spans(self.note)}</p>' if self.note else ""
        return "".join(self._row(prompt, writings) for prompt, writings in self.by_prompt) + note

    @staticmethod
    def _row(prompt: str, writings: tuple[Writing, ...]) -> str:
        columns = "".join(
            f'<div><h4>{spans(one.when)}</h4><p><span class="prompt">{safe(prompt)}</span>{safe(one.text)}</p></div>'
            for one in writings
        )
        return f'<div class="written">{columns}</div>'


def gpt_page(run: Path, facts: LanguageModelFacts) -> RunPage:
    page, log = language_model_page(run, facts), read_run(run)
    sections = page.sections
    if texts := writings(log):
        note = Phrase(
            "Grey: the prompt, from held-out text; the first text is begun from nothing. Drawn at temperature "
            f"{SAMPLING_DEFAULTS['temperature']} among the {SAMPLING_DEFAULTS['top_k']} likeliest tokens.",
            "灰色为提示，取自留出文本；第一段不给提示，从零写起。按温度 "
            f"{SAMPLING_DEFAULTS['temperature']} 在最可能的 {SAMPLING_DEFAULTS['top_k']} 个词元中抽取。",
        )
        sections = (Writings(Phrase("What it writes", "模型写出的文字"), texts, note), *sections)
    return replace(page, figures=(*page.figures, *_figures(log)), sections=sections)


def _figures(log: RunLog) -> Iterator[Figure]:
    found = log.evaluated("bits_per_character")
    if found and math.isfinite(found[-1][1]):
        yield Figure(
            Phrase("Bits per character", "每字符比特数"),
            f"{found[-1][1]:.3f}",
            Phrase(
                f"{EVALUATION.en}; comparable among tokenizers, lower is better",
                f"{EVALUATION.zh}；不同分词方式之间可比，越低越好",
            ),
        )


def writings(log: RunLog) -> tuple[tuple[str, tuple[Writing, ...]], ...]:
    """The prompts of the last evaluation, with their continuations then and at earlier steps."""
    with_samples = [(step, texts) for step, found in log.evaluations if (texts := _by_prompt(found.get("samples")))]
    if not with_samples:
        return ()
    shown = [with_samples[place] for place in choose_evaluations(len(with_samples))]
    return tuple(
        (
            prompt,
            tuple(
                Writing(Phrase(f"step {step:,}", f"第 {step:,} 步"), texts[prompt])
                for step, texts in shown
                if prompt in texts
            ),
        )
        for prompt in with_samples[-1][1]
    )


def _by_prompt(samples: object) -> dict[str, str]:
    known = [one for one in samples if isinstance(one, dict)] if isinstance(samples, list) else []
    return {str(one["prompt"]): str(one["text"]) for one in known if {"prompt", "text"} <= set(one)}
