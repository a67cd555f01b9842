"""The page of `qkv look` inside `qkv serve`: it shows the served models, with their weights and in their turns.

Not here: the routes of the page (page.py), the models (serve/served.py).
"""

from collections.abc import Callable
from typing import TypeVar

from qkv.look.api import Api
from qkv.look.subject import Subject
from qkv.serve.app import Worker
from qkv.serve.batching import ComputeGate
from qkv.serve.served import Models, Served

Result = TypeVar("Result")


def look_at(models: Models) -> Api:
    """The questions about served models."""
    return Api([_subject(served) for served in models])


def _subject(served: Served) -> Subject:
    subject = Subject(served.name, served.facts)
    loaded = {"title": served.name, "opened": served.opened, "model": served.model, "translator": served.translator}
    # what the cached properties would load again
    vars(subject).update({name: part for name, part in loaded.items() if part is not None})
    return subject


class GatedWorker(Worker):
    """Answers questions of the page in turns with the batches of the models."""

    def __init__(self, gate: ComputeGate) -> None:
        super().__init__()
        self._gate = gate

    def _work(self, call: Callable[[], Result]) -> Result:
        with self._gate.turn():
            return super()._work(call)
