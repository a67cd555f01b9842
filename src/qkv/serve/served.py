"""A served model and what it answers: predictions, vectors, blanks, translations, texts; and all models of a process.

A request is tokenized, its rows wait in the queue of the model and are computed in batches with those of other requests
(batching.py), and its results are put together by the same functions as in Python and on the command line: they equal
those of `Model.predict`, `Model.embed`, `Model.fill`, `Translator.translate` and `Generator.generate`.

    served = models["qkv-mini"]
    call = Call(request.receive)                              # a client that leaves has its rows dropped
    (blanks,) = await served.fill(["巴黎是[MASK]国的首都。"], call, k=5)
    call.n_tokens, call.queue_s, call.inference_s

What a model does follows from its abilities (models/family.py). Long texts are read in windows, and nothing is cut
unless the caller asks for it with `truncate`; then `call.truncated` says so.

Not here: HTTP, routes, the shapes of requests and responses.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from qkv.api.embedder import Blank, Embeddings, TokenVectors, join_embeddings
from qkv.api.generator import GeneratedText, Generator, PromptTokens, WrittenPiece
from qkv.api.model import Model
from qkv.api.predict import make_examples
from qkv.api.translator import Translation, Translator
from qkv.data.batch import Batch
from qkv.data.windows import Rows, merge_windows
from qkv.errors import InputError, did_you_mean
from qkv.models.family import ENCODES, FILLS, HAS_TASK, TRANSLATES, WRITES, Loading, Opened
from qkv.models.folders.hub import ZOO, locate, zoo_name
from qkv.models.table import open_model
from qkv.search.options import GenerateConfig
from qkv.serve.batching import Batcher, ComputeGate, OverloadedError, Submission, UnavailableError, Work
from qkv.serve.gathering import Gathering
from qkv.serve.metrics import Metrics
from qkv.serve.runners import (
    PLACES,
    BlanksRunner,
    GenerateRunner,
    ScoresRunner,
    StreamRunner,
    TokensRunner,
    TranslateRunner,
    VectorRunner,
    work_of_items,
    work_of_rows,
)
from qkv.serve.settings import Call, ServeSettings, UnknownModelError, default_models, split_name
from qkv.tasks.embed import merge_vectors, merge_vectors_of_one
from qkv.tasks.predictor import Solver
from qkv.tasks.task import Calibration
from qkv.text.tokenizer import Encoded
from qkv.train.device import count_cores, device_named

__all__ = [
    "Call",
    "Models",
    "OverloadedError",
    "ServeSettings",
    "Served",
    "UnavailableError",
    "UnknownModelError",
    "default_models",
]

TASK_NAMES = {
    "classify": "text-classification",
    "tag": "token-classification",
    "answer": "question-answering",
    "choice": "multiple-choice",
}
"""The tasks of qkv by the names of Hugging Face; the last has none there."""
SMALL_REQUEST = 4_000
"""Characters up to which a request is tokenized and decoded in the event loop: less than a switch of threads costs."""
MOST_TRANSLATED = 1024
"""Tokens that a request may ask for in the translation of a sentence: nobody else is served while it is written, and a
translator may write without end."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Shared:
    """What the models of a process have in common."""

    settings: ServeSettings
    gate: ComputeGate
    pool: ThreadPoolExecutor  # for tokenizing, collating and decoding
    metrics: Metrics


