"""Work on blocks of text, in this process or in several, in the order of the blocks; encode them to arrays of tokens.

A worker is a new Python process that receives blocks through a pipe: it is not forked (tokenizers have threads) and
does not import the caller's script, so notebooks and scripts without `if __name__ == "__main__"` work, on Windows too.
It ends when its pipe is closed, even if this process was killed.
"""

import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from qkv.data.corpus.documents import Block, read_documents
from qkv.data.corpus.encode import CorpusEncoder
from qkv.errors import InputError
from qkv.text.backend import BYTE_PAIR, AnyKind
from qkv.text.languages import Letters
from qkv.text.segmenter import Cut, find_segmenter, split_sentences
from qkv.text.tokenizer import Tokenizer

_Result = TypeVar("_Result", covariant=True)
SAMPLE = 20  # sentences of a block that are returned as text
SCRIPT = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from qkv.data.corpus.workers import serve_blocks
serve_blocks()"""


@dataclass(frozen=True)
class EncodeJob:
    """Everything that a worker needs."""

    tokenizer: str  # contents of tokenizer.json
    kind: AnyKind
    segmenter: str | Cut
    field: str = "text"
    words: str | None = None  # the tokenizer's own segmenter

    @classmethod
    def of(cls, tokenizer: Tokenizer, segmenter: str | Cut, field: str = "text") -> "EncodeJob":
        return cls(tokenizer.backend.to_str(), tokenizer.kind, segmenter, field, tokenizer.segmenter)

    def start(self) -> "BlockEncoder":
        return BlockEncoder(self)

    def travels(self) -> bool:
        """Whether another process can import the segmenter: a lambda or a function of `__main__` cannot."""
        if callable(self.segmenter) and self.segmenter.__module__ == "__main__":
            return False
        try:
            pickle.dumps(self)
        except (pickle.PicklingError, AttributeError, TypeError):
            return False
        return True


@dataclass(frozen=True)
class EncodedBlock:
    """The tokens of a block, concatenated."""

    tokens: NDArray[np.unsignedinteger]  # (N,)
    word_starts: NDArray[np.bool_]  # (N,)
    sentences: NDArray[np.int64]  # (S,) tokens of each, none of them empty
    documents: NDArray[np.int64]  # sentences of each part of a document; some may have none
    characters: int
    letters: NDArray[np.int64]  # by language
    sample: list[str]  # the first sentences as text


class BlockEncoder:
    """Encodes blocks, by the job."""

    def __init__(self, job: EncodeJob) -> None:
        tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(job.tokenizer), job.kind, segmenter=job.words)
        self.tokenizer = tokenizer
        self._field = job.field
        self._keeps_white_space = keeps_white_space(tokenizer)
        self._type: type[np.unsignedinteger] = token_type(tokenizer.size)
        self._encoder = CorpusEncoder(tokenizer, find_segmenter(job.segmenter))
        self._letters = Letters()

    def __call__(self, block: Block) -> EncodedBlock:
        text, begins, _ = read_documents(block, self._field)
        spans = np.array(split_sentences(text), np.int64).reshape(-1, 2)
        starts, ends = spans.T
        document = np.searchsorted(np.array(begins), starts, side="right") - 1
        if self._keeps_white_space and len(starts):
            starts, ends = after_the_last(starts, ends, document), ends.copy()
            # without a blank line there, a document may have begun in the previous block or continue in the next
            if block.goes_on and document[0] == 0:
                starts[0] = 0
            if block.source.kind == ".txt" and document[-1] == len(begins) - 1:
                ends[-1] = len(text)
        found = self._encoder.encode(text, starts, ends)
        kept = found.lengths > 0  # a sentence of invisible characters has no tokens
        return EncodedBlock(
            tokens=found.ids.astype(self._type),
            word_starts=found.word_starts,
            sentences=found.lengths[kept],
            documents=np.bincount(document[kept], minlength=len(begins)),
            characters=int((ends - starts).sum()),
            letters=self._letters.count(text),
            sample=[text[start:end] for start, end in spans[kept][:SAMPLE].tolist()],
        )


def keeps_white_space(tokenizer: Tokenizer) -> bool:
    """Whether spaces and line ends are tokens or parts of tokens: character and byte-level tokenizers."""
    by_bytes = tokenizer.kind == BYTE_PAIR and isinstance(tokenizer.backend.pre_tokenizer, pre_tokenizers.ByteLevel)
    return by_bytes or tokenizer.kind == "character"


def after_the_last(
    starts: NDArray[np.int64], ends: NDArray[np.int64], document: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the starts of sentences that include the white space before them, so that nothing is lost in a document.

    >>> text = "To be. \\nOr\\n\\nnot"
    >>> starts, ends = np.array([0, 8, 12]), np.array([6, 10, 15])
    >>> starts = after_the_last(starts, ends, np.array([0, 0, 1]))
    >>> [text[start:end] for start, end in zip(starts, ends)]
    ['To be.', ' \\nOr', 'not']
    """
    starts = starts.copy()
    goes_on = document[1:] == document[:-1]
    starts[1:][goes_on] = ends[:-1][goes_on]
    return starts


