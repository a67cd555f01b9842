"""Texts with labelled spans from records: CLUENER, doccano, spaCy, tokens with tags; and exports of Label Studio.

    cluener        {"text", "label": {type: {string: [[start, end]]}}}
    doccano        {"text", "label": [[start, end, type]]}, also as "labels" or "entities", also of objects with
                   start, end (or start_offset, end_offset) and label
    tokens         {"tokens": [word …], "ner_tags": [tag …]}; in a table, one cell each, separated by spaces
    label studio   {"data": {"text"}, "annotations": [{"result": [{"value": {"start", "end", "text", "labels"}}]}]}
                   and for labels of whole texts {"value": {"choices": […]}}

A span outside its text, or with another text than stated, is repaired by opened.py. If that fails, the whole text is
dropped and reported: without the span it would teach that there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qkv.data.labelled.column_files import READ_AS, join_words, normalise_tag
from qkv.data.labelled.examples import Example, Fault, Place, Span, TagExample, TextExample
from qkv.data.labelled.json_values import Value
from qkv.data.labelled.opened import Convert, ReportFault, Wanted, check_text, empty_text_fault, locate_span
from qkv.data.labelled.record_files import (
    FlatRecord,
    check_complete,
    read_label,
    read_string,
    unpack_json_cell,
    value_as_text,
)
from qkv.data.labelled.tables import (
    SPAN_NAMES,
    ask_for_columns,
    column_key,
    find_given_column,
    find_usual_column,
    quote_names,
)
from qkv.errors import InputError
from qkv.metrics.spans import find_chunks

StatedSpan = tuple[int, int, str, str | None]  # start, end, label, stated text

STARTS, ENDS = ("start", "start_offset", "start_idx", "begin"), ("end", "end_offset", "end_idx")
_LABELS = ("label", "labels", "type", "entity", "entity_type", "tag")


def name_span_records(value: Any, label: str | None) -> str:
    """Return the name of a record's format, for people."""
    if not isinstance(value, dict):
        return ""
    if is_label_studio(value):
        return "label-studio"
    spans = value.get(label or "")
    if isinstance(spans, dict):
        return "cluener"
    return "doccano" if isinstance(spans, list) and spans and isinstance(spans[0], list | dict) else ""


def span_columns(wanted: Wanted, names: Sequence[str], where: str) -> dict[str, str]:
    columns = {role: find_given_column(role, value, names, where) for role, value in wanted.columns.items()}
    tokens = next((name for name in names if column_key(name) in ("tokens", "words")), None)
    if "label" not in columns and (
        found := find_usual_column("label", [name for name in names if name not in columns.values()], where, SPAN_NAMES)
    ):
        columns["label"] = found
    others = [name for name in names if name not in columns.values()]
    if "text" not in columns:
        tagged = column_key(columns.get("label", "")) in (
            "nertags",
            "tags",
        )  # tags go with words, not with running text
        if found := tokens if tokens and tagged else find_usual_column("text", others, where):
            columns["text"] = found
    if "group" not in columns and (found := find_usual_column("group", others, where)):
        columns["group"] = found
    return check_complete(wanted, columns, names, where)


def span_reader(wanted: Wanted, columns: Mapping[str, str], names: Sequence[str]) -> Convert:
    def convert(line: int, record: FlatRecord, report: ReportFault) -> Iterator[TagExample]:
        place = wanted.place(line)
        held = record.get(columns["text"])
        value = unpack_json_cell(record.get(columns["label"])) if "label" in columns else None
        if isinstance(value, str) and not value.strip():
            value = None
        if value is None and wanted.needs_labels:
            raise InputError(f"{place} has no spans: {columns['label']!r} is empty. Write [] if there are none.")
        group = value_as_text(record.get(columns["group"])) if "group" in columns else None
        if isinstance(value, str) or isinstance(held, list) or _is_tags(value):
            words = held if isinstance(held, list) else read_string(record, columns["text"], place).split()
            yield from _make_tag_example(
                place, words, value.split() if isinstance(value, str) else value, group, report
            )
            return
        text = read_string(record, columns["text"], place)
        yield from _make_span_example(place, text, None if value is None else _read_stated(value, place), group, report)

    return convert


def _make_span_example(
    place: Place, text: str, stated: Sequence[StatedSpan] | None, group: str | None, report: ReportFault
) -> Iterator[TagExample]:
    if not text.strip():
        report(empty_text_fault(place, "the text"))
        return
    if stated is None:
        yield TagExample(text, None, None, place, group)
        return
    faults: list[Fault] = []
    spans = [locate_span(text, start, end, label, reads, place, faults.append) for start, end, label, reads in stated]
    found = [span for span in spans if span is not None]
    lost = [fault for fault in faults if fault.action == "dropped"]
    if lost:  # one fault per text
        more = f"; {len(lost) - 1} more of its spans are wrong" if len(lost) > 1 else ""
        report(lost[0]._replace(message=lost[0].message + more))
        return
    for fault in faults:
        report(fault)
    yield TagExample(text, tuple(sorted(set(found))), None, place, group)


