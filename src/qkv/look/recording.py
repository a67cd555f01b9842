"""The recorded replies of a saved page, by the keys under which the page looks them up.

A saved page has no server, so the questions with which each view of each model opens are asked here; a refusal is a
reply too. The texts are the given one, or the first example of each view in each language, or all examples. Views with
texts share them, so each is asked about all. Replies are added in the order of their rank until the size limit; the
rest is counted.

`split_units` splits a text into the units that can be clicked on the page, by the rule of fill_units.js:

    a blank         [MASK], already hidden and not a unit
    a 汉字           each alone
    a word          other letters, combining marks, digits and _, with inner punctuation: isn't, 3.5, e-mail
    a picture       an emoji with variant, skin colour or joined emoji; a flag
    punctuation     each character alone

Each character is mapped to the letter of its class, and the rule is a regular expression over those letters, since
Python's expressions support neither scripts nor categories.

Not here: how questions are answered (`ask`).
"""

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from qkv.data.labelled.reader import LABELLINGS
from qkv.errors import InputError
from qkv.look.wire import RefusalError, Reply

MASK_TOKEN = "[MASK]"
HAN_CHARACTER = re.compile(
    "[\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufa6d\ufa70-\ufad9\U00016fe2\U00016fe3\U00016ff0\U00016ff1\U00020000-\U0002a6df\U0002a700-\U0002ebe0"
    "\U0002ebf0-\U0002ee5d\U0002f800-\U0002fa1d\U00030000-\U000323af]"
)
"""The Unicode script Han: several blocks, 々 and 〇."""
PICTURE = re.compile("[\u00a9\u00ae\u203c\u2049\u2122\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001fffd]")
"""Unicode's pictographic characters, and arrows and shapes, for which the rule gives the same units."""
FLAG, SKIN = re.compile("[\U0001f1e6-\U0001f1ff]"), re.compile("[\U0001f3fb-\U0001f3ff]")
VARIANTS, JOINER = "\ufe0e\ufe0f\u20e3", "\u200d"
JOINS = "'’.,-"
_SPACES = "\t\n\v\f\r\ufeff\u2028\u2029"
"""In addition to Unicode's category Zs."""
_UNITS = re.compile(r"h|[lv]+(?:j[lv]+)*|ff|p(?:[vs]|zp)*|[jpfszx]")


def split_units(text: str) -> list[tuple[int, int]]:
    """The spans of the units, in characters.

    >>> [text[a:b] for text in ["Python是3.5 [MASK]!"] for a, b in split_units(text)]
    ['Python', '是', '3.5', '!']
    """
    classes = "".join(map(_class, text))
    for found in re.finditer(re.escape(MASK_TOKEN), text):
        classes = classes[: found.start()] + " " * len(MASK_TOKEN) + classes[found.end() :]
    return [one.span() for one in _UNITS.finditer(classes)]


def _class(character: str) -> str:
    if HAN_CHARACTER.match(character):
        return "h"
    if character in VARIANTS:
        return "v"
    kind = unicodedata.category(character)
    if kind[0] in "LMN" or character == "_":
        return "l"
    if kind == "Zs" or character in _SPACES:
        return " "
    if character in JOINS:
        return "j"
    if character == JOINER:
        return "z"
    return "f" if FLAG.match(character) else "s" if SKIN.match(character) else "p" if PICTURE.match(character) else "x"


