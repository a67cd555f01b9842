"""BERT (Devlin et al. 2019)."""

from qkv.models.bert.network import PRESETS as PRESETS
from qkv.models.bert.network import Bert as Bert
from qkv.models.bert.network import BertConfig as BertConfig
from qkv.models.bert.network import BertWithHeads as BertWithHeads
