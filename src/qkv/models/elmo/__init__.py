"""ELMo (Peters et al. 2018)."""

from qkv.models.elmo.network import Elmo as Elmo
from qkv.models.elmo.network import ElmoConfig as ElmoConfig
from qkv.models.elmo.network import ScalarMix as ScalarMix