def _make_tag_example(
    place: Place, words: Any, tags: Any, group: str | None, report: ReportFault
) -> Iterator[TagExample]:
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"{place}: the words must be a list of texts that are not empty.")
    for word in words:
        check_text(word, place, "a word")
    text, units = join_words(words)
    if not text.strip():
        report(empty_text_fault(place, "the text"))
        return
    if tags is None:
        yield TagExample(text, None, units, place, group)
        return
    if not isinstance(tags, list) or len(tags) != len(words):
        count = len(tags) if isinstance(tags, list) else "no list of"
        raise InputError(f"{place} has {len(words)} words and {count} tags; there must be a tag for every word.")
    read = []
    for tag in tags:
        one = normalise_tag(tag) if isinstance(tag, str) else None
        if one is None:
            hint = " Write the tags instead of their numbers." if isinstance(tag, int) else ""
            raise InputError(f"{place}: {tag!r} is not a tag such as O, B-PER or I-PER.{hint}")
        read.append(one)
    spans = (Span(units[first][0], units[end - 1][1], label) for first, end, label in find_chunks(read, READ_AS))
    yield TagExample(text, tuple(spans), units, place, group)


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str | int)


def _read_stated(value: Any, place: Place) -> list[StatedSpan]:
    """Return the spans as stated in the file."""
    if isinstance(value, dict):
        return list(_by_type(value, place))
    if not isinstance(value, list):
        raise InputError(f"{place}: spans must be a list of [start, end, label], not {value!r:.60}.")
    return [stated for one in value for stated in _one(one, place)]


def _by_type(value: Mapping[str, Any], place: Place) -> Iterator[StatedSpan]:
    """Read CLUENER's spans, whose end is inclusive."""
    for label, strings in value.items():
        if not isinstance(strings, dict):
            raise InputError(f"{place}: under {label!r}, {{string: [[start, end]]}} was expected, not {strings!r:.60}.")
        for reads, places in strings.items():
            for one in places if isinstance(places, list) else [places]:
                if not isinstance(one, list) or len(one) != 2 or not all(type(end) is int for end in one):
                    raise InputError(f"{place}: the position of {reads!r:.40} must be [start, end], not {one!r:.60}.")
                yield one[0], one[1] + 1, check_text(label, place, "a label"), reads


def _one(span: Any, place: Place) -> Iterator[StatedSpan]:
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
    names = [name for one in labels if not isinstance(one, dict | list) and (name := value_as_text(one))]
    if type(start) is not int or type(end) is not int or not names:
        raise InputError(f"{place}: a span must be [start, end, label] or an object with these, not {span!r:.80}.")
    for name in names:
        yield start, end, check_text(name, place, "a label"), reads


def is_label_studio(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("data"), dict)
        and isinstance(value.get("annotations", value.get("completions")), list)
    )


def nested_annotations(wanted: Wanted, value: Any) -> tuple[str, Convert] | None:
    """Return the format and reader of a file that begins with this value; None for flat records."""
    return ("label-studio", label_studio_reader(wanted)) if is_label_studio(value) else None


def label_studio_reader(wanted: Wanted) -> Convert:
    """Return a reader of spans or of labels of texts; it takes the first annotation that was not cancelled."""
    examples = _with_spans if wanted.labelling.spans else _with_label

    def convert(line: int, unit: Value, report: ReportFault) -> Iterator[Example]:
        place = wanted.place(line)
        if not is_label_studio(unit.value):
            raise InputError(f'{place}: a task with "data" and "annotations" was expected.')
        data = unit.value["data"]
        names = list(data)
        column = wanted.columns.get("text") or find_usual_column("text", names, str(place))
        strings = [name for name in names if isinstance(data[name], str)]
        column = column or (strings[0] if len(strings) == 1 else None)
        if column is None or column not in data:
            raise InputError(f"{place}: which of {quote_names(names)} is the text? {ask_for_columns('text')}")
        text = read_string(data, column, place)
        annotations = [
            one for one in unit.value.get("annotations", unit.value.get("completions"))
            if isinstance(one, dict) and not one.get("was_cancelled")
        ]  # fmt: skip
        if len(annotations) > 1:
            message = f"there are {len(annotations)} annotations, the first is used"
            report(Fault(place, "several annotations", message, "noted"))
        if not annotations and wanted.needs_labels:
            report(Fault(place, "not annotated", "the task was skipped, or never annotated", "dropped"))
            return
        values = _values(annotations[0], place) if annotations else None
        yield from examples(wanted, place, text, values, value_as_text(data.get("group")), report)

    return convert


def _with_spans(
    wanted: Wanted,
    place: Place,
    text: str,
    values: list[Mapping[str, Any]] | None,
    group: str | None,
    report: ReportFault,
) -> Iterator[TagExample]:
    spans = None if values is None else [span for value in values if "start" in value for span in _one(value, place)]
    yield from _make_span_example(place, text, spans, group, report)


def _with_label(
    wanted: Wanted,
    place: Place,
    text: str,
    values: list[Mapping[str, Any]] | None,
    group: str | None,
    report: ReportFault,
) -> Iterator[TextExample]:
    chosen = [one for value in values or () for one in _as_list(value.get("choices"))]
    label = None if not chosen else read_label(chosen if len(chosen) > 1 else chosen[0], place, "choices")
    if not text.strip():
        report(empty_text_fault(place, "the text"))
    elif label is None and wanted.needs_labels:
        report(Fault(place, "not annotated", "no choice was made", "dropped"))
    else:
        yield TextExample(text, None, label, place, group)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _values(annotation: Mapping[str, Any], place: Place) -> list[Mapping[str, Any]]:
    results = annotation.get("result")
    if not isinstance(results, list):
        raise InputError(f'{place}: an annotation without "result".')
    return [one["value"] for one in results if isinstance(one, dict) and isinstance(one.get("value"), dict)]
