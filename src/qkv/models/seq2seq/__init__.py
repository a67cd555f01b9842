"""Seq2seq with and without attention (Sutskever et al. 2014; Bahdanau et al. 2015)."""

from qkv.models.seq2seq.network import Seq2Seq as Seq2Seq
from qkv.models.seq2seq.network import Seq2SeqConfig as Seq2SeqConfig
