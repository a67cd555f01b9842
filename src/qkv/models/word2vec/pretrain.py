"""A whole word2vec run: shards in, a folder of word vectors out, and everything in between resumable.

RUN/config.toml       the resolved settings; a resumed run reads nothing else
RUN/log.jsonl         step (chunks read), loss, learning rate; evaluations with sample neighbours
RUN/timing.jsonl      speed, by the clock
RUN/checkpoints/      what a resume starts from: both matrices
RUN/model/            the word vectors: the Embedding matrix and the words. The Context matrix has done its work
RUN/report.html       the run as a page
RUN/sessions.jsonl    each time somebody started or resumed it; written last, so a session to the end means: finished

The corpus is read in chunks, in an order drawn anew for every epoch. What happens to a chunk is a function of the seed
and the step, so with one thread a run that was killed and resumed ends with the same vectors, byte for byte. Several
threads train on as many chunks at a time without locks, which is faster and the same but for the last digits.
"""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qkv.config import merge, read_toml, to_toml
from qkv.data.corpus.shards import Shards, map_arrays
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE
from qkv.errors import InputError
from qkv.files import write_text
from qkv.metrics.numbers import principal
from qkv.models.folders.own import save_folder
from qkv.models.pretraining import Finished, ended, opened, recognised
from qkv.models.word2vec.corpus import SentenceChunks, WholeWords
from qkv.models.word2vec.learners import MODEL_TYPE, VectorEvaluation, Word2VecConfiguration, kernel_named, learner_of
from qkv.models.word2vec.network import Word2Vec
from qkv.models.word2vec.page import Placed, VectorFacts, word2vec_page
from qkv.report.page import write_report
from qkv.text.tokenizer import Tokenizer
from qkv.train import checkpoint
from qkv.train.ahead import interruptible
from qkv.train.device import device_named
from qkv.train.log import Log
from qkv.train.loop import Outcome, environment, step_seed
from qkv.train.progress import Progress, Silent
from qkv.train.run_folder import Sessions, begin, config_of, remove_drafts

MAPPED = 400  # words on the map of the report, at most


def start(config: Word2VecConfiguration, out: Path, progress: Progress) -> Finished:
    """Begin a run in a new folder."""
    begin(out, "pretrain")
    data, digest = recognised(config.data)
    kernel = kernel_named(config.train.kernel, device_named(config.device), progress.message)
    threads = config.train.threads or _cores()
    train = replace(config.train, kernel=kernel, threads=threads)
    run = Run(replace(config, data=data, data_sha256=digest, train=train), out, progress, begins=True)
    write_text(out / "config.toml", to_toml(run.config))
    return run.finish()


def resume(out: Path, progress: Progress) -> Finished:
    """Go on with a run where its newest checkpoint left off; a finished one stays as it is."""
    file = config_of(out)
    config = merge(Word2VecConfiguration(), read_toml(file), str(file))
    assert config.train.steps is not None
    if before := ended(out, config.train.steps):
        return before
    kernel_named(config.train.kernel, device_named(config.device), progress.message)  # it may not be here any more
    remove_drafts(out)
    return Run(config, out, progress, begins=False).finish()


