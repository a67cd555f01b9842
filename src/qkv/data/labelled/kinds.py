"""The table of labellings: how the examples of each task are written in files."""

import qkv.data.labelled.annotation_files as annotation_files
import qkv.data.labelled.question_files as question_files
import qkv.data.labelled.text_records as text_records
from qkv.data.labelled.examples import AnswerExample, ChoiceExample, TagExample, TextExample
from qkv.data.labelled.opened import Labelling
from qkv.data.labelled.tables import guess_columns
from qkv.errors import InputError, did_you_mean

_TEXTS = Labelling(
    task="classify",
    example=TextExample,
    about="texts with a label each",
    formats="csv, tsv or jsonl with a text and a label",
    record='"text": …, "label": …',
    roles=("text", "pair", "label", "group", "id"),
    needed=("text", "label"),
    columns=text_records.text_columns,
    reader=text_records.text_reader,
    nested=annotation_files.nested_annotations,
    numbered=text_records.given_columns,
    guessed=guess_columns,
    classes=True,
)
_SPANS = Labelling(
    task="tag",
    example=TagExample,
    about="texts with labelled spans",
    formats="CoNLL columns (a word, a tab, its tag) or jsonl with spans",
    record='"text": …, "label": [[start, end, type]]',
    roles=("text", "label", "group", "id"),
    needed=("text", "label"),
    columns=annotation_files.span_columns,
    reader=annotation_files.span_reader,
    nested=annotation_files.nested_annotations,
    numbered=text_records.given_columns,
    shape=annotation_files.name_span_records,
    classes=True,
    spans=True,
)
_QUESTIONS = Labelling(
    task="answer",
    example=AnswerExample,
    about="questions about texts",
    formats="SQuAD or CMRC JSON, or jsonl with question, context and answers",
    record='"question": …, "context": …, "answers": […]',
    roles=("question", "context", "text", "answer", "group", "id"),
    needed=("question", "context", "answer"),
    columns=question_files.answer_columns,
    reader=question_files.answer_reader,
    nested=question_files.nested_questions,
    numbered=question_files.answer_columns,
)
_CHOICES = Labelling(
    task="choice",
    example=ChoiceExample,
    about="questions with choices",
    formats="jsonl with question, choices and answer",
    record='"question": …, "choices": […], "answer": …',
    roles=("question", "context", "text", "choices", "answer", "label", "group", "id"),
    needed=("choices", "answer"),
    columns=question_files.choice_roles,
    reader=question_files.choice_reader,
    nested=question_files.nested_choices,
    numbered=question_files.choice_roles,
)

LABELLINGS = {one.task: one for one in (_TEXTS, _SPANS, _QUESTIONS, _CHOICES)}


def labelling_for(task: str) -> Labelling:
    if task not in LABELLINGS:
        hint = did_you_mean(task, LABELLINGS)
        raise InputError(f"There is no task '{task}'.{hint} There are {', '.join(LABELLINGS)}.")
    return LABELLINGS[task]