def token_type(vocabulary_size: int) -> type[np.unsignedinteger]:
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


class BlockJob(Protocol[_Result]):
    """What is done with blocks; pickled to each worker, which starts it once."""

    def start(self) -> Callable[[Block], _Result]: ...


def map_blocks(job: BlockJob[_Result], blocks: Iterable[Block], workers: int) -> Generator[tuple[Block, _Result]]:
    """Yield every block with its result, in order, with only a few blocks in progress at a time."""
    if workers == 1:
        work = job.start()
        for block in blocks:
            yield block, work(block)
        return
    with _Pool(job, workers) as pool:
        on_their_way: deque[tuple[Block, Future[_Result]]] = deque()
        for block in blocks:
            on_their_way.append((block, pool.submit(block)))
            if len(on_their_way) > 2 * workers:
                first, future = on_their_way.popleft()
                yield first, future.result()
        while on_their_way:
            first, future = on_their_way.popleft()
            yield first, future.result()


class _Pool(Generic[_Result]):
    """Worker processes, and as many threads that wait for them."""

    def __init__(self, job: BlockJob[_Result], workers: int) -> None:
        self._children = [_Child[_Result](job) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Child[_Result]] = queue.SimpleQueue()
        for child in self._children:
            self._idle.put(child)
        self._threads = ThreadPoolExecutor(workers)

    def submit(self, block: Block) -> "Future[_Result]":
        return self._threads.submit(self._ask, block)

    def _ask(self, block: Block) -> _Result:
        child = self._idle.get()
        try:
            return child.ask(block)
        finally:
            self._idle.put(child)

    def __enter__(self) -> "_Pool[_Result]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.end(at_once=kind is not None)
        self._threads.shutdown(cancel_futures=True)


class _Child(Generic[_Result]):
    def __init__(self, job: BlockJob[_Result]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},  # one thread per process
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the workers
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._send(job)

    def ask(self, block: Block) -> _Result:
        self._send(block)
        try:
            answer = pickle.load(self._from)
        except (EOFError, pickle.UnpicklingError, OSError, ValueError):
            raise self._died() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _send(self, message: Any) -> None:
        try:
            pickle.dump(message, self._to, protocol=5)
            self._to.flush()
        except (OSError, ValueError):
            raise self._died() from None

    def _died(self) -> InputError:
        code = self._process.wait()
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        hint = " Was there too little memory?" if code == -9 else ""
        return InputError(
            f"a worker process ended {how}.{hint} Finished shards are kept: run the same command again, perhaps with "
            "fewer workers."
        )

    def end(self, at_once: bool) -> None:
        if at_once:
            self._process.kill()
        with suppress(OSError):  # it may have ended with data still to be sent
            self._to.close()
        self._process.wait()
        self._from.close()


def serve_blocks() -> None:
    """Main loop of a worker process: read a job, then blocks, and answer each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where a new session does not keep Ctrl-C away
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep the output of a segmenter out of the answers
    questions = sys.stdin.buffer
    work: Callable[[Block], Any] | None = None
    job: BlockJob[Any] = pickle.load(questions)
    while True:
        try:
            block = pickle.load(questions)
        except EOFError:
            return
        answer: Any
        try:
            work = work or job.start()
            answer = work(block)
        except InputError as error:
            answer = error
        except Exception:
            answer = RuntimeError(f"in a worker process:\n{traceback.format_exc()}")
        pickle.dump(answer, answers, protocol=5)
        answers.flush()
