"""What the routes that write texts share: options, the strings that end a text, and texts in parts.

A text ends before the first of its `stop` strings. What comes in parts holds back a beginning of one of them.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from qkv.api.generator import GeneratedText
from qkv.serve.fields import Fields
from qkv.serve.served import Call, Served

LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class Writing:
    """How texts are written: the options of `GenerateConfig`, and what is done with the texts."""

    options: Mapping[str, Any]
    stop: tuple[str, ...] = ()
    n: int = 1  # texts a prompt that are returned; more may be written (`n_best`)

    @property
    def seed(self) -> int:
        return int(self.options["seed"])


def read_seed(fields: Fields) -> int:
    """The given seed, or one drawn for this request: the same request without a seed gives another text."""
    given = fields.whole("seed", 0, LARGEST_SEED, None)
    return secrets.randbits(31) if given is None else given


class Completion(NamedTuple):
    """A text that was written, or a part of it."""

    text: str
    reason: str | None = None  # why it ended: end, stop or length; None: it goes on
    n_tokens: int = 0  # written so far
    n_prompt_tokens: int = 0


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first string of `stop`, and whether there is one.

    >>> cut_at_stop("one\\ntwo.", ["\\n", "."])
    ('one', True)
    """
    at = min((found for one in stop if (found := text.find(one)) >= 0), default=-1)
    return (text, False) if at < 0 else (text[:at], True)


def complete(found: GeneratedText, stop: Sequence[str]) -> Completion:
    text, stopped = cut_at_stop(found.text, stop)
    reason = "stop" if stopped else "end" if found.finished else "length"
    return Completion(text, reason, found.n_tokens, found.n_prompt_tokens)


async def write_texts(served: Served, prompts: Sequence[str], call: Call, how: Writing) -> list[list[Completion]]:
    """The texts of every prompt, best first."""
    found = await served.generate(prompts, call, **how.options)
    return [[complete(one, how.stop) for one in texts[: how.n]] for texts in found]


class Held:
    """Text in parts, without what may become a string of `stop`.

    >>> held = Held(["<end>"])
    >>> [held.add("a <"), held.add("b <e"), held.add("nd> c"), held.ended]
    ['a ', '<b ', '', True]
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop, self.kept, self.ended = stop, "", False

    def add(self, part: str) -> str:
        """What can be shown."""
        whole, self.ended = cut_at_stop(self.kept + part, self.stop)
        if self.ended:
            self.kept = ""
            return whole
        size = max((_overlap(whole, one) for one in self.stop), default=0)
        self.kept = whole[len(whole) - size :]
        return whole[: len(whole) - size]

    def rest(self) -> str:
        found, self.kept = self.kept, ""
        return found


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of the text that are a beginning of the string.

    >>> _overlap("ab<e", "<end>"), _overlap("ab", "<end>")
    (2, 0)
    """
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


async def stream_text(served: Served, prompt: str, call: Call, how: Writing) -> AsyncIterator[Completion]:
    """One text in parts; the last one has the reason why it ended."""
    held = Held(how.stop)
    n_tokens = n_prompt = 0
    reason = "length"
    written = served.stream(prompt, call, **how.options)
    async with aclosing(written) as pieces:  # closed early, no more is computed
        async for piece in pieces:
            n_tokens, n_prompt = piece.n_tokens, piece.n_prompt_tokens
            shown = held.add(piece.text)
            if held.ended:
                yield Completion(shown, "stop", n_tokens, n_prompt)
                return
            if piece.finished:
                reason = "end"
            if shown:
                yield Completion(shown, None, n_tokens, n_prompt)
    yield Completion(held.rest(), reason, n_tokens, n_prompt)