class Run:
    """A run in motion: the two matrices, the step, and the sums since the last logged step."""

    def __init__(self, config: Word2VecConfiguration, out: Path, progress: Progress, *, begins: bool) -> None:
        tell = progress.message if begins else Silent().message  # of what was told when it began, nothing again
        self.out, self.progress = out, progress
        self.device = device_named(config.device)
        torch.set_num_threads(config.train.threads or 1)
        corpus, held_out = opened(config.data, config.data_sha256, begins=begins)
        words, config = None, config.with_words()
        assert config.min_count is not None
        if config.words == "whole":
            assert config.vocabulary_size is not None
            words = WholeWords(corpus, config.min_count, config.vocabulary_size)
            self.tokenizer, self.counts = words.tokenizer, words.counts
        else:
            self.tokenizer = corpus.tokenizer()
            size = config.vocabulary_size or self.tokenizer.size
            self.counts = learned(word_counts(corpus), config.min_count, size - len(self.tokenizer.special_ids))
        self.chunks = SentenceChunks(corpus, config.train.chunk, words)
        _check(self.counts, self.chunks, config)
        torch.manual_seed(config.train.seed)  # the initial vectors
        self.model = Word2Vec(config.model.config(self.tokenizer.size))
        self.model.embedding.data[torch.from_numpy(self.counts == 0)] = 0  # training never meets these
        self.model.to(self.device)
        self.learn = learner_of(self.model, self.counts, config)
        self.evaluate = VectorEvaluation(held_out, words, self.tokenizer, self.counts, config.sampling, self.device)
        if self.evaluate.windows is None:
            tell("No text is held out, so no loss is evaluated. For that, prepare the corpus with --hold-out.")
        self.config = config
        # once, and frozen into the config: a resumed run must not measure again
        self.config = config.with_steps(config.train.steps or self._steps())
        self.step = 0
        self.sums = {"loss": 0.0, "count": 0.0, "tokens": 0.0}
        self.order = lru_cache(2)(self._order)

    @property
    def steps(self) -> int:
        assert self.config.train.steps is not None
        return self.config.train.steps

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng((self.config.train.seed, epoch)).permutation(len(self.chunks))

    def _steps(self) -> int:
        train = self.config.train
        if train.minutes is None:
            return max(1, round(train.epochs * len(self.chunks)))
        # a few are tried at learning rate 0, which moves nothing; the first one also compiles
        self.learn(self.chunks[0], 0.0, 0.0, 0)
        seconds, tried = min(2.0, 6 * train.minutes), 0
        with self.mapped() as each:
            began = time.perf_counter()
            while (elapsed := time.perf_counter() - began) < seconds:
                several = range(tried, tried + (train.threads or 1))
                each(lambda number: self.learn(self.chunks[number % len(self.chunks)], 0.0, 0.0, number), several)
                tried += len(several)
        steps = max(1, int(train.minutes * 60 / elapsed * tried))
        self.progress.message(
            f"{train.minutes:g} minutes are {steps:,} chunks on this machine, {steps / len(self.chunks):.3g} epochs."
        )
        return steps

    def advance(self, step: int) -> tuple[float, int, int]:
        """Train on the chunk of a step: the loss, of how many inputs, and the tokens."""
        epoch, place = divmod(step, len(self.chunks))
        chunk = self.chunks[int(self.order(epoch)[place])]
        seed = step_seed(self.config.train.seed, step)
        loss, count = self.learn(chunk, self.config.lr_at(step), self.config.lr_at(step + 1), seed)
        return loss, count, chunk.n_tokens

    @contextmanager
    def mapped(self) -> "Iterator[Callable[[Callable[[int], Any], range], list[Any]]]":
        """Something that maps, over as many threads as the settings say; torch has threads of its own."""
        threads = self.config.train.threads or 1
        if threads == 1 or self.config.train.kernel == "torch":
            yield lambda work, steps: [work(step) for step in steps]
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="qkv-word2vec") as pool:
            yield lambda work, steps: list(pool.map(work, steps))

    def train(self) -> Outcome:
        """To the last step, from the newest checkpoint if there is one."""
        self.restore()
        started, steps, train = self.step, self.steps, self.config.train
        if started >= steps:
            return Outcome(started, started, finished=True)
        evaluate_every = train.evaluate_every
        assert evaluate_every is not None
        log = Log(self.out, self.step)
        self.progress.start(self.step, steps)
        try:
            with interruptible() as interruption, self.mapped() as each:
                spent = 0.0
                while self.step < steps:
                    began = time.perf_counter()
                    rhythms = (train.log_every, evaluate_every, train.save_every)
                    stop = min(steps, *(self.step // every * every + every for every in rhythms))
                    for loss, count, tokens in each(self.advance, range(self.step, stop)):
                        for name, value in zip(self.sums, (loss, count, tokens), strict=True):
                            self.sums[name] += value
                    self.step = stop
                    spent += time.perf_counter() - began
                    self.stop_if_lost()
                    last = self.step == steps
                    if self.step % train.log_every == 0 or last:
                        self._write(log, spent)
                        spent = 0.0
                    if self.step % evaluate_every == 0 or last:
                        result = self.evaluate(self.model)
                        log.write("log.jsonl", {"step": self.step, "evaluation": result})
                        if "loss" in result:
                            self.progress.message(f"step {self.step:,}: held-out loss {result['loss']:.4g}")
                    stopped = bool(interruption)
                    if self.step % train.save_every == 0 or last or stopped:
                        log.flush()  # what the log says up to here must be as lasting as the checkpoint
                        self.save()
                    if stopped and not last:
                        return Outcome(started, self.step, finished=False, signal=interruption.signal)
        finally:
            log.close()
        return Outcome(started, self.step, finished=True)

    def _write(self, log: Log, seconds: float) -> None:
        loss = self.sums["loss"] / self.sums["count"] if self.sums["count"] else None
        tokens = int(self.sums["tokens"])
        lr = self.config.lr_at(self.step)
        log.write("log.jsonl", {"step": self.step, "loss": loss, "lr": lr, "tokens": tokens})
        timing = {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / max(1e-9, seconds), 1)}
        log.write("timing.jsonl", {"step": self.step, **timing})
        if loss is not None:
            self.progress.step(self.step, {"loss": loss, **timing})
        self.sums = dict.fromkeys(self.sums, 0.0)

    def stop_if_lost(self) -> None:
        if math.isfinite(self.sums["loss"]):
            return
        kept = checkpoint.checkpoint_steps(self.out / "checkpoints")
        where = f"The last good checkpoint is {kept[-1]}." if kept else "There is no checkpoint yet."
        raise InputError(
            f"The loss is not a number any more at step {self.step} (train.lr is {self.config.lr:g}). {where} "
            f"Set a lower train.lr in {self.out / 'config.toml'} and resume, or begin anew with it (--set train.lr=…)."
        )

    def save(self) -> None:
        state = {"sums": self.sums, "environment": self._environment()}
        checkpoint.save_checkpoint(
            self.out / "checkpoints",
            self.step,
            {"model": self.model.state_dict()},
            state,
            self.config.train.keep,
        )

    def restore(self) -> None:
        found = checkpoint.latest_checkpoint(self.out / "checkpoints", self.progress.message)
        if found is None:
            return
        try:
            self.model.load_state_dict(found.tensors["model"])
        except RuntimeError:
            raise InputError(
                f"{found.path} holds another model than the settings describe. Set them back to what the run was "
                "begun with, or begin another run."
            ) from None
        self.step, self.sums = found.step, dict(found.state["sums"])
        for name, value in self._environment().items():
            if (before := found.state["environment"].get(name)) != value:
                self.progress.message(
                    f"warning: the run was begun with {name} {before} and goes on with {value}: "
                    "it will not be equal to an uninterrupted one in the last digits."
                )

    def _environment(self) -> dict[str, Any]:
        return environment() | {"kernel": self.config.train.kernel}

    def finish(self) -> Finished:
        """Train, then write the vectors and the report."""
        began = time.perf_counter()
        outcome = self.train()
        if outcome.finished:
            # the rows of all other tokens stay zero: special ones, and what training never met
            words = {"words": int(np.count_nonzero(self.counts))}
            record = {"job": MODEL_TYPE, "steps": self.steps, **words, "config": dataclasses.asdict(self.config)}
            shape = dataclasses.asdict(self.model.config) | dataclasses.asdict(self.config.sampling)
            segmenter = Shards.open(self.config.data).manifest["settings"]["segmenter"]
            cut = self.config.words == "whole" or self.tokenizer.segmenter is not None
            shape["segmenter"] = segmenter if cut else "none"  # what Chinese text goes through
            save_folder(
                self.out / "model",
                MODEL_TYPE,
                shape,
                {"embedding": self.model.embedding},
                self.tokenizer,
                record,
            )
        sessions = Sessions.of(self.out).ended(outcome, began, self.device)
        write_report(self.out, word2vec_page(self.out, self._facts(sessions)))
        sessions.write(self.out)
        return Finished(self.out, outcome, self.steps)

    def _facts(self, sessions: Sessions) -> VectorFacts:
        corpus = Shards.open(self.config.data)
        words, shares = _word_map(self.model.embedding.detach().cpu().numpy(), self.counts, self.tokenizer)
        return VectorFacts(
            words=int(np.count_nonzero(self.counts)),
            width=self.model.config.width,
            negatives=self.config.sampling.negatives,
            architecture=self.model.config.architecture,
            chunks=len(self.chunks),
            running_words=int(self.counts.sum()),
            documents=corpus.n_documents,
            sentences=corpus.n_sentences,
            seconds=sessions.seconds,
            peak_memory=sessions.peak_memory,
            resumed_from=sessions.resumed_from,
            map=words,
            map_shares=shares,
        )


def _word_map(
    embedding: NDArray[np.float32], counts: NDArray[np.int64], tokenizer: Tokenizer, most: int = MAPPED
) -> tuple[tuple[Placed, ...], tuple[float, ...]]:
    """Where the most frequent words lie that are written in letters, and how much of their spread that shows."""
    ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    chosen = [word for word in ranked if tokenizer.token(word).isalpha()][:most]
    if len(chosen) < 3:  # two always lie on a line
        return (), ()
    vectors = embedding[chosen].astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)  # a neighbour is one by its cosine
    found = principal(vectors)
    places = np.pad(found.places, ((0, 0), (0, max(0, 2 - found.places.shape[1])))).tolist()
    words = tuple(Placed(tokenizer.token(word), x, y) for word, (x, y) in zip(chosen, places, strict=True))
    return words, tuple(found.shares.tolist())