class Served:
    def __init__(self, name: str, opened: Opened, shared: Shared) -> None:
        self.name, self.opened, self.facts, self._shared = name, opened, opened.facts, shared
        self._device = device_named(shared.settings.device)
        self._notes: list[str] = []
        self.model = self._open_encoder() if opened.has(ENCODES) else None
        self._gathering = None if self.model is None else Gathering(self.model.embedder.prepare)
        self._solver: Solver | None = self.model.solver if self.model is not None and opened.has(HAS_TASK) else None
        self.translator = Translator.of(opened) if opened.has(TRANSLATES) else None
        self._generator = Generator.of(opened, self._device) if opened.has(WRITES) else None
        self.tasks = self._list_tasks()
        if not self.tasks:
            raise InputError(f"{opened.path} holds {opened.facts.about.en}, which has nothing to answer requests with.")
        self.max_length = self._find_max_length()
        self.info = self._describe()
        settings = shared.settings
        self._batcher = Batcher(
            name,
            shared.gate,
            shared.pool,
            settings.batch_tokens,
            settings.queue_tokens,
            shared.metrics,
            partial(torch.set_num_threads, settings.threads or count_cores()),
        )
        facts = {key: self.info[key] for key in ("model_type", "precision")}
        shared.metrics.model(name, self.tasks, facts, lambda: self._batcher.queued_tokens)

    def __repr__(self) -> str:
        return f"<Served {self.name}: {', '.join(self.tasks)}>"

    # What it is

    def _open_encoder(self) -> Model:
        """In the precision of the server, where this kind of encoder has it."""
        precision = self._shared.settings.precision
        try:
            return Model(self.opened, self._device, precision=precision)
        except InputError as error:  # of this kind of model: the settings have checked the CPU
            self._notes.append(f"it computes in fp32: {error}")
            return Model(self.opened, self._device)

    def _list_tasks(self) -> tuple[str, ...]:
        found = [] if self._solver is None else [TASK_NAMES[self._solver.task.name]]
        found += ["translation"] * (self.translator is not None) + ["text-generation"] * (self._generator is not None)
        vectors = ["feature-extraction", "sentence-similarity"] * (self.model is not None)
        blanks = ["fill-mask"] * (self.model is not None and self.opened.has(FILLS))
        made_for_vectors = self.opened.sentence.pooling is not None
        return (*found, *(vectors + blanks if made_for_vectors else blanks + vectors))

    def _find_max_length(self) -> int:
        if self._solver is not None:
            return self._solver.max_length
        if self.model is not None:
            return self.opened.ability(ENCODES).sizes.max_length
        if self.translator is not None:
            return self.translator.max_length
        assert self._generator is not None
        return self._generator.max_length or self._shared.settings.queue_tokens

    @property
    def is_reranker(self) -> bool:
        """Whether it scores a query and a text together: a classifier or regressor of text pairs."""
        if self._solver is None or self.tasks[0] != TASK_NAMES["classify"]:
            return False
        task = self._solver.task
        return task.paired is True or (task.paired is None and task.outputs == 1)

    def _describe(self) -> dict[str, Any]:
        opened, facts, solver = self.opened, self.opened.facts, self._solver
        zoo = zoo_name(facts.path)
        languages = list(ZOO[zoo].reads) if zoo else []
        if self.translator is not None:
            languages = [self.translator.source_language, self.translator.target_language]
        fitted = None if solver is None else solver.calibration
        folded = opened.record.get("folded_temperature", 1.0)  # is in the weights of the head
        # where too few examples were held out, nothing was fitted
        is_calibrated = fitted is not None and (fitted != Calibration() or folded != 1.0)
        found: dict[str, Any] = {
            "model_id": self.name,
            "model_type": facts.model_type,
            "architecture": opened.architecture,
            "tasks": list(self.tasks),
            "max_input_length": self.max_length,
            "labels": list(opened.labels),
            "languages": languages,
            "calibrated": is_calibrated,
            "precision": self._shared.settings.decoding_precision if self.model is None else self.model.precision,
            "device": str(self._device),
            "parameters": facts.shown.get("parameters"),
            "notes": [*opened.notes, *self._notes],
        }
        if self.model is not None:
            sentence = opened.sentence
            found |= {
                "width": opened.ability(ENCODES).sizes.width,
                "pooling": sentence.foreign or sentence.pooling or "mean",
                "normalize": sentence.normalize,
            }
        if solver is not None:
            found |= {
                "kind": solver.task.kind,
                "reads_pairs": solver.task.paired,
                "is_reranker": self.is_reranker,
                "abstain_below": solver.calibration.abstain_below,
            }
        return found

    # What it answers

    async def predict(self, inputs: Sequence[Any], call: Call, *, truncate: bool = False) -> list[Any]:
        """The results of a fine-tuned model, one per input, as `Model.predict` takes and gives them."""
        solver = self._need_solver()
        features, scores = await self._scores(solver, inputs, call, truncate)
        return [] if features is None else await self._work(call, partial(solver.decode, features, scores))

    async def scores(self, inputs: Sequence[Any], call: Call, *, truncate: bool = False) -> NDArray[np.float64]:
        """(E, L) of a classifier, before softmax and calibration; of long texts the mean over windows."""
        solver = self._need_solver()
        if self.tasks[0] != TASK_NAMES["classify"]:
            raise InputError(f"{self.name} does {self.tasks[0]}; raw scores are those of text-classification.")
        features, scores = await self._scores(solver, inputs, call, truncate)
        if features is None:
            return np.zeros((0, solver.task.outputs))
        return merge_windows(scores, features.row_counts).astype(np.float64)

    async def _scores(self, solver: Solver, inputs: Sequence[Any], call: Call, truncate: bool) -> tuple[Any, Any]:
        if not len(inputs):
            return None, None

        def prepare() -> Any:
            examples = list(make_examples(solver.task.example, inputs, solver.tokenizer))
            solver.task.check(examples, needs_labels=False)
            if truncate:
                shortened = [solver.shorten(example) for example in examples]
                call.truncated = shortened != examples
                examples = shortened
            return solver.features(examples)

        call.n_characters = _count_characters(inputs)
        features = await self._work(call, prepare)
        rows = features.rows
        results = await self._compute([work_of_rows(ScoresRunner(solver), rows)], call, len(rows))
        return features, np.concatenate([results[row] for row in range(len(rows))])

    async def embed(
        self,
        texts: Sequence[str] | Sequence[Sequence[int]],
        call: Call,
        *,
        normalize: bool | None = None,
        pooling: str | None = None,
        truncate: bool = False,
        truncation_direction: str = "right",
    ) -> Embeddings:
        """One vector per text, as `Model.embed`. A text may be a list of token ids, with or without the special tokens
        around it. `truncate` keeps the beginning of a text, or its end with the direction "left"."""
        model = self._need_model()
        embedder = model.embedder
        pool, unit = embedder.resolve_pooling(pooling), embedder.resolve_normalize(normalize)
        if truncation_direction not in ("left", "right"):
            raise InputError(f"The direction of truncation is left or right, not '{truncation_direction:.40}'.")
        if not len(texts):
            return join_embeddings((), model.name, embedder.encodes.sizes.width)
        call.n_characters = _count_characters(texts)
        if len(texts) == 1 and isinstance(texts[0], str) and not truncate and call.n_characters <= SMALL_REQUEST:
            return await self._embed_one(texts[0], call, pool, unit)
        rows = await self._work(call, partial(self._read, texts, call, truncate, truncation_direction))
        results = await self._compute([work_of_rows(VectorRunner(embedder, pool), rows)], call, len(rows))

        def finish() -> Embeddings:
            ordered = [results[row] for row in range(len(rows))]
            vectors = np.stack([vector for vector, _ in ordered])
            counts = np.array([count for _, count in ordered], np.int64)
            return replace(embedder.finish(rows, merge_vectors(rows, vectors, counts), unit), model=model.name)

        return await self._work(call, finish, is_tokenizing=False)

    async def _embed_one(self, text: str, call: Call, pool: str, unit: bool) -> Embeddings:
        """Tokenized with the texts of requests that arrive at the same time."""
        model, begin = self._need_model(), time.perf_counter()
        assert self._gathering is not None, "there is an encoder"
        place = await self._gathering.prepare(text)
        self._note_tokenizing(call, begin)
        rows, units = place.rows, place.units
        work = Work(VectorRunner(model.embedder, pool), rows, units, rows.lengths[units])
        results = await self._compute([work], call, len(units))
        ordered = [results[row] for row in units.tolist()]
        vectors = np.stack([vector for vector, _ in ordered])
        found = merge_vectors_of_one(vectors, np.array([count for _, count in ordered], np.int64))
        return replace(model.embedder.finish(rows, found, unit, slice(place.at, place.at + 1)), model=model.name)

    def _read(self, texts: Sequence[Any], call: Call, truncate: bool, direction: str) -> Rows:
        model = self._need_model()
        embedder, tokenizer = model.embedder, model.tokenizer
        if not truncate and all(isinstance(text, str) for text in texts):
            return embedder.prepare(texts)
        ids = [
            tokenizer.encode_ids([text])[0] if isinstance(text, str) else self._check_ids(text, number)
            for number, text in enumerate(texts, 1)
        ]
        if truncate:
            room = embedder.encodes.sizes.max_length - 2
            call.truncated = any(len(row) > room for row in ids)
            ids = [row[:room] if direction == "right" else row[-room:] for row in ids]
        return embedder.prepare_ids(ids)

    def _check_ids(self, row: Any, number: int) -> list[int]:
        tokenizer = self._need_model().tokenizer
        if not isinstance(row, Sequence) or not all(type(one) is int for one in row):
            raise InputError(f"Text {number} is neither a string nor a list of token ids.")
        size = self.opened.ability(ENCODES).sizes.vocabulary_size
        for one in row:
            if not 0 <= one < size:
                raise InputError(f"Text {number} has the token {one}; {self.name} has the tokens 0 … {size - 1}.")
        ids = list(row)
        if len(ids) > 1 and (ids[0], ids[-1]) == (tokenizer.marks.start, tokenizer.marks.end):
            return ids[1:-1]
        return ids

    async def embed_tokens(
        self, texts: Sequence[str], call: Call, *, normalize: bool = False, truncate: bool = False
    ) -> list[TokenVectors]:
        """One vector per token, as `Model.embed_tokens`."""
        embedder = self._need_model().embedder
        if not len(texts):
            return []
        call.n_characters = _count_characters(texts)

        def prepare() -> tuple[list[Encoded], Rows]:
            kept = [self._shorten(text, call) for text in texts] if truncate else texts
            return embedder.prepare_tokens(kept)

        encoded, rows = await self._work(call, prepare)
        results = await self._compute([work_of_rows(TokensRunner(embedder), rows)], call, len(rows))
        vectors = np.concatenate([results[row] for row in range(len(rows))])
        finish = partial(embedder.finish_tokens, encoded, rows, vectors, normalize)
        return await self._work(call, finish, is_tokenizing=False)

    def _shorten(self, text: str, call: Call) -> str:
        """The text up to the last token that fits one window."""
        encodes = self.opened.ability(ENCODES)
        while isinstance(text, str):
            spans = encodes.tokenizer.encode(text, special=False).offsets
            if len(spans) <= (room := encodes.sizes.max_length - 2):
                break
            text, call.truncated = text[: spans[room - 1][1]], True
        return text

    async def fill(
        self, texts: Sequence[str], call: Call, *, k: int, targets: Sequence[str] | None = None
    ) -> list[list[Blank]]:
        """The k most likely tokens for every [MASK] of each text, as `Model.fill`; with `targets`, of these tokens."""
        model = self._need_model()
        fills = self.opened.ability(FILLS)
        if k < 1:
            raise InputError(f"k must be 1 or more, not {k}.")
        if not len(texts):
            return []
        call.n_characters = _count_characters(texts)
        among = None if targets is None else model.find_targets(targets)

        def prepare() -> tuple[list[Any], Batch]:
            masked = [model.prepare_fill(text) for text in texts]
            encoded = [one.encoded for one in masked]
            batch = Batch.of([one.ids for one in encoded], segments=[one.segments for one in encoded])
            return masked, replace(batch, labels={PLACES: batch.ids == fills.mask_id})

        masked, batch = await self._work(call, prepare)
        runner = BlanksRunner(model, self._device, k, among)
        results = await self._compute([work_of_items(runner, batch, batch.lengths)], call, len(masked))

        def finish() -> list[list[Blank]]:
            return [model.finish_fill(one, results[number]) for number, one in enumerate(masked)]

        return await self._work(call, finish, is_tokenizing=False)

    async def translate(
        self, texts: Sequence[str], call: Call, *, n_best: int = 1, split: bool = True, **decoding: Any
    ) -> list[Translation]:
        """As `Translator.translate`; sentence by sentence (`split`) unless several translations are asked for.
        `decoding`: options of `GenerateConfig` in place of the model's own."""
        translator = self._need_translator()
        if not len(texts):
            return []
        config = resolve_decoding(translator.decoding, {"n_best": n_best} | decoding)
        if config.max_length > (most := max(translator.decoding.max_length, MOST_TRANSLATED)):
            raise InputError(f"max_length is {config.max_length:,}; a translation has {most:,} tokens at most.")
        call.n_characters = _count_characters(texts)
        read = await self._work(call, partial(translator.prepare, texts, split=split and n_best == 1))
        found: list[Any] = []
        if read.sources:
            tokens = [len(source) * config.hypotheses for source in read.sources]
            items = list(zip(read.sources, read.keys, strict=True))
            work = work_of_items(TranslateRunner(translator, config), items, tokens)
            results = await self._compute([work], call, len(read.pieces))
            found = [results[number] for number in range(len(read.sources))]
        return await self._work(call, partial(translator.finish, read, found), is_tokenizing=False)

    async def generate(
        self, prompts: Sequence[str], call: Call, *, fit: bool = True, begins: bool | None = None, **options: Any
    ) -> list[list[GeneratedText]]:
        """The n best continuations of each prompt, as `Generator.generate` with these options of `GenerateConfig`.
        `fit`: a max_length for which there is no room becomes what there is room for."""
        generator = self._need_generator()
        if not len(prompts):
            return []
        config = GenerateConfig.of(options, "request")
        call.n_characters = _count_characters(prompts)
        prepare = partial(generator.prepare, prompts, config, None, begins=begins, fit=fit)
        read = await self._work(call, prepare)
        kinds: dict[GenerateConfig, list[int]] = {}  # the room differs between prompts
        for number, prompt in enumerate(read):
            kinds.setdefault(prompt.config, []).append(number)
        works = [
            Work(
                GenerateRunner(generator, kind),
                read,
                np.array(units, np.int64),
                np.array([_cost(read[unit]) for unit in units], np.int64),
            )
            for kind, units in kinds.items()
        ]
        results = await self._compute(works, call, len(read))
        return [[generator.finish(one, text) for text in results[number]] for number, one in enumerate(read)]

    async def stream(
        self, prompt: str, call: Call, *, fit: bool = True, begins: bool | None = None, **options: Any
    ) -> AsyncGenerator[WrittenPiece]:
        """Pieces of one text as they are written, in whole characters. Writing stops when the client leaves or the
        iterator is closed."""
        generator = self._need_generator()
        config = GenerateConfig.of(options, "request")
        call.n_characters = len(prompt)
        (read,) = await self._work(call, partial(generator.prepare, [prompt], config, None, begins=begins, fit=fit))
        loop, pieces, left = asyncio.get_running_loop(), asyncio.Queue[WrittenPiece | None](), False

        def send(piece: WrittenPiece) -> bool:
            if not left:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return not left

        runner = StreamRunner(generator.stream_prompt(read), send)
        writing = asyncio.create_task(self._compute([work_of_items(runner, [read], [_cost(read)])], call, 1))
        writing.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            await writing
        finally:
            left = True
            writing.cancel()

    def tokenize(self, texts: Sequence[str], special: bool) -> list[Encoded]:
        """Tokens of texts; quick, without the queue."""
        found: list[Encoded] = self.opened.tokenizer.encode_batch(list(texts), special=special)
        return found

    def decode(self, ids: Sequence[Sequence[int]], skip_special: bool) -> list[str]:
        """Texts of token ids; quick, without the queue."""
        return [self.opened.tokenizer.decode(row, skip_special=skip_special) for row in ids]

    # How it is computed

    async def warm_up(self) -> None:
        """Answer one request of every kind."""
        call = Call()
        if self._solver is not None:
            example = {"text": "a 一", "question": "a 一", "choices": ["a", "一"]}
            if self._solver.task.paired:
                example["pair"] = "a 一"
            await self.predict([example], call)
        if self.model is not None:
            encodes = self.opened.ability(ENCODES)
            own = sorted(set(encodes.tokenizer.vocabulary.values()) - set(encodes.tokenizer.special_ids))
            known = torch.tensor(own)[encodes.has_vector(torch.tensor(own))]
            await self.embed([known[:2].tolist(), known[:1].tolist()], call, pooling="mean")
            if self.opened.has(FILLS):
                mask = self.model.tokenizer.token(self.opened.ability(FILLS).mask_id)
                await self.fill([f"a {mask} 一"], call, k=1)
        if self.translator is not None:
            await self.translate(["a 一"], call)
        if self._generator is not None:
            await self.generate(["a 一"], call, max_length=4)

    @property
    def queued_tokens(self) -> int:
        return self._batcher.queued_tokens

    @property
    def is_computing(self) -> bool:
        return self._batcher.is_computing

    def close(self, wait: float | None = None) -> bool:
        """Accept no more, finish what is queued; return whether that was done in so many seconds."""
        return self._batcher.close(wait)

    def _need_model(self) -> Model:
        if self.model is None:
            self.opened.ability(ENCODES)  # raises
        assert self.model is not None
        return self.model

    def _need_solver(self) -> Solver:
        if self._solver is None:
            self.opened.ability(HAS_TASK)
        assert self._solver is not None
        return self._solver

    def _need_translator(self) -> Translator:
        if self.translator is None:
            self.opened.ability(TRANSLATES)
        assert self.translator is not None
        return self.translator

    def _need_generator(self) -> Generator:
        if self._generator is None:
            self.opened.ability(WRITES)
        assert self._generator is not None
        return self._generator

    async def _work(self, call: Call, work: Callable[[], Result], is_tokenizing: bool = True) -> Result:
        """Tokenize or decode: of a small request at once, of others in the pool."""
        begin = time.perf_counter()
        if call.n_characters <= SMALL_REQUEST:
            result = work()
        else:
            result = await asyncio.get_running_loop().run_in_executor(self._shared.pool, work)
        if is_tokenizing:
            self._note_tokenizing(call, begin)
        return result

    def _note_tokenizing(self, call: Call, begin: float) -> None:
        call.tokenise_s = time.perf_counter() - begin
        self._shared.metrics.tokenization(call.tokenise_s)

    async def _compute(self, works: Sequence[Work], call: Call, windows: int) -> dict[int, Any]:
        """The results of all units; raises ClientDisconnect when the client has left."""
        submission = Submission(works, asyncio.get_running_loop())
        self._batcher.submit(submission)
        call.n_tokens += submission.n_tokens
        call.n_windows += windows
        gone = None
        if call.receive is not None:
            gone = asyncio.create_task(_watch(call.receive, submission.future))
        try:
            await submission.future
        finally:
            if gone is not None:
                gone.cancel()
            self._batcher.cancel(submission)
            call.queue_s, call.inference_s = submission.queue_s, submission.inference_s
            self._shared.metrics.waited(submission.queue_s)
        return submission.results


