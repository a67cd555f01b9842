"""A word2vec run: shards in, a folder of word vectors out, resumable at every checkpoint.

The corpus is read in chunks, in an order drawn anew for every epoch. What happens to a chunk is a function of the seed
and the step, so with one thread a run that was killed and resumed ends with the same vectors, byte for byte. Several
threads train on as many chunks at a time without locks, which is faster and the same but for the last digits.
"""

import dataclasses
import math
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

from qkv.data.corpus.shards import Shards, map_arrays
from qkv.data.corpus.writer import TOKEN_COUNTS_FILE
from qkv.errors import InputError
from qkv.metrics.numbers import principal
from qkv.models.folders.own import save_folder
from qkv.models.pretraining import Pretraining, open_corpus
from qkv.models.word2vec.corpus import SentenceChunks, WholeWords
from qkv.models.word2vec.learners import (
    WORD2VEC_SETTINGS,
    VectorEvaluation,
    Word2VecConfiguration,
    choose_kernel,
    make_learner,
)
from qkv.models.word2vec.network import Word2Vec
from qkv.models.word2vec.page import PlacedWord, VectorFacts, word2vec_page
from qkv.report.page import RunPage
from qkv.text.tokenizer import Tokenizer
from qkv.train import run_folder
from qkv.train.device import count_cores, device_named, software
from qkv.train.launch import interruptible
from qkv.train.log import Log, Progress, Silent
from qkv.train.loop import step_seed
from qkv.train.run_folder import Outcome, Sessions

MAPPED = 400  # words on the map of the report, at most


class Word2VecTrainer:
    """A training: the two matrices, the step, and the sums since the last logged step."""

    def __init__(self, config: Word2VecConfiguration, out: Path, progress: Progress, begins: bool) -> None:
        tell = progress.message if begins else Silent().message  # do not repeat start-up messages on resume
        self.out, self.progress = out, progress
        self.device = device_named(config.device)
        kernel = choose_kernel(config.train.kernel, self.device, progress.message)  # it may not be here any more
        if begins:
            threads = config.train.threads or count_cores()
            config = replace(config, train=replace(config.train, kernel=kernel, threads=threads))
        _, corpus, held_out = open_corpus(config, begins)
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
        self.learn = make_learner(self.model, self.counts, config)
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
        """Train on the chunk of a step; return the loss, the number of inputs it covers, and the tokens."""
        epoch, place = divmod(step, len(self.chunks))
        chunk = self.chunks[int(self.order(epoch)[place])]
        seed = step_seed(self.config.train.seed, step)
        loss, count = self.learn(chunk, self.config.lr_at(step), self.config.lr_at(step + 1), seed)
        return loss, count, chunk.n_tokens

    @contextmanager
    def mapped(self) -> "Iterator[Callable[[Callable[[int], Any], range], list[Any]]]":
        """A `map` over as many threads as the settings say; torch has its own threads."""
        threads = self.config.train.threads or 1
        if threads == 1 or self.config.train.kernel == "torch":
            yield lambda work, steps: [work(step) for step in steps]
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="qkv-word2vec") as pool:
            yield lambda work, steps: list(pool.map(work, steps))

    def run(self) -> Outcome:
        """Train to the last step, from the newest checkpoint if there is one."""
        self.restore()
        started, steps, train = self.step, self.steps, self.config.train
        if started >= steps:
            return Outcome(started, started, finished=True)
        evaluate_every = train.evaluate_every
        assert evaluate_every is not None
        log = Log(self.out, self.step, self.progress.log)
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
        kept = run_folder.checkpoint_steps(self.out / "checkpoints")
        where = f"The last good checkpoint is {kept[-1]}." if kept else "There is no checkpoint yet."
        raise InputError(
            f"The loss is not a number any more at step {self.step} (train.lr is {self.config.lr:g}). {where} "
            f"Set a lower train.lr in {self.out / 'config.toml'} and resume, or begin anew with it (--set train.lr=…)."
        )

    def save(self) -> None:
        state = {"sums": self.sums, "environment": self._environment()}
        run_folder.save_checkpoint(
            self.out / "checkpoints",
            self.step,
            {"model": self.model.state_dict()},
            state,
            self.config.train.keep,
        )

    def restore(self) -> None:
        found = run_folder.latest_checkpoint(self.out / "checkpoints", self.progress.message)
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
        return software(torch.device("cpu")) | {"kernel": self.config.train.kernel}


