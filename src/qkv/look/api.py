"""The questions about the models of a page: a literal table of functions by name, and `Api`, which calls them.

    POST api/NAME   {"model": 0, "text": …}   →  a frame (look/wire.py)

Not here: HTTP (page.py), the computations (the other files of look/).
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from qkv.errors import InputError, did_you_mean
from qkv.look.attention import attention, show_inputs, show_steps
from qkv.look.examples import EXAMPLES
from qkv.look.meanings import compare_meanings
from qkv.look.next_words import show_next_words
from qkv.look.positions import compare_order, show_positions
from qkv.look.predictions import fill_blanks, run_task, score_next_sentence
from qkv.look.recurrence import show_states
from qkv.look.subject import Subject, describe_models
from qkv.look.translating import show_beam_steps, show_translation
from qkv.look.vectors import show_analogy, show_neighbours, show_word_map
from qkv.look.wire import Asked, RefusalError, Reply

_Answer = Callable[[Subject, Asked], Reply]

ANSWER_FUNCTIONS: dict[str, _Answer] = {
    "attention": attention,
    "steps": show_steps,
    "inputs": show_inputs,
    "fill": fill_blanks,
    "next_sentence": score_next_sentence,
    "meanings": compare_meanings,
    "positions": show_positions,
    "order": compare_order,
    "neighbours": show_neighbours,
    "analogy": show_analogy,
    "word_map": show_word_map,
    "translate": show_translation,
    "beam_steps": show_beam_steps,
    "states": show_states,
    "next_words": show_next_words,
    "task": run_task,
}


class UnknownQuestionError(RefusalError):
    """Unknown question name."""


class Api:
    """The models of one page. Safe to use from several threads."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        answers: Mapping[str, _Answer] = ANSWER_FUNCTIONS,
        examples: Mapping[str, Any] = EXAMPLES,
    ) -> None:
        """Raises InputError for an incomplete folder."""
        self.subjects = tuple(subjects)
        self._answers = answers
        self._room = describe_models(self.subjects, examples)
        self._opening = tuple(threading.Lock() for _ in self.subjects)
        self._opened: set[tuple[int, str]] = set()
        self._loaded: set[int] = set()

    def room(self) -> dict[str, Any]:
        """The description of all models (`describe_models`)."""
        return self._room

    def load(self, indices: Iterable[int] | None = None) -> None:
        """Load the weights of these models (default: all) and run each once; the others load when they are first asked
        about. Raises InputError if a model is unusable."""
        for index in range(len(self.subjects)) if indices is None else indices:
            self._load(index)
            if "attention" in self._room["subjects"][index]["views"]:
                # warm-up: the first pass of a network is several times slower than the next
                with suppress(InputError):
                    self.ask("attention", {"model": index, "text": "a"})

    def ask(self, name: str, fields: Mapping[str, Any]) -> bytes:
        """The frame of the reply. Raises RefusalError or another InputError if there is none."""
        if name not in self._answers:
            raise UnknownQuestionError(
                "unknown_name",
                f"Unknown question '{name:.60}'.{did_you_mean(name[:60], self._answers)} "
                f"Known: {', '.join(self._answers)}.",
                name=name[:60],
            )
        given = {key: value for key, value in fields.items() if value is not None}
        index = Asked(given).number("model", 0, len(self.subjects) - 1, default=0)
        given.pop("model", None)
        if (index, name) in self._opened:
            return self._answers[name](self.subjects[index], Asked(given)).to_bytes()
        with self._opening[index]:  # the first request loads the weights; others wait
            self._load(index)
            frame = self._answers[name](self.subjects[index], Asked(given)).to_bytes()
            self._opened.add((index, name))
        return frame

    def _load(self, index: int) -> None:
        if index not in self._loaded:
            self.subjects[index].load()
            self._loaded.add(index)