MOST_RECORDED_BYTES = 32 << 20
"""Size limit of all replies, before base64."""
_SMALLEST = 512
"""Below this remaining size no more questions are asked."""
MOST_STEPS = 64
"""Maximum number of tokens for which the steps of a head are recorded, for all tokens at once."""
MOST_HIDDEN, FEW_HIDDEN = 30, 8
"""Units hidden one at a time: from each end of a text; and from the end only, for an example of another view (the view
of blanks opens with one of these)."""
ASKED_CANDIDATES, ASKED_BEAMS, ASKED_NEXT_WORDS, ASKED_NEIGHBOURS, ASKED_ANSWERS = 8, 4, 8, 10, 6
ON_MAP, NEAREST_ON_MAP, ANSWERS_ON_MAP = 500, 10, 3
"""The numbers that the page asks for; they must be the same here, since they are part of a question's key."""
RANK_FIRST, RANK_OWN, RANK_OTHERS, RANK_LAST = range(4)
"""Order of recording: what a view opens with, its own examples, examples of other views, large or late replies."""
MOST_WHOLE = 4
"""Models of a page up to which every one is recorded as a whole."""
TASK_FIELDS = {"text": "passage", "question": "question", "choices": "choices"}
"""Fields of questions of the tasks answer and choice, and their names in examples."""

Ask = Callable[[str, Mapping[str, Any]], bytes]
_FormatMessage = Callable[[str], str]


class PageText(NamedTuple):
    text: str
    pair: str | None = None
    hide: str | None = None  # the span that is hidden first in the view of blanks


def question_key(name: str, fields: Mapping[str, Any]) -> str:
    """The key of a question, computed in the same way by the page.

    >>> question_key("fill", {"text": "巴黎是[MASK]国的首都。", "k": 5, "pair": None})
    'fill {"k":5,"model":0,"text":"巴黎是[MASK]国的首都。"}'
    """
    given = {"model": 0} | {key: value for key, value in fields.items() if value is not None}
    return f"{name} {json.dumps(given, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


class Recording:
    """Replies by key, up to a size limit."""

    def __init__(self, ask: Ask, most: int = MOST_RECORDED_BYTES, format_message: _FormatMessage = str) -> None:
        """`format_message` converts the message of a refusal before it is recorded."""
        self.replies: dict[str, str] = {}
        self.left_out: set[str] = set()
        self._kept: dict[str, Reply] = {}
        self._ask = ask
        self._left = most
        self._format_message = format_message

    def keep(self, name: str, **fields: Any) -> Reply | None:
        """Ask (once per question) and record the reply; None if it was refused or exceeds the size limit."""
        key = question_key(name, fields)
        if key in self.replies or key in self.left_out:
            return self._kept.get(key)
        if self._left < _SMALLEST:
            self.left_out.add(key)
            return None
        try:
            frame = self._ask(name, fields)
        except InputError as error:
            code, about = (error.code, error.about) if isinstance(error, RefusalError) else ("input", {})
            said = json.dumps(
                {"code": code, "message": self._format_message(str(error)), "about": dict(about)}, ensure_ascii=False
            )
            self._put(key, said.encode())
            return None
        if self._put(key, frame):
            self._kept[key] = Reply.from_bytes(frame)
        return self._kept.get(key)

    def _put(self, key: str, answer: bytes) -> bool:
        if len(answer) > self._left:
            self.left_out.add(key)
            return False
        self._left -= len(answer)
        self.replies[key] = base64.b64encode(answer).decode("ascii")
        return True


_Subject = Mapping[str, Any]
"""A model's entry in `describe_models`."""
Examples = Mapping[str, Sequence[Mapping[str, Any]]]


def record_answers(
    ask: Ask,
    room: Mapping[str, Any],
    given: PageText | None = None,
    *,
    every: bool = False,
    most: int = MOST_RECORDED_BYTES,
    progress: Callable[[int, int], None] = lambda done, total: None,
    format_message: _FormatMessage = str,
) -> Recording:
    """Record the replies for a page with these models, about the given text and the first examples, or `every` one."""
    made = Recording(ask, most, format_message)
    examples = room["examples"] if every else choose_first(room["examples"], given)
    todo = plan_jobs(room["subjects"], examples, given)
    for number, job in enumerate(todo):
        progress(number, len(todo))
        job(made)
    return made


_Job = Callable[[Recording], object]


def make_job(name: str, fields: Mapping[str, Any]) -> _Job:
    return lambda made: made.keep(name, **fields)


