"""Folders of NNLM (models/folders/own.py): its table, which serves as word vectors."""

from functools import partial

from qkv.models.family import LOOKS_UP
from qkv.models.plain.folder import family_below
from qkv.models.word2vec.vectors import open_table, words_of
from qkv.report.bilingual import Phrase

NNLM_FAMILY = family_below(
    "nnlm",
    Phrase("an NNLM, which gives vectors of words", "NNLM，可给出词向量"),
    "nnlm",
    partial(open_table, model_type="nnlm", name="embedding.weight"),
    {LOOKS_UP: words_of},
)
