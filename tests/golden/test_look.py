"""The frames of `qkv look`: what every model of models/ answers to every question, over HTTP."""

import http.client
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.golden.golden import MODELS, check_golden, kept, shape

NAMES = sorted(folder.name for folder in MODELS.iterdir())
TEXT = "the cat walked because it was tired"
DTYPES = {"u1": "u1", "f4": "<f4", "i4": "<i4"}
FEW = 48
"""Values of an array that are kept, evenly over all of it."""

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("attention", {"text": TEXT}),
    "attention of a pair": ("attention", {"text": TEXT, "pair": "the dog"}),
    "attention of a layer": ("attention", {"text": TEXT, "layer": 0}),
    "attention, decoder": ("attention", {"text": "1 2 3", "kind": "decoder"}),
    "attention, cross": ("attention", {"text": "1 2 3", "kind": "cross"}),
    "steps": ("steps", {"text": TEXT, "layer": 0, "head": 1}),
    "steps of a row": ("steps", {"text": TEXT, "layer": 0, "head": 0, "row": 2}),
    "inputs": ("inputs", {"text": TEXT}),
    "fill": ("fill", {"text": "the [MASK] walked", "k": 3}),
    "fill, hidden": ("fill", {"text": TEXT, "k": 3, "hide": "4-7"}),
    "next_sentence": ("next_sentence", {"text": TEXT, "pair": "the dog was wide"}),
    "meanings": ("meanings", {"word": "cat", "sentences": [TEXT, "a cat is wide", "unhappy cat"]}),
    "positions": ("positions", {}),
    "order": ("order", {"text": "the cat is tired", "other": "tired is the cat"}),
    "neighbours": ("neighbours", {"word": "cat", "k": 4}),
    "analogy": ("analogy", {"a": "cat", "b": "dog", "c": "street", "k": 3}),
    "word_map": ("word_map", {"most": 12, "script": "letters"}),
    "translate": ("translate", {"text": "1 2 3", "beams": 2}),
    "beam_steps": ("beam_steps", {"text": "1 2 3", "beams": 2, "most": 4}),
    "states": ("states", {"text": "the cat walked", "way": 0}),
    "next_words": ("next_words", {"text": "the cat walked", "k": 3}),
    "task": ("task", {"text": TEXT}),
    "task, question": ("task", {"text": TEXT, "question": "the animal"}),
    "task, choices": ("task", {"text": TEXT, "question": "the animal", "choices": ["cat", "5G"]}),
    "nothing": ("atention", {"text": TEXT}),
    "unknown field": ("attention", {"text": TEXT, "colour": 1}),
    "no text": ("attention", {}),
}
"""By a name: what is asked, and with which fields. What a model does not have is refused, and that is kept too."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server with all the models, in the order of NAMES."""
    first, *others = (str(MODELS / name) for name in NAMES)
    words = [word for other in others for word in ("--compare", other)]
    command = [sys.executable, "-m", "qkv", "look", first, *words, "--port", "0", "--no-browser", "--threads", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "QKV_MODEL"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            link = urlsplit(process.stdout.readline().strip())
            assert link.hostname and link.port, "the server did not start"
            yield f"{link.hostname}:{link.port}"
        finally:
            process.terminate()


def sent(address: str, method: str, path: str, fields: dict[str, Any] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        body = None if fields is None else json.dumps(fields)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def opened(frame: bytes) -> dict[str, Any]:
    """The head of a frame, and of its arrays names, types, shapes and some of the values."""
    assert frame[:4] == b"qkv1"
    (length,) = struct.unpack("<I", frame[4:8])
    head = json.loads(frame[8 : 8 + length])
    arrays = {}
    for one in head.pop("arrays"):
        count = int(np.prod(one["shape"], dtype=np.int64))
        values = np.frombuffer(frame, DTYPES[one["dtype"]], count, 8 + length + one["at"])[:: max(1, count // FEW)]
        key = "bytes" if one["dtype"] == "u1" else "values"
        numbers = values.tolist() if one["dtype"] != "f4" else [float(f"{value:.6g}") for value in values]
        arrays[one["name"]] = {"dtype": one["dtype"], "shape": one["shape"], key: numbers}
    return {"head": kept(head), "arrays": arrays}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_model_answers(address: str, name: str) -> None:
    found = {}
    for title, (question, fields) in ASKED.items():
        status, body = sent(address, "POST", f"/api/{question}", {"model": NAMES.index(name), **fields})
        found[title] = opened(body) if status == 200 else {"status": status} | kept(json.loads(body))
    check_golden(f"look/{name}", found)


def test_the_room(address: str) -> None:
    status, body = sent(address, "GET", "/api/room")
    assert status == 200
    room = json.loads(body)
    views = {view: shape(examples) for view, examples in room.pop("examples").items()}
    limits = room.pop("limits")
    check_golden("look/room", {**kept(room), "limits": limits, "examples": views})