def choose_first(examples: Examples, given: PageText | None) -> Examples:
    """For each view the first example of each language and form (one text, two texts, a question with choices …). If a
    text was given, examples with a text are left out."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for view, listed in examples.items():
        found[view] = {}
        for one in listed:
            if given is None or "text" not in one["set"]:
                parts = [f"{key}{sorted(part) if isinstance(part, dict) else ''}" for key, part in one["set"].items()]
                found[view].setdefault(" ".join([one["lang"], *parts]), one)
    return {view: list(listed.values()) for view, listed in found.items()}


def plan_jobs(subjects: Sequence[_Subject], examples: Examples, given: PageText | None) -> list[_Job]:
    """All jobs, ordered by rank. Of many models only the first of each view is recorded as a whole, since that is what
    the page opens it with; of the others what they open with and the examples of the view."""
    first = {view: subject["index"] for subject in reversed(subjects) for view in subject["views"]}
    few = len(subjects) <= MOST_WHOLE
    # the view of next words shows beside them what the first model that fills blanks expects (next.js: `filler`)
    fills = next((subject["index"] for subject in subjects if "masked" in subject["heads"]), None)
    views = _VIEWS | {"next": partial(_next_words, fills=fills)}
    ranked = [
        (rank, job)
        for subject in subjects
        for view in subject["views"]
        for rank, job in views[view](subject, examples, given)
        if few or subject["index"] == first[view] or rank <= RANK_OWN
    ]
    return [job for _, job in sorted(ranked, key=lambda one: one[0])]


def rank_texts(view: str, examples: Examples, given: PageText | None) -> list[tuple[int, PageText]]:
    """The texts that a view may show, with ranks. Views share the text field, so the examples of other views are
    included. A page opens with the given text, or with the first example in the reader's language."""
    found = {} if given is None else {given: RANK_FIRST}
    languages: set[str] = set()
    for other in TEXT_VIEWS:
        for example in examples.get(other, ()):
            chosen, rank = example["set"], RANK_OWN if other == view else RANK_OTHERS
            if "text" not in chosen:
                continue
            if given is None and other == TEXT_VIEWS[0] and example["lang"] not in languages:
                languages.add(example["lang"])
                rank = RANK_FIRST
            hide = chosen.get("fill", {}).get("hide") if view == "fill" else None
            text = PageText(chosen["text"], chosen.get("pair"), hide)
            found[text] = min(rank, found.get(text, rank))
    return [(rank, text) for text, rank in found.items()]


ATTENTIONS = {
    "bert": ("self",),
    "gpt": ("causal",),
    "transformer": ("encoder", "decoder", "cross"),
    "seq2seq": ("cross",),
}
"""Kinds of attention that the page asks for, by kind of model (attention_controls.js)."""
RankedJobs = Iterator[tuple[int, _Job]]


