"""What is asked about a model: the fields of a request, each checked where it is read.

A field that is missing, of the wrong kind or out of its range is a RefusalError that names it, never a traceback; a
field that nobody reads is refused too (`done`), with what was probably meant.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from qkv.errors import did_you_mean
from qkv.inside.reply import RefusalError

LONGEST = 100_000
"""Characters of a text that are taken. What a model can read of them is its own matter."""


class Asked:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self._read: set[str] = set()

    def text(self, name: str = "text", *, longest: int = LONGEST) -> str:
        """A text with something in it."""
        found = self._of(name, str, "a text")
        if not found.strip():
            raise RefusalError("empty", f"'{name}' is empty. Write something.", field=name)
        if len(found) > longest:
            raise RefusalError(
                "too_long",
                f"'{name}' has {len(found):,} characters; {longest:,} are taken at most.",
                field=name,
                length=len(found),
                most=longest,
            )
        return str(found)

    def maybe_text(self, name: str, *, longest: int = LONGEST) -> str | None:
        """None where the field is missing, null or blank."""
        found = self._fields.get(name)
        if found is None or (isinstance(found, str) and not found.strip()):
            self._read.add(name)
            return None
        return self.text(name, longest=longest)

    def texts(self, name: str, *, most: int, longest: int = LONGEST) -> list[str]:
        found = self._of(name, list, "a list of texts")
        if not 1 <= len(found) <= most:
            raise RefusalError(
                "number", f"'{name}' has {len(found)} texts; 1 to {most} are taken.", field=name, most=most
            )
        return [Asked({name: one}).text(name, longest=longest) for one in found]

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        if default is not None and self._fields.get(name) is None:
            self._read.add(name)
            return default
        found = self._of(name, int, "a whole number")
        if not low <= found <= high:
            raise RefusalError(
                "range", f"'{name}' is {found}; it goes from {low} to {high}.", field=name, low=low, high=high
            )
        return int(found)

    def maybe_number(self, name: str, low: int, high: int) -> int | None:
        if self._fields.get(name) is None:
            self._read.add(name)
            return None
        return self.number(name, low, high)

    def flag(self, name: str, default: bool = False) -> bool:
        if self._fields.get(name) is None:
            self._read.add(name)
            return default
        return bool(self._of(name, bool, "true or false"))

    def choice(self, name: str, options: Sequence[str], default: str | None = None) -> str:
        if default is not None and self._fields.get(name) is None:
            self._read.add(name)
            return default
        found = self._of(name, str, "a name")
        if found not in options:
            raise RefusalError(
                "unknown",
                f"'{name}' is '{found}'.{did_you_mean(found, options)} Known: {', '.join(options)}.",
                field=name,
            )
        return str(found)

    def done(self) -> None:
        """All that may be read was: what is left was a mistake."""
        for name in self._fields:
            if name not in self._read:
                hint = did_you_mean(name, self._read)
                raise RefusalError("field", f"Nothing is known about the field '{name}'.{hint}", field=name)

    def _of(self, name: str, kind: type, wanted: str) -> Any:
        self._read.add(name)
        if name not in self._fields:
            raise RefusalError("missing", f"The field '{name}' is missing: {wanted}.", field=name)
        found = self._fields[name]
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise RefusalError("kind", f"'{name}' is {found!r:.60}; {wanted} is due.", field=name)
        return found