def _save(config: Word2VecConfiguration, out: Path, trainer: Word2VecTrainer, corpus: Shards) -> None:
    # the rows of all other tokens stay zero: special ones, and what training never met
    words = {"words": int(np.count_nonzero(trainer.counts))}
    record = {"job": "word2vec", "steps": trainer.steps, **words, "config": dataclasses.asdict(config)}
    shape = dataclasses.asdict(trainer.model.config) | dataclasses.asdict(config.sampling)
    cut = config.words == "whole" or trainer.tokenizer.segmenter is not None
    # what Chinese text goes through
    shape["segmenter"] = corpus.manifest["settings"]["segmenter"] if cut else "none"
    tensors = {"embedding": trainer.model.embedding}
    save_folder(out / "model", config.model_type, shape, tensors, trainer.tokenizer, record)


def _page(
    config: Word2VecConfiguration, out: Path, trainer: Word2VecTrainer, corpus: Shards, sessions: Sessions
) -> RunPage:
    counts, model = trainer.counts, trainer.model
    words, shares = _word_map(model.embedding.detach().cpu().numpy(), counts, trainer.tokenizer)
    facts = VectorFacts(
        words=int(np.count_nonzero(counts)),
        width=model.config.width,
        negatives=config.sampling.negatives,
        architecture=model.config.architecture,
        chunks=len(trainer.chunks),
        running_words=int(counts.sum()),
        documents=corpus.n_documents,
        sentences=corpus.n_sentences,
        seconds=sessions.seconds,
        peak_memory=sessions.peak_memory,
        resumed_from=sessions.resumed_from,
        map=words,
        map_shares=shares,
    )
    return word2vec_page(out, facts)


def _word_map(
    embedding: NDArray[np.float32], counts: NDArray[np.int64], tokenizer: Tokenizer, most: int = MAPPED
) -> tuple[tuple[PlacedWord, ...], tuple[float, ...]]:
    """Positions of the most frequent words written in letters, and the share of their variance that the map shows."""
    ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    chosen = [word for word in ranked if tokenizer.token(word).isalpha()][:most]
    if len(chosen) < 3:  # two are always on a line
        return (), ()
    vectors = embedding[chosen].astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)  # a neighbour is one by its cosine
    found = principal(vectors)
    places = np.pad(found.places, ((0, 0), (0, max(0, 2 - found.places.shape[1])))).tolist()
    words = tuple(PlacedWord(tokenizer.token(word), x, y) for word, (x, y) in zip(chosen, places, strict=True))
    return words, tuple(found.shares.tolist())


def word_counts(corpus: Shards) -> NDArray[np.int64]:
    """(V,) the frequency of each word; 0 for special tokens and [UNK], which are not learned."""
    counts = map_arrays(corpus.folder / TOKEN_COUNTS_FILE)["counts"].copy()
    counts[list(corpus.tokenizer().special_ids)] = 0
    return counts


def learned(counts: NDArray[np.int64], min_count: int, most: int) -> NDArray[np.int64]:
    """The counts of the words that get a vector, 0 for rarer ones and all but the `most` frequent.

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


PRETRAINING_WORD2VEC = Pretraining(
    WORD2VEC_SETTINGS,
    Word2VecTrainer,
    _save,
    _page,
    settled=lambda config, trainer, progress: trainer.config,
    model="the word vectors. Try: qkv similar WORD --model {model}",
    report="curves, neighbours, a map of words",
    alone=True,
)
