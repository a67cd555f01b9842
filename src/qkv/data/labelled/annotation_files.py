"""Texts with labelled spans out of records: CLUENER, doccano, spaCy, tokens with tags; and Label Studio's export.

    cluener        {"text", "label": {type: {string: [[start, end]]}}}
    doccano        {"text", "label": [[start, end, type]]}, also as "labels" or "entities", also of objects with
                   start, end (or start_offset, end_offset) and label
    tokens         {"tokens": [word …], "ner_tags": [tag …]}; in a table, both in one cell each, with blanks between
    label studio   {"data": {"text"}, "annotations": [{"result": [{"value": {"start", "end", "text", "labels"}}]}]}
                   and for labels of whole texts {"value": {"choices": […]}}

A span outside its text, or one that does not read what the file says it reads, goes through opened.py. Where that
fails the whole text is dropped, and told: with a span missing it would teach that nothing is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qkv.data.labelled.column_files import READ_AS, joined, normalised
from qkv.data.labelled.examples import Example, Fault, Place, Span, TagExample, TextExample
from qkv.data.labelled.json_values import Value
from qkv.data.labelled.opened import Convert, Told, Wanted, empty, placed_span, sound
from qkv.data.labelled.tables import SPANS, ask, given_column, key, listed, usual_column
from qkv.data.labelled.text_records import Record, complete, label_of, spelled, string, unpacked
from qkv.errors import InputError
from qkv.metrics.entities import chunks

Stated = tuple[int, int, str, str | None]  # start, end, label, what it should read

STARTS, ENDS = ("start", "start_offset", "start_idx", "begin"), ("end", "end_offset", "end_idx")
_LABELS = ("label", "labels", "type", "entity", "entity_type", "tag")


def shape_of(value: Any, label: str | None) -> str:
    """The name of what a record looks like, for people."""
    if not isinstance(value, dict):
        return ""
    if is_label_studio(value):
        return "label-studio"
    spans = value.get(label or "")
    if isinstance(spans, dict):
        return "cluener"
    return "doccano" if isinstance(spans, list) and spans and isinstance(spans[0], list | dict) else ""


def span_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    columns = {role: given_column(role, value, names, where) for role, value in wanted.columns.items()}
    tokens = next((name for name in names if key(name) in ("tokens", "words")), None)
    if "label" not in columns and (
        found := usual_column("label", [name for name in names if name not in columns.values()], where, SPANS)
    ):
        columns["label"] = found
    others = [name for name in names if name not in columns.values()]
    if "text" not in columns:
        tagged = key(columns.get("label", "")) in ("nertags", "tags")  # tags go with words, not with running text
        if found := tokens if tokens and tagged else usual_column("text", others, where):
            columns["text"] = found
    if "group" not in columns and (found := usual_column("group", others, where)):
        columns["group"] = found
    return complete(wanted, columns, names, where)


def span_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    def convert(line: int, record: Record, told: Told) -> Iterator[TagExample]:
        place = wanted.place(line)
        held = record.get(columns["text"])
        value = unpacked(record.get(columns["label"])) if "label" in columns else None
        if isinstance(value, str) and not value.strip():
            value = None
        if value is None and wanted.needs_labels:
            raise InputError(f"{place} has no spans: {columns['label']!r} is empty. An empty list says there are none.")
        group = spelled(record.get(columns["group"])) if "group" in columns else None
        if isinstance(value, str) or isinstance(held, list) or _is_tags(value):
            words = held if isinstance(held, list) else string(record, columns["text"], place).split()
            yield from _tagged(place, words, value.split() if isinstance(value, str) else value, group, told)
            return
        text = string(record, columns["text"], place)
        yield from _spanned(place, text, None if value is None else _stated(value, place), group, told)

    return convert


def _spanned(
    place: Place, text: str, stated: Sequence[Stated] | None, group: str | None, told: Told
) -> Iterator[TagExample]:
    if not text.strip():
        told(empty(place, "the text"))
        return
    if stated is None:
        yield TagExample(text, None, None, place, group)
        return
    faults: list[Fault] = []
    spans = [placed_span(text, start, end, label, reads, place, faults.append) for start, end, label, reads in stated]
    found = [span for span in spans if span is not None]
    lost = [fault for fault in faults if fault.action == "dropped"]
    if lost:  # one fault for one text, however many of its spans are lost
        more = f"; {len(lost) - 1} more of its spans are wrong" if len(lost) > 1 else ""
        told(lost[0]._replace(message=lost[0].message + more))
        return
    for fault in faults:
        told(fault)
    yield TagExample(text, tuple(sorted(set(found))), None, place, group)


def _tagged(place: Place, words: Any, tags: Any, group: str | None, told: Told) -> Iterator[TagExample]:
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"{place}: the words must be a list of texts, none of them empty.")
    for word in words:
        sound(word, place, "a word")
    text, units = joined(words)
    if not text.strip():
        told(empty(place, "the text"))
        return
    if tags is None:
        yield TagExample(text, None, units, place, group)
        return
    if not isinstance(tags, list) or len(tags) != len(words):
        count = len(tags) if isinstance(tags, list) else "no list of"
        raise InputError(f"{place} has {len(words)} words and {count} tags; there must be a tag for every word.")
    read = []
    for tag in tags:
        one = normalised(tag) if isinstance(tag, str) else None
        if one is None:
            hint = " Numbers stand for tags that are listed elsewhere; write the tags." if isinstance(tag, int) else ""
            raise InputError(f"{place}: {tag!r} is not a tag such as O, B-PER or I-PER.{hint}")
        read.append(one)
    spans = (Span(units[first][0], units[end - 1][1], label) for first, end, label in chunks(read, READ_AS))
    yield TagExample(text, tuple(spans), units, place, group)


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str | int)


def _stated(value: Any, place: Place) -> list[Stated]:
    """The spans as the file gives them."""
    if isinstance(value, dict):
        return list(_by_type(value, place))
    if not isinstance(value, list):
        raise InputError(f"{place}: spans are a list of [start, end, label], not {value!r:.60}.")
    return [stated for one in value for stated in _one(one, place)]


def _by_type(value: Mapping[str, Any], place: Place) -> Iterator[Stated]:
    """CLUENER's: the end is counted in."""
    for label, strings in value.items():
        if not isinstance(strings, dict):
            raise InputError(f"{place}: under {label!r}, {{string: [[start, end]]}} was expected, not {strings!r:.60}.")
        for reads, places in strings.items():
            for one in places if isinstance(places, list) else [places]:
                if not isinstance(one, list) or len(one) != 2 or not all(type(end) is int for end in one):
                    raise InputError(f"{place}: {reads!r:.40} stands at [start, end], not at {one!r:.60}.")
                yield one[0], one[1] + 1, sound(label, place, "a label"), reads


