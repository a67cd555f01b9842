"""Tiny models of every kind that the page shows, with drawn weights: what they say is nonsense, and always the same."""

from collections.abc import Callable
from pathlib import Path

from qkv.look.subject import Subject, open_subject
from tests.support.below_readers import make_elmo
from tests.support.folders import make_folder
from tests.support.gpt_folders import make_gpt
from tests.support.inside_folders import rnnlm, translator
from tests.support.task_folders import task_folder
from tests.support.word_vectors import make_vectors_folder

MAKERS: dict[str, Callable[[Path], Subject]] = {
    "bert": lambda path: open_subject(make_folder(path)),
    "plain": lambda path: open_subject(make_folder(path, "BertModel", seed=1)),  # no head at all
    "gpt": lambda path: open_subject(make_gpt(path)),
    "transformer": lambda path: translator(path, "transformer"),
    "seq2seq": lambda path: translator(path, "seq2seq"),
    "elmo": lambda path: open_subject(make_elmo(path)),
    "rnnlm": lambda path: rnnlm(path, "lstm"),
    "word2vec": lambda path: open_subject(make_vectors_folder(path)),
    "classify": lambda path: open_subject(task_folder(path, "classify")),
    "tag": lambda path: open_subject(task_folder(path, "tag", seed=4)),
    "answer": lambda path: open_subject(task_folder(path, "answer")),
    "choice": lambda path: open_subject(task_folder(path, "choice")),
}
"""In the order of the page's list."""


def make_models(folder: Path) -> dict[str, Subject]:
    return {name: make(folder / name) for name, make in MAKERS.items()}
