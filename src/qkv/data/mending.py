"""Answers and spans that are not where the file says they are.

Character positions go wrong in real files (counted in bytes or UTF-16, before the text was cleaned, by hand). What can
be set right without a doubt is, and every case is told: nothing is moved or left out in silence.
"""

from qkv.data.examples import Answer, Fault, Place, Span
from qkv.data.opened import Told, shortened


def occurrences(text: str, part: str) -> list[int]:
    """Where `part` stands in `text`, overlapping ones too.

    >>> occurrences("ababa", "aba")
    [0, 2]
    """
    found, place = [], text.find(part)
    while place >= 0:
        found.append(place)
        place = text.find(part, place + 1)
    return found


def placed_answer(context: str, text: str, start: int | None, place: Place, what: str, told: Told) -> Answer | None:
    """The answer where it stands: at `start`, or else nearest to it. None, and told, where it stands nowhere.

    `start` None: the file does not say; then the first occurrence, which is told where there are several.
    """
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(start, text)
    found = occurrences(context, text)
    if not found:
        message = f"{what}: the answer {shortened(text)} does not stand in the text: it is scored by, not learned"
        told(Fault(place, "answer", message, "mended"))  # of the example: others may be left
        return None
    if start is None:
        if len(found) > 1:
            message = f"{what}: the answer {shortened(text)} stands in the text {len(found)} times, the first was taken"
            told(Fault(place, "answer place", message, "noted"))
        return Answer(found[0], text)
    nearest = min(found, key=lambda one: abs(one - start))
    message = f"{what}: the answer {shortened(text)} does not stand at {start} but at {nearest}"
    told(Fault(place, "answer", message, "mended"))
    return Answer(nearest, text)


def placed_span(
    text: str, start: int, end: int, label: str, stated: str | None, place: Place, told: Told
) -> Span | None:
    """The span as given, or moved to the one place where its stated string stands. None, and told, where it cannot be.

    With a stated string its length decides where the span ends: files differ in whether the end is counted in.
    """
    if stated is None:
        if 0 <= start < end <= len(text):
            return Span(start, end, label)
        message = f"the span {start}–{end} ({label}) is not within the text of {len(text)} characters"
        told(Fault(place, "span", message, "dropped"))
        return None
    if stated and start >= 0 and text.startswith(stated, start):
        return Span(start, start + len(stated), label)
    found = occurrences(text, stated) if stated else []
    message = f"the span {start}–{end} ({label}) does not read {shortened(stated)}"
    if len(found) == 1:
        told(Fault(place, "span", f"{message}, which stands at {found[0]}", "mended"))
        return Span(found[0], found[0] + len(stated), label)
    often = f"stands in the text {len(found)} times" if found else "stands nowhere in the text"
    told(Fault(place, "span", f"{message}, which {often}", "dropped"))
    return None
