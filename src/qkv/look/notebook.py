"""`qkv.look(model, text)`: the page of `qkv look` with its answers in one document, shown in a notebook cell.

    qkv.look("qkv-mini", "The children went home because they were hungry.")
    qkv.look(model).save("page.html")

Not here: the page itself (page.py) and what is asked of the models (recording.py).
"""

import html
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.api.model import Model
from qkv.errors import InputError, did_you_mean
from qkv.files import write_text
from qkv.look.api import Api
from qkv.look.page import address_of, build_saved_page
from qkv.look.recording import PageText, Recording, record_answers
from qkv.look.subject import VIEWS, Subject, open_subject
from qkv.models.folders.hub import DEFAULT_MODEL

_HEIGHT = 720
"""Pixels of the frame in a notebook."""


def build_page(
    api: Api,
    state: dict[str, Any],
    every: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[str, Recording]:
    """The page in one document with the answers about the text of `state`, or about the first examples (or `every`)."""
    room = api.room()
    given = PageText(str(state["text"]), str(state["pair"]) if "pair" in state else None) if "text" in state else None

    def nameless(message: str) -> str:
        """Replace paths of this machine by the titles of the models."""
        for subject in api.subjects:
            for place in (str(subject.path.resolve()), str(subject.path), subject.name):
                message = message.replace(place, subject.title)
        return message

    made = record_answers(api.ask, room, given, every=every, progress=progress, format_message=nameless)
    subjects = [subject | {"name": subject["title"]} for subject in room["subjects"]]
    recorded = {
        "room": room | {"subjects": subjects, "saved": True},
        "replies": made.replies,
        "hash": f"#{address_of(state)}" if state else "",
    }
    return build_saved_page(recorded), made


@dataclass(frozen=True)
class LookPage:
    """The page of a model, which needs no server. A notebook shows it; `save` writes it."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<qkv.look at {self.title}: a page of {len(self.html) / 2**20:.1f} MB; .save(file) writes it>"

    def _repr_html_(self) -> str:
        frame = f'style="width: 100%; height: {_HEIGHT}px; border: 0"'
        return f'<iframe title="{html.escape(self.title)}" {frame} srcdoc="{html.escape(self.html)}"></iframe>'

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write one file that opens without a server, whole or not at all; return its path."""
        path = Path(os.path.expanduser(file))
        write_text(path, self.html)
        return path


def look(
    model: str | os.PathLike[str] | Model = DEFAULT_MODEL,
    text: str | None = None,
    pair: str | None = None,
    view: str | None = None,
    lang: str | None = None,
) -> LookPage:
    """The page about a model: a loaded one, a folder, a run, a file of word vectors, or a name.

    With a text the page has the answers about it, else those about the first example of every view; `view` and `lang`
    say what it opens with.
    """
    if view is not None and view not in VIEWS:
        raise InputError(f"There is no view '{view}'.{did_you_mean(view, VIEWS)} Views: {', '.join(VIEWS)}.")
    if pair is not None and text is None:
        raise InputError("pair is a second text: give the first one as text.")
    api = Api([Subject.of(model) if isinstance(model, Model) else open_subject(model)])
    api.load()
    state = {"view": view, "text": text, "pair": pair, "lang": lang}
    page, _ = build_page(api, {name: value for name, value in state.items() if value is not None})
    return LookPage(api.subjects[0].title, page)
