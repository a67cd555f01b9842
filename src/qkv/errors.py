"""Errors of users: one clear message, no traceback.

`InputError` is raised for anything a user can fix: a missing file, a wrong value, a damaged folder. The command line
prints its message and exits with code 2. Any other exception is a bug and keeps its traceback.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class InputError(ValueError):
    """The user's input cannot be used; the message names it and says what to do."""


PEER_LOST = 3
"""Exit code of a process that ends because another one of the same run has ended, which says why."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return a hint to append to a message, with a leading space; "" if no option is similar.

    >>> did_you_mean("bsae", ["tiny", "base", "large"])
    " Did you mean 'base'?"
    >>> did_you_mean("aminal", ["animal"]), did_you_mean("serve", ["curve"])
    (" Did you mean 'animal'?", '')
    """
    known = list(options)
    near = get_close_matches(name, known, n=1, cutoff=0.65 if len(name) < 5 else 0.7)
    near = near or [one for one in known if sorted(one) == sorted(name)]  # letters in another order
    return f" Did you mean '{near[0]}'?" if near else ""


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError inside the block into an `InputError` that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename or path} cannot be read: {error.strerror or error}.") from error


def listed(names: Iterable[str], most: int = 6) -> str:
    """Names for a message, cut short where there are many."""
    names = sorted(names)
    first = ", ".join(names[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
