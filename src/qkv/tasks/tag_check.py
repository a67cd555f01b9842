"""What can be wrong with a tagged text: refused if it makes no sense, listed if a tagger cannot follow it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from qkv.data.examples import NOWHERE, Fault, Span, TagExample
from qkv.errors import InputError
from qkv.tasks.tag_units import fitted, tokens_of, units_of
from qkv.tokenizer import Tokenizer


def place_of(example: TagExample, number: int) -> str:
    return str(example.place) if example.place != NOWHERE else f"Text {number}"


def check_example(example: TagExample, where: str, needs_labels: bool, may_nest: bool = False) -> None:
    """Spans and units inside the text, none empty, none over another."""
    if example.spans is None and needs_labels:
        raise InputError(f"{where} has no labels: not even the word that nothing is there. Give a labelled file.")
    spans = sorted(example.spans or ())
    for span in spans:
        _check_inside(span.start, span.end, f"the span {span.label}", example, where)
        if not span.label:
            raise InputError(f"{where}: the span {named(example.text, span)} has an empty label. Name it.")
    if not may_nest and (pair := overlap(spans)):
        raise InputError(
            f"{where}: the spans {named(example.text, pair[0])} and {named(example.text, pair[1])} overlap, and a "
            "character has one label here. Take out one of them, or give --set tag.nested=outer: then the longer one "
            "is learned, and the other is listed."
        )
    units = example.units or ()
    for start, end in units:
        _check_inside(start, end, "the unit", example, where)
    for (_, stop), (start, _) in pairwise(units):
        if start < stop:
            raise InputError(f"{where}: a unit ends at character {stop}, after the next begins ({start}).")


def overlap(spans: Sequence[Span]) -> tuple[Span, Span] | None:
    """The first two that do, of spans in order."""
    return next(((one, other) for one, other in pairwise(spans) if other.start < one.end), None)


def outermost(example: TagExample) -> TagExample:
    """Of spans that overlap, the longest; of equals, the first.

    >>> outermost(TagExample("南京大学", (Span(0, 2, "LOC"), Span(0, 4, "ORG")))).spans
    (Span(start=0, end=4, label='ORG'),)
    """
    if example.spans is None or not overlap(sorted(example.spans)):
        return example
    kept: list[Span] = []
    for span in sorted(example.spans, key=lambda span: (span.start - span.end, span)):
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return replace(example, spans=tuple(sorted(kept)))


def _check_inside(start: int, end: int, what: str, example: TagExample, where: str) -> None:
    if not 0 <= start < end <= len(example.text):
        raise InputError(
            f"{where}: {what} goes from character {start} to {end}, in a text of {len(example.text)}. Characters are "
            "counted from 0, and the end is one past the last."
        )


def named(text: str, span: Span) -> str:
    """
    >>> named("Tom lives here", Span(0, 3, "PER"))
    "PER 'Tom' (characters 0 to 3)"
    """
    words = text[span.start : span.end]
    return f"{span.label} {words if len(words) <= 40 else words[:40] + '…'!r} (characters {span.start} to {span.end})"


def misaligned(tokenizer: Tokenizer, examples: Sequence[TagExample], unit: str) -> list[Fault]:
    """Every span that no whole units make up, or that lies in another, and what training takes instead.

    Each is "mended", also a span that is left out: its example stays, and "dropped" counts examples.
    """
    faults = []
    for example in examples:
        if len(kept := outermost(example).spans or ()) < len(example.spans or ()):
            for span in sorted({*(example.spans or ())} - {*kept}):
                message = f"{named(example.text, span)} overlaps a longer span: training leaves it out."
                faults.append(Fault(example.place, "overlapping", message, "mended"))
    examples = [outermost(example) for example in examples]
    texts = [example.text for example in examples]
    units = units_of(tokens_of(tokenizer, texts), texts, [example.units for example in examples], unit)
    spans = fitted(units, examples)
    for at in (~spans.exact).nonzero()[0].tolist():
        number = int(spans.example[at])
        text, begin = texts[number], int(units.text_begins[number])
        span = Span(int(spans.starts[at]), int(spans.ends[at]), spans.label[at])
        first, last = int(spans.first[at]), int(spans.last[at])
        if last < first:
            message = f"{named(text, span)} holds no token of its own: training leaves it out."
        else:
            taken = Span(int(units.starts[first]) - begin, int(units.ends[last]) - begin, span.label)
            message = f"{named(text, span)} does not lie on whole units: training takes {named(text, taken)}."
        faults.append(Fault(examples[number].place, "misaligned", message, "mended"))
    return sorted(faults)