def word_counts(corpus: Shards) -> NDArray[np.int64]:
    """(V,) How often each word occurs; 0 for what is not learned: special tokens, [UNK] among them."""
    counts = map_arrays(corpus.folder / TOKEN_COUNTS_FILE)["counts"].copy()
    counts[list(corpus.tokenizer().special_ids)] = 0
    return counts


def learned(counts: NDArray[np.int64], min_count: int, most: int) -> NDArray[np.int64]:
    """The counts of the words that get a vector, 0 for the others: the rarer ones, and all but the `most` frequent.

    >>> learned(np.array([0, 9, 2, 5, 5]), 3, 2).tolist()
    [0, 9, 0, 5, 0]
    """
    frequent = np.zeros(len(counts), np.bool_)
    frequent[np.argsort(-counts, kind="stable")[:most]] = True
    return np.where(frequent & (counts >= min_count), counts, 0)


def _check(counts: NDArray[np.int64], chunks: SentenceChunks, config: Word2VecConfiguration) -> None:
    if not counts.any() and config.min_count != 1:
        raise InputError(
            f"No word of {config.data} occurs {config.min_count} times: give more text, or a lower min_count."
        )
    if not counts.any():
        raise InputError(
            f"{config.data} has no words to learn: all of its tokens are unknown. Train another tokenizer."
        )
    if chunks.longest < 2:
        raise InputError(
            f"No sentence of {config.data} has two words, so no word has a neighbour. Prepare text of whole sentences."
        )
    if config.sampling.window >= chunks.longest:
        raise InputError(
            f"sampling.window is {config.sampling.window}, and the longest sentence of {config.data} has "
            f"{chunks.longest} words: set it to {chunks.longest - 1} at most."
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
