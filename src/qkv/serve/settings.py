"""Settings of `qkv serve`, the names of models in URLs, and what is known of one request.

Used through served.py.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Receive

from qkv.errors import InputError, did_you_mean
from qkv.models.folders.hub import default_model, shipped_models, shown_name
from qkv.nn.cpu.encoder import choose_encoder_precision
from qkv.train.device import device_named

MODEL_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # 汉字 too: clients send them percent-encoded
BATCH_TOKENS = {"cpu": 2048}  # small, so that some requests are computed while others are read and answered
BATCH_TOKENS_ELSEWHERE = 32_768
QUEUED_BATCHES = 64
"""Batches that the queue of a model holds, where the user does not say how many tokens."""


class UnknownModelError(Exception):
    """No model of this name is served."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"There is no model '{name:.80}' here.{did_you_mean(name[:80], known)} Served: {', '.join(known)}."
        )
        self.name, self.known = name, tuple(known)


@dataclass(frozen=True)
class ServeSettings:
    host: str = "127.0.0.1"
    port: int | None = None  # 0: any free one; None: 8080 or the next free one
    token: str | None = None  # None: drawn if others can reach the server
    max_body: int = 8 << 20  # bytes
    max_batch_tokens: int | None = None  # None: what is fastest on the device, see BATCH_TOKENS
    max_queue_tokens: int | None = None  # None: QUEUED_BATCHES batches
    drain_delay: float = 1.0  # seconds between SIGTERM and the end of listening: time for load balancers to notice
    drain_seconds: float = 20.0  # after that, for accepted requests to finish
    threads: int | None = None  # for computing; None: one per core
    precision: str = (
        "fp32"  # on a CPU: of encoders fp32, bf16, int8 or auto; of what writes and translates int8 or fp32
    )
    allow_origins: tuple[str, ...] = ()
    access_log: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("threads", "max_body", "max_batch_tokens", "max_queue_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} must be 1 or more, not {value}.")
        for name in ("drain_delay", "drain_seconds"):
            value = getattr(self, name)
            if not 0 <= value <= 86_400:
                raise InputError(f"--{name.replace('_', '-')} must be 0 to 86400 seconds, not {value}.")
        choose_encoder_precision(self.precision)  # refuses what this CPU cannot do
        if self.max_queue_tokens is not None and self.max_queue_tokens < self.batch_tokens:
            raise InputError(
                f"--max-queue-tokens {self.max_queue_tokens:,} is less than one batch of {self.batch_tokens:,} tokens "
                "(--max-batch-tokens)."
            )

    @property
    def decoding_precision(self) -> str:
        """Of what writes and translates."""
        return "int8" if self.precision == "int8" else "fp32"

    @property
    def batch_tokens(self) -> int:
        """`max_batch_tokens`, or the default of the device."""
        return self.max_batch_tokens or BATCH_TOKENS.get(device_named(self.device).type, BATCH_TOKENS_ELSEWHERE)

    @property
    def queue_tokens(self) -> int:
        """`max_queue_tokens`, or the default."""
        return self.max_queue_tokens or QUEUED_BATCHES * self.batch_tokens


@dataclass
class Call:
    """One request: what is known of it while it is computed."""

    receive: Receive | None = None  # watched: a client that has left has its rows dropped from the queue
    n_tokens: int = 0  # computed; each window counts
    n_windows: int = 0
    truncated: bool = False  # a text was cut because the client asked for it
    n_characters: int = 0
    tokenise_s: float = 0.0
    queue_s: float = 0.0
    inference_s: float = 0.0


def default_models() -> list[str]:
    """The models of the zoo that are served without a MODEL: the default of each ability that answers requests."""
    needs = [("encodes",), ("fills",), ("writes",), ("translates", "en", "zh"), ("translates", "zh", "en")]
    found = dict.fromkeys(default_model(*need) for need in needs)
    shipped = shipped_models()
    return [name for name in found if name in shipped] or [next(iter(found))]


def split_name(given: str) -> tuple[str, str]:
    """NAME=MODEL → the name in URLs, and the model; the name is that of the folder, run or model if there is none.

    >>> split_name("nli=runs/a"), split_name("runs/mails"), split_name("hf:BAAI/bge-m3@main")
    (('nli', 'runs/a'), ('mails', 'runs/mails'), ('BAAI/bge-m3', 'hf:BAAI/bge-m3@main'))
    """
    name, equals, model = given.partition("=")
    if not equals or os.path.isdir(given):
        model = given
        name = given.removeprefix("hf:").partition("@")[0] if given.startswith("hf:") else shown_name(given)
    if not MODEL_NAME.fullmatch(name):
        raise InputError(
            f"'{name}' cannot be the name of a model in URLs: use letters, digits, '.', '_' and '-', as in "
            f"mymodel={model}."
        )
    return name, model