async def _watch(receive: Receive, future: asyncio.Future[None]) -> None:
    """Fail the future when the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if not future.done():
        future.set_exception(ClientDisconnect())


def _count_characters(inputs: Any) -> int:
    """Of all strings; a token id counts as four."""
    if isinstance(inputs, str):
        return len(inputs)
    if isinstance(inputs, dict):
        return sum(map(_count_characters, inputs.values()))
    if isinstance(inputs, list | tuple):
        return sum(map(_count_characters, inputs))
    return 4


def _cost(prompt: PromptTokens) -> int:
    """Tokens of a prompt and of all that may be written."""
    return (len(prompt.ids) + prompt.config.max_length) * prompt.config.hypotheses


def resolve_decoding(own: GenerateConfig, wanted: dict[str, Any]) -> GenerateConfig:
    """The decoding options of a model with those that are asked for in their place."""
    start = {name: value for name, value in vars(own).items() if value is not None}
    if wanted.get("sample"):
        start["beams"] = 1
    elif "beams" not in wanted and isinstance(n_best := wanted.get("n_best"), int):
        start["beams"] = max(own.beams, n_best)
    return GenerateConfig.of(start | wanted, "request")


class Models:
    """All served models of a process, in the order in which they were given."""

    def __init__(self, settings: ServeSettings | None = None) -> None:
        self.settings = settings or ServeSettings()
        self.metrics = Metrics()
        self.ready = False
        self.draining = False
        self._served: dict[str, Served] = {}
        threads = self.settings.threads or count_cores()
        torch.set_num_threads(threads)
        pool = ThreadPoolExecutor(max(1, min(2, threads)), thread_name_prefix="text")
        self._shared = Shared(self.settings, ComputeGate(), pool, self.metrics)

    @classmethod
    def open(
        cls,
        given: Sequence[str],
        settings: ServeSettings | None = None,
        watch: Callable[[str], None] = lambda name: None,
    ) -> "Models":
        """Open models, each MODEL or NAME=MODEL; `watch` is called with the name of each before."""
        named: dict[str, str] = {}
        for one in given:
            name, model = split_name(one)
            if name in named:
                raise InputError(f"Two models are called '{name}': give one of them another name, NAME={model}.")
            named[name] = model
        models = cls(settings)
        try:
            for name, model in named.items():
                watch(name)
                models.add(name, model)
        except BaseException:
            models.close(0)
            raise
        return models

    def add(self, name: str, model: str | os.PathLike[str]) -> Served:
        """Open one more model."""
        settings = self.settings
        device = device_named(settings.device)
        opened = open_model(locate(os.fspath(model)), Loading(device=device, precision=settings.decoding_precision))
        served = self._served[name] = Served(name, opened, self._shared)
        return served

    async def warm_up(self) -> None:
        """Have every model answer, then be ready."""
        for served in self:
            await served.warm_up()
        self.ready = True

    def __getitem__(self, name: str) -> Served:
        if name not in self._served:
            raise UnknownModelError(name, self.names)
        return self._served[name]

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._served)

    def default(self, task: str) -> Served:
        """The model that was made for the task most: it is earliest in its list; of several the first."""
        able = [served for served in self if task in served.tasks]
        if able:
            return min(able, key=lambda one: one.tasks.index(task))
        known = dict.fromkeys(task for served in self for task in served.tasks)
        raise InputError(
            f"No model here does '{task:.80}'.{did_you_mean(task[:80], known)} Served: {', '.join(known)}."
        )

    @property
    def is_computing(self) -> bool:
        return any(served.is_computing for served in self)

    @property
    def gate(self) -> ComputeGate:
        return self._shared.gate

    def close(self, wait: float | None = None) -> bool:
        """Accept no more requests and finish those that are queued; return whether that was done in so many seconds."""
        self.draining = True
        end = None if wait is None else time.monotonic() + wait
        done = [served.close(None if end is None else max(0.0, end - time.monotonic())) for served in self]
        self._shared.pool.shutdown(wait=False)  # what it has begun to collate is computed
        return all(done)
