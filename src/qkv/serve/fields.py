"""The fields of a request in JSON: parsed, typed and checked one by one, with messages that name the field.

    fields = Fields(parse_json(body))
    texts = fields.texts("input")
    fields.inside("parameters").whole("top_k", 1, 100, default=5)
    fields.done()                        # a field that nobody has read is refused: nothing is ignored in silence

A null is a missing field, as clients send it for what their user left out.

Not here: which status and which body a refusal has (conventions.py).
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from qkv.errors import InputError, did_you_mean

MOST_SHOWN = 60
"""Characters of a wrong value in a message."""
_Default = TypeVar("_Default")


class FieldError(InputError):
    """What a request asks for and cannot have; `code` says why: missing, kind, range, unknown, empty, unsupported,
    task, language, too_long, json. These messages are in English for every client."""

    def __init__(self, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.code, self.field = code, field


class BodyError(FieldError):
    """A body that is not a JSON object."""

    def __init__(self, message: str) -> None:
        super().__init__("json", message)


def parse_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    >>> parse_json(b'{"inputs": "a"}')
    {'inputs': 'a'}
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BodyError(f"The body is not UTF-8: byte {error.start:,} is not part of a character.") from None
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()  # Python lets half a surrogate pair pass
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BodyError(f"The body is not JSON: {error.msg} at {where}." if text.strip() else _EMPTY) from None
    except UnicodeEncodeError:
        raise BodyError("The body is not JSON: half of a surrogate pair is no character.") from None
    except RecursionError:
        raise BodyError("The body is nested too deeply.") from None
    except BodyError:
        raise
    except ValueError:  # Python refuses to read so many digits
        raise BodyError("The body has a number of thousands of digits.") from None
    if not isinstance(found, dict):
        raise BodyError(f'The body is {_kind_of(found)}; it must be a JSON object, such as {{"inputs": "…"}}.')
    return found


_EMPTY = 'The body is empty; it must be a JSON object, such as {"inputs": "…"}.'


def parse_form(body: bytes) -> dict[str, Any]:
    """The fields of a form, or the JSON object that a client has sent in spite of its Content-Type; a field that is
    given several times is a list.

    >>> parse_form(b"q=%E4%BD%A0%E5%A5%BD&q=a&target=en")
    {'q': ['你好', 'a'], 'target': 'en'}
    """
    if body.lstrip()[:1] in (b"{", b"[", b""):
        return parse_json(body)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
    except ValueError:
        raise BodyError("The body is neither JSON nor a form in UTF-8.") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _refuse_constant(constant: str) -> None:
    raise BodyError(f"The body is not JSON: {constant} is not a number there.")


class Fields:
    """Each field is checked when it is read; `done` refuses those that were never read."""

    def __init__(self, fields: Mapping[str, Any], prefix: str = "") -> None:
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._prefix = prefix  # "parameters." of fields inside another one
        self._read: set[str] = set()
        self._inside: list[Fields] = []

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def name(self, name: str) -> str:
        """What messages call it."""
        return f"{self._prefix}{name}"

    def raw(self, name: str, wanted: str = "") -> Any:
        """The value as it came. It is required if `wanted` says what it must be; else None if it is missing."""
        self._read.add(name)
        if wanted and name not in self._fields:
            raise FieldError(
                "missing", f"The field '{self.name(name)}' is missing; it must be {wanted}.", self.name(name)
            )
        return self._fields.get(name)

    def wrong(self, name: str, wanted: str) -> FieldError:
        """The error for a value of another type."""
        shown = _shown(self._fields.get(name))
        return FieldError("kind", f"'{self.name(name)}' is {shown}; it must be {wanted}.", self.name(name))

    def text(self, name: str, *, blank: bool = False) -> str:
        """A required text; if `blank`, it may be empty."""
        found = self.raw(name, "a text")
        if not isinstance(found, str):
            raise self.wrong(name, "a text")
        return found if blank else require_text(found, self.name(name))

    def maybe_text(self, name: str) -> str | None:
        return self.text(name) if name in self._fields else self.raw(name)

    def string(self, name: str, default: str = "") -> str:
        """A text that may be empty or missing."""
        return self.text(name, blank=True) if name in self._fields else str(self.raw(name) or default)

    def texts(self, name: str, *, blank: bool = False) -> list[str]:
        """A required list of texts, one or more; one text alone is a list of it."""
        found = self.raw(name, "a text or a list of texts")
        return require_texts(found, self.name(name), blank=blank)

    def strings(self, name: str, most: int | None = None) -> list[str]:
        """A list of strings or one string; [] if it is missing."""
        found = self.raw(name)
        found = [] if found is None else [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.wrong(name, "a list of strings")
        if most is not None and len(found) > most:
            raise FieldError(
                "range", f"'{self.name(name)}' has {len(found):,} strings; {most} at most.", self.name(name)
            )
        return found

    def flag(self, name: str, default: _Default) -> bool | _Default:
        found = self.raw(name)
        if found is None:
            return default
        if isinstance(found, bool):
            return found
        raise self.wrong(name, "true or false")

    def whole(self, name: str, low: int, high: int, default: _Default) -> int | _Default:
        found = self.raw(name)
        if found is None:
            return default
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.wrong(name, "a whole number")
        self._check_range(name, found, low, high)
        return found

    def number(self, name: str, low: float, high: float, default: _Default) -> float | _Default:
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, int | float) or isinstance(found, bool):
            raise self.wrong(name, "a number")
        if isinstance(found, float) and not math.isfinite(found):
            raise self.wrong(name, "a number")
        self._check_range(name, found, low, high)
        return float(found)

    def choice(self, name: str, options: Sequence[str], default: _Default) -> str | _Default:
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, str) or found not in options:
            hint = did_you_mean(found[:MOST_SHOWN], options) if isinstance(found, str) else ""
            known = ", ".join(options)
            message = f"'{self.name(name)}' is {_shown(found)}.{hint} Known: {known}."
            raise FieldError("unknown", message, self.name(name))
        return found

    def inside(self, name: str) -> "Fields":
        """The fields of an object; of an empty one if it is missing. `done` looks into it, too."""
        found = self.raw(name)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(name, "an object")
        self._inside.append(Fields(found or {}, f"{self.name(name)}."))
        return self._inside[-1]

    def refuse(self, name: str, why: str, *neutral: Any) -> None:
        """Refuse a field that would change the answer and that is not supported; `neutral` values change nothing."""
        found = self.raw(name)
        if found is None or any(found == one and isinstance(found, bool) == isinstance(one, bool) for one in neutral):
            return
        raise FieldError("unsupported", f"'{self.name(name)}' is not supported: {why}", self.name(name))

    def ignore(self, *names: str) -> None:
        """Fields that change no answer."""
        self._read.update(names)

    def done(self) -> None:
        for name in self._fields:
            if name not in self._read:
                hint = did_you_mean(name[:MOST_SHOWN], self._read) or (
                    f" Known: {', '.join(sorted(self._read))}." if self._read else ""
                )
                called = self.name(name[:MOST_SHOWN])
                raise FieldError("unknown", f"Unknown field '{called}'.{hint}", called)
        for one in self._inside:
            one.done()

    def _check_range(self, name: str, found: float, low: float, high: float) -> None:
        if not low <= found <= high:
            shown = _shown(found)  # an integer may be larger than any float
            if math.isinf(high):
                message = f"'{self.name(name)}' is {shown}; it must be {low:,} or more."
            else:
                message = f"'{self.name(name)}' is {shown}; it goes from {low:,} to {high:,}."
            raise FieldError("range", message, self.name(name))


def require_text(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise FieldError("kind", f"'{name}' is {_shown(text)}; it must be a text.", name)
    if not text.strip():
        raise FieldError("empty", f"'{name}' is empty. Write something.", name)
    return text


def require_texts(found: Any, name: str, *, blank: bool = False) -> list[str]:
    """One text, or a list of one or more, as a list."""
    if isinstance(found, str):
        return [found if blank else require_text(found, name)]
    if not isinstance(found, list):
        raise FieldError("kind", f"'{name}' is {_shown(found)}; it must be a text or a list of texts.", name)
    if not found:
        raise FieldError("empty", f"'{name}' is an empty list. Give one text or more.", name)
    for number, one in enumerate(found):
        if not isinstance(one, str) or not (blank or one.strip()):
            require_text(one, f"{name}[{number}]")
    return found


def is_ids(value: Any) -> bool:
    """Whether a value is a list of token ids."""
    return isinstance(value, list) and bool(value) and all(type(one) is int and one >= 0 for one in value)


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return _kind_of(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def _kind_of(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return kinds.get(type(value), "null" if value is None else "a number")