def _one(span: Any, place: Place) -> Iterator[Stated]:
    reads = None
    if isinstance(span, dict):
        start, end, label = (
            next((span[name] for name in names if span.get(name) is not None), None)
            for names in (STARTS, ENDS, _LABELS)
        )
        reads = span.get("text") if isinstance(span.get("text"), str) else None
    elif isinstance(span, list) and len(span) >= 3:
        start, end, label = span[:3]
    else:
        start = end = label = None
    labels = label if isinstance(label, list) else [label]
    names = [name for one in labels if not isinstance(one, dict | list) and (name := spelled(one))]
    if type(start) is not int or type(end) is not int or not names:
        raise InputError(f"{place}: a span is [start, end, label], or an object with these, not {span!r:.80}.")
    for name in names:
        yield start, end, sound(name, place, "a label"), reads


def is_label_studio(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("data"), dict)
        and isinstance(value.get("annotations", value.get("completions")), list)
    )


def nested_annotations(wanted: Wanted, value: Any) -> tuple[str, Convert] | None:
    """The format and the reader of a file that begins with this value; None for flat records."""
    return ("label-studio", label_studio_reader(wanted)) if is_label_studio(value) else None


def label_studio_reader(wanted: Wanted) -> Convert:
    """Of spans or of labels of whole texts; of several annotations the first that was not cancelled is taken."""
    examples = _with_spans if wanted.labelling.spans else _with_label

    def convert(line: int, unit: Value, told: Told) -> Iterator[Example]:
        place = wanted.place(line)
        if not is_label_studio(unit.value):
            raise InputError(f'{place}: a task with "data" and "annotations" was expected.')
        data = unit.value["data"]
        names = list(data)
        column = wanted.columns.get("text") or usual_column("text", names, str(place))
        strings = [name for name in names if isinstance(data[name], str)]
        column = column or (strings[0] if len(strings) == 1 else None)
        if column is None or column not in data:
            raise InputError(f"{place}: which of {listed(names)} is the text? {ask('text')}")
        text = string(data, column, place)
        annotations = [
            one for one in unit.value.get("annotations", unit.value.get("completions"))
            if isinstance(one, dict) and not one.get("was_cancelled")
        ]  # fmt: skip
        if len(annotations) > 1:
            message = f"there are {len(annotations)} annotations, the first was taken"
            told(Fault(place, "several annotations", message, "noted"))
        if not annotations and wanted.needs_labels:
            told(Fault(place, "not annotated", "the task was skipped, or never annotated", "dropped"))
            return
        values = _values(annotations[0], place) if annotations else None
        yield from examples(wanted, place, text, values, spelled(data.get("group")), told)

    return convert


def _with_spans(
    wanted: Wanted, place: Place, text: str, values: list[Mapping[str, Any]] | None, group: str | None, told: Told
) -> Iterator[TagExample]:
    spans = None if values is None else [span for value in values if "start" in value for span in _one(value, place)]
    yield from _spanned(place, text, spans, group, told)


def _with_label(
    wanted: Wanted, place: Place, text: str, values: list[Mapping[str, Any]] | None, group: str | None, told: Told
) -> Iterator[TextExample]:
    chosen = [one for value in values or () for one in _listed(value.get("choices"))]
    label = None if not chosen else label_of(chosen if len(chosen) > 1 else chosen[0], place, "choices")
    if not text.strip():
        told(empty(place, "the text"))
    elif label is None and wanted.needs_labels:
        told(Fault(place, "not annotated", "no choice was made", "dropped"))
    else:
        yield TextExample(text, None, label, place, group)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _values(annotation: Mapping[str, Any], place: Place) -> list[Mapping[str, Any]]:
    results = annotation.get("result")
    if not isinstance(results, list):
        raise InputError(f'{place}: an annotation without "result".')
    return [one["value"] for one in results if isinstance(one, dict) and isinstance(one.get("value"), dict)]