def _attention(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    for rank, text in rank_texts("attention", examples, given):
        pair = text.pair if "translation" not in subject["views"] else None
        for kind in ATTENTIONS[subject["kind"]]:
            fields = {"model": subject["index"], "text": text.text, "pair": pair, "kind": kind}
            yield rank, make_job("attention", fields)
            yield RANK_LAST, partial(_layers, fields=fields)
            if rank != RANK_OTHERS:
                yield RANK_LAST, partial(_steps, fields=fields, every=rank == RANK_FIRST)


def _layers(made: Recording, fields: Mapping[str, Any]) -> None:
    """Every whole layer, if the small maps do not show every token: megabytes, hence last."""
    found = made.keep("attention", **fields)
    if found is not None and found.arrays["small"].shape[2:] != (len(found.head["left"]), len(found.head["right"])):
        for layer in found.head["layers"]:
            made.keep("attention", **fields, layer=layer)


def _steps(made: Recording, fields: Mapping[str, Any], every: bool) -> None:
    """The steps of heads for all tokens at once, and the inputs: all heads for the first text of a page, otherwise the
    heads with which the page would open."""
    found = made.keep("attention", **fields)
    if found is None or max(len(found.head["left"]), len(found.head["right"])) > MOST_STEPS:
        return
    made.keep("inputs", **fields)
    heads = found.head["heads"]
    for number in range(len(found.head["layers"]) * heads) if every else choose_heads(found):
        made.keep("steps", **fields, layer=number // heads, head=number % heads)


def choose_heads(found: Reply) -> list[int]:
    """For each token the head with the largest weight on another word, where near words count less; numbered across all
    layers. The page opens with one of these (focusOf in attention_data.js)."""
    small, right = found.arrays["small"].astype(np.float64), found.head["right"]  # (L, H, S, S)
    rows, columns = small.shape[2:]
    tokens = [right[at * len(right) // columns] for at in range(columns)]
    said = np.array([not one["special"] and any(map(str.isalnum, one["text"])) for one in tokens])
    away = np.abs(np.arange(columns) - np.arange(rows)[:, None]) - 1  # (S, S)
    counts = np.ones((rows, columns)) if found.head["kind"] == "cross" else np.clip(away / 3, 0, 1)
    focus = (small * counts * said).max(-1).reshape(-1, rows)  # (L · H, S)
    return sorted(set(focus.argmax(0).tolist()))


def _fill(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    for rank, text in rank_texts("fill", examples, given):
        yield rank, partial(_blanks, subject=subject, text=text, few=rank == RANK_OTHERS)


def _blanks(made: Recording, subject: _Subject, text: PageText, few: bool) -> None:
    """Each unit hidden alone; and next-sentence prediction for a pair."""
    fields = {"model": subject["index"], "text": text.text}
    spans = [f"{start}-{end}" for start, end in split_units(text.text)]
    if "masked" in subject["heads"]:
        # in a text with [MASK] nothing else is hidden
        begun = [None] if MASK_TOKEN in text.text else [text.hide] if text.hide else []
        ends = spans[-FEW_HIDDEN:] if few else [*spans[-MOST_HIDDEN:], *spans[:MOST_HIDDEN]]
        for hide in [*begun, *ends]:  # `keep` skips repeated questions
            made.keep("fill", **fields, k=ASKED_CANDIDATES, hide=hide)
    if text.pair is not None:
        made.keep("next_sentence", **fields, pair=text.pair)


def _next_words(subject: _Subject, examples: Examples, given: PageText | None, fills: int | None = None) -> RankedJobs:
    for rank, text in rank_texts("next", examples, given):
        few = rank == RANK_OTHERS
        yield rank, partial(_expected, model=subject["index"], text=text.text, fills=fills, few=few)


def _expected(made: Recording, model: int, text: str, fills: int | None, few: bool) -> None:
    """The next words of a text; and each token as a blank, and one after the text."""
    found = made.keep("next_words", model=model, text=text, k=ASKED_CANDIDATES)
    if found is None or fills is None:
        return
    spans = [f"{one['start']}-{one['end']}" for one in found.head["tokens"] if not one["special"]]
    for hide in spans[-FEW_HIDDEN:] if few else [*spans[-MOST_HIDDEN:], *spans[:MOST_HIDDEN]]:
        made.keep("fill", model=fills, text=text, k=ASKED_CANDIDATES, hide=hide)
    for direction in found.head["words"]:
        made.keep("fill", model=fills, text=with_blank(text, direction), k=ASKED_CANDIDATES)


def with_blank(text: str, direction: str = "forward") -> str:
    """A text with a blank after it, backward before it, as next.js writes it.

    >>> with_blank("the cat "), with_blank("我"), with_blank("cat", "backward")
    ('the cat [MASK]', '我[MASK]', '[MASK] cat')
    """
    said = text.strip()
    gap = "" if HAN_CHARACTER.match(said[0] if direction == "backward" else said[-1]) else " "
    return f"{MASK_TOKEN}{gap}{said}" if direction == "backward" else f"{said}{gap}{MASK_TOKEN}"


def _meanings(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    for example in examples.get("meanings", ()):
        chosen = example["set"]["meanings"]
        fields = {"model": subject["index"], "word": chosen["word"], "sentences": chosen["sentences"]}
        yield RANK_OWN, make_job("meanings", fields)


def _positions(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    yield RANK_FIRST, make_job("positions", {"model": subject["index"]})
    for example in examples.get("positions", ()):
        chosen = example["set"]["positions"]
        fields = {"model": subject["index"], "text": chosen["text"], "other": chosen["other"]}
        yield RANK_OWN, make_job("order", fields)


def _translation(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    for rank, text in rank_texts("translation", examples, given):
        fields = {"model": subject["index"], "text": text.text, "beams": ASKED_BEAMS}
        for name in ("translate", "beam_steps"):
            yield rank, make_job(name, fields)


def _recurrence(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    for rank, text in rank_texts("recurrence", examples, given):
        if rank != RANK_OTHERS:  # states are the largest replies
            yield rank, partial(_ways, subject=subject, fields={"model": subject["index"], "text": text.text})


def _ways(made: Recording, subject: _Subject, fields: Mapping[str, Any]) -> None:
    """Every layer in every direction; and the next words of a language model."""
    found = made.keep("states", **fields, way=0)
    for way in range(1, len(found.head["ways"]) if found is not None else 0):
        made.keep("states", **fields, way=way)
    if "next" in subject["views"]:
        made.keep("next_words", **fields, k=ASKED_NEXT_WORDS)


def _vectors(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    for example in examples.get("vectors", ()):
        yield RANK_OWN, partial(_near, model=subject["index"], chosen=example["set"]["vectors"])


def _near(made: Recording, model: int, chosen: Mapping[str, str]) -> None:
    """Neighbours, an analogy, and the map of the words of both, as vectors.js draws it."""
    corners = {name: chosen[name] for name in "abc"}
    near = made.keep("neighbours", model=model, word=chosen["word"], k=ASKED_NEIGHBOURS)
    analogy = made.keep("analogy", model=model, k=ASKED_ANSWERS, **corners)
    named = [] if near is None else [near.head["word"], *_words(near.head["neighbours"][:NEAREST_ON_MAP])]
    if analogy is not None:
        named += [*(analogy.head[name] for name in "abc"), *_words(analogy.head["answers"][:ANSWERS_ON_MAP])]
    words = " ".join(dict.fromkeys(one for one in named if len(one.split()) == 1))
    script = "chinese" if HAN_CHARACTER.search(chosen["word"]) else "letters"
    made.keep("word_map", model=model, words=words or None, most=ON_MAP, script=script)


def _words(listed: Sequence[Mapping[str, str]]) -> list[str]:
    return [one["word"] for one in listed]


def _tasks(subject: _Subject, examples: Examples, given: PageText | None) -> RankedJobs:
    """Classification and tagging use the text field; answer and choice take their texts from the examples."""
    model, read = {"model": subject["index"]}, LABELLINGS[subject["task"]].example.fields
    if "question" not in read:
        for rank, text in rank_texts("tasks", examples, given):
            yield rank, make_job("task", model | {"text": text.text, "pair": text.pair if "pair" in read else None})
        return
    for example in examples.get("tasks", ()):
        chosen = example["set"].get("tasks", {})
        fields = {field: chosen.get(name) or None for field, name in TASK_FIELDS.items()}
        if chosen and (fields["choices"] is not None) == ("choices" in read):
            yield RANK_OWN, make_job("task", model | fields)


TEXT_VIEWS = ("attention", "fill", "next", "translation", "recurrence", "tasks")
"""Views of the shared text field; a page opens with the first."""
_VIEWS: dict[str, Callable[[_Subject, Examples, PageText | None], RankedJobs]] = {
    "attention": _attention,
    "fill": _fill,
    "next": _next_words,
    "meanings": _meanings,
    "positions": _positions,
    "translation": _translation,
    "vectors": _vectors,
    "tasks": _tasks,
    "recurrence": _recurrence,
}
