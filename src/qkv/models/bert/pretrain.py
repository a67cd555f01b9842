"""Pretraining of BERT (Devlin et al. 2019, §3.1): shards in, a Hugging Face folder out.

The settings are the keys of RUN/config.toml, of recipes and of --set. An evaluation gives both losses on held-out
documents and fills blanks for people to read. Its rows, masks and blanks are drawn once from a fixed seed, so that all
evaluations of a run compare.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.config import JobSettings, Requested, check_least, check_shares, given_changes
from qkv.data.batch import Batch
from qkv.data.corpus.rows import PairConfig, instances
from qkv.data.corpus.shards import Shards
from qkv.errors import InputError
from qkv.metrics.numbers import perplexity
from qkv.models.bert import folder as hf
from qkv.models.bert.network import BertConfig, BertWithHeads
from qkv.models.bert.objective import (
    MaskedAndNextSentence,
    MaskingConfig,
    PretrainingBatches,
    evaluate_pretraining,
    pretraining_flops,
)
from qkv.models.bert.page import PretrainingFacts, pretraining_page
from qkv.models.folders.hub import locate
from qkv.models.pretraining import (
    Pretraining,
    check_own,
    check_shape,
    check_size,
    init_licences,
    make_record,
    open_corpus,
    other_tokenizer,
    row_sizes,
)
from qkv.nn.block import FeedForward, find_matrices
from qkv.nn.gpu.layers import WeightCasts
from qkv.report.page import RunPage
from qkv.text.tokenizer import Tokenizer
from qkv.train.log import Progress, Silent
from qkv.train.loop import Job, TrainConfig, Trainer
from qkv.train.run_folder import Sessions

_SHAPE = ("layers", "width", "heads", "inner_width")


@dataclass(frozen=True)
class ModelChoice:
    size: str = "mini"  # a preset of models/bert/network.py; the fields below change it
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    inner_width: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        check_shares(self, "dropout", "attention_dropout")
        check_least(self, *_SHAPE)

    def config(self, vocabulary_size: int, max_length: int) -> BertConfig:
        sizes = {"vocabulary_size": vocabulary_size, "max_length": max(512, max_length)}
        return BertConfig.preset(self.size, **sizes, **given_changes(self))


@dataclass(frozen=True)
class PretrainConfig:
    model_type: str = "bert"
    data: str = ""  # the folder that `qkv prepare` wrote
    data_sha256: str | None = None  # of its manifest; put here at the start
    init: str | None = None  # a folder to go on from; None: random weights
    rows: int = 32  # a batch
    evaluation_rows: int = 256  # of the held-out documents
    device: str = "auto"  # cuda, mps or cpu, whichever is found first; put here at the start
    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairConfig = field(default_factory=PairConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_own(self, "bert", "rows", "evaluation_rows")


def _checked(config: PretrainConfig, given: Requested) -> PretrainConfig:
    check_size(config, given)
    return config


# Evaluation

SEED = 20_181_011  # the day BERT was put on arXiv
_SHORTEST, _LONGEST = 8, 40  # tokens of a sentence that is shown with a blank


@dataclass(frozen=True)
class BlankedSentence:
    """A held-out sentence with one word hidden."""

    text: str
    answer: str
    batch: Batch
    place: int

    def filled(self, model: BertWithHeads, tokenizer: Tokenizer, k: int = 5) -> dict[str, Any]:
        batch = self.batch.to(next(model.parameters()).device)
        hidden = model.encoder(**batch.inputs()).hidden[self.place]
        best = model.predict("masked", hidden[None])[0].float().softmax(-1).topk(min(k, model.config.vocabulary_size))
        candidates = [
            [tokenizer.token(int(token)), round(float(probability), 4)]
            for token, probability in zip(best.indices, best.values, strict=True)
        ]
        return {"text": self.text, "answer": self.answer, "candidates": candidates}


class Evaluation:
    """Evaluates a model on held-out text; returns the figures for the log."""

    def __init__(
        self,
        held_out: Shards,
        tokenizer: Tokenizer,
        batches: PretrainingBatches,
        objective: MaskedAndNextSentence,
        rows: int,
    ) -> None:
        self.tokenizer, self.objective = tokenizer, objective
        pairs = batches.pairs
        if pairs.negatives == "document" and held_out.n_documents < 2:
            pairs = replace(pairs, negatives="corpus")  # a single held-out document has no other to borrow from
        drawn = instances(held_out, pairs, SEED, 0)
        draw = np.random.default_rng(SEED)
        chosen = draw.permutation(len(drawn))[:rows]
        build = batches.over(held_out)
        self.batches = [
            build.batch(drawn.take(part), draw)
            for part in np.array_split(chosen, max(1, len(chosen) // batches.rows))
            if len(part)
        ]
        longest = min(_LONGEST, pairs.max_length - 2)  # with [CLS] and [SEP]
        self.blanks = blanked_sentences(held_out, tokenizer, draw, count=6, longest=longest)

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        assert isinstance(model, BertWithHeads)
        result: dict[str, Any] = {}
        for name, (loss, correct, count) in evaluate_pretraining(model, self.objective, self.batches).items():
            result |= {f"{name}_loss": loss, f"{name}_accuracy": correct / max(1, count)}
            result |= {f"{name}_correct": correct, f"{name}_count": count}
        result["masked_perplexity"] = perplexity(result["masked_loss"])
        result["samples"] = [blank.filled(model, self.tokenizer) for blank in self.blanks]
        return result


def blanked_sentences(
    held_out: Shards, tokenizer: Tokenizer, draw: np.random.Generator, count: int, longest: int = _LONGEST
) -> list[BlankedSentence]:
    """Sentences of moderate length, spread over the held-out text, with one word of letters masked."""
    offsets = held_out.sentence_offsets
    lengths = np.diff(offsets)
    suitable = np.flatnonzero((lengths >= _SHORTEST) & (lengths <= longest))
    found: list[BlankedSentence] = []
    for sentence in draw.permutation(suitable)[: 10 * count]:
        start, length = offsets[sentence : sentence + 1], lengths[sentence : sentence + 1]
        ids = held_out.tokens(start, length)
        begins = np.append(held_out.word_starts(start, length), True)
        words = [
            place
            for place in range(len(ids))
            # a word of one token, so that one blank is the whole of it
            if begins[place] and begins[place + 1] and tokenizer.token(int(ids[place])).isalpha()
        ]
        if not words or int(tokenizer.unk_id) in ids:
            continue
        place = int(draw.choice(words))
        answer = tokenizer.token(int(ids[place]))
        ids[place] = tokenizer.mask_id
        row, segments = tokenizer.with_special(ids.tolist())
        text = tokenizer.decode(ids.tolist(), skip_special=False)
        found.append(BlankedSentence(text, answer, Batch.of([row], segments=[segments]), place + 1))
        if len(found) == count:
            break
    return found


# The run


def _trainer(config: PretrainConfig, out: Path, progress: Progress, begins: bool) -> Trainer[Batch]:
    device, corpus, held_out = open_corpus(config, begins)
    tokenizer = corpus.tokenizer()
    paired = config.pairs.negatives != "none"
    torch.manual_seed(config.train.seed)  # the initial weights
    tell = progress.message if begins else Silent().message  # do not repeat start-up messages on resume
    model = _model(config, tokenizer, paired, tell).to(device)
    batches = PretrainingBatches(
        corpus,
        tokenizer,
        config.pairs,
        config.masking,
        rows=config.rows,
        accumulate=config.train.accumulate,
        seed=config.train.seed,
    )
    batches(0)[0].check(
        vocabulary=model.config.vocabulary_size, positions=model.config.max_length, segments=model.config.segments
    )
    objective = MaskedAndNextSentence(next_sentence=paired)
    evaluate = None
    if held_out.n_documents:
        evaluate = Evaluation(held_out, tokenizer, batches, objective, config.evaluation_rows)
        evaluate = evaluate if evaluate.batches else None
    return Trainer(
        Job(
            model,
            objective,
            batches,
            out,
            evaluate=evaluate,
            flops=partial(pretraining_flops, model),
            compiled=[part for part in model.modules() if isinstance(part, FeedForward)],
            recomputed=list(model.encoder.blocks),
            matrices=find_matrices(model),
            sizes=row_sizes(batches, out),
            around=WeightCasts,
        ),
        config.train,
        progress,
    )


def _model(config: PretrainConfig, tokenizer: Tokenizer, paired: bool, tell: Callable[[str], None]) -> BertWithHeads:
    heads = ["masked", "next_sentence"] if paired else ["masked"]
    if config.init is None:
        return BertWithHeads(config.model.config(tokenizer.size, config.pairs.max_length), heads)
    check_shape(config.init, config.model, "size", *_SHAPE)
    folder = hf.load(locate(config.init))
    ours, theirs = ((one.vocabulary, one.kind, one.lowercase, one.segmenter) for one in (tokenizer, folder.tokenizer))
    if ours != theirs:
        raise other_tokenizer(config)
    if config.pairs.max_length > folder.config.max_length:
        raise InputError(
            f"{config.init} reads {folder.config.max_length} tokens at most, and pairs.max_length is "
            f"{config.pairs.max_length}. Set it lower."
        )
    wanted = replace(folder.config, dropout=config.model.dropout, attention_dropout=config.model.attention_dropout)
    model = BertWithHeads(wanted, heads)
    missing, left_out = model.load_state_dict(folder.model.state_dict(), strict=False)
    if missing:
        tell(f"{config.init} has no {_parts(missing)}: begun from random weights.")
    if left_out:
        tell(f"{config.init} has {_parts(left_out)}, which is not trained here and left out.")
    return model


def _parts(names: Sequence[str]) -> str:
    """
    >>> _parts(["encoder.pooler.dense.weight", "encoder.pooler.dense.bias", "heads.masked.bias"])
    'encoder.pooler, heads.masked'
    """
    return ", ".join(sorted({".".join(name.split(".")[:2]) for name in names}))


def _save(config: PretrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards) -> None:
    record, terms = make_record(config), init_licences(config)
    hf.save(out / "model", _trained(trainer).eval(), corpus.tokenizer(), record=record, files=terms)


def _trained(trainer: Trainer[Batch]) -> BertWithHeads:
    assert isinstance(trainer.job.model, BertWithHeads)
    return trainer.job.model


def _page(config: PretrainConfig, out: Path, trainer: Trainer[Batch], corpus: Shards, sessions: Sessions) -> RunPage:
    manifest, model = corpus.manifest, _trained(trainer)
    facts = PretrainingFacts(
        vocabulary_size=model.config.vocabulary_size,
        unigram_entropy=manifest["unigram_entropy"],
        vocabulary_seen=manifest["vocabulary_seen"],
        documents=corpus.n_documents,
        sentences=corpus.n_sentences,
        tokens=corpus.n_tokens,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        languages={name: share for name, share in manifest["languages"].items() if share >= 0.005},
        seconds=sessions.seconds,
        peak_memory=sessions.peak_memory,
        negatives=config.pairs.negatives,
        masked_share=config.masking.treatment[0],
        resumed_from=sessions.resumed_from,
        held_out_documents=manifest["valid"]["documents"],
    )
    return pretraining_page(out, facts)


PRETRAINING_BERT = Pretraining(
    JobSettings(PretrainConfig(), check=_checked),
    _trainer,
    _save,
    _page,
    model="the model, for qkv and transformers",
    report="curves, fillings, remarks",
)
