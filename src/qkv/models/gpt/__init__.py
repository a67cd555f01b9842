"""GPT (Radford et al. 2018) and GPT-2."""

from qkv.models.gpt.network import GPT as GPT
from qkv.models.gpt.network import GPTConfig as GPTConfig
