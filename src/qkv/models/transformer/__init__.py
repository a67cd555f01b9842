"""The Transformer (Vaswani et al. 2017) for translation, and OPUS-MT folders."""

from qkv.models.transformer.network import Transformer as Transformer
from qkv.models.transformer.network import TransformerConfig as TransformerConfig
