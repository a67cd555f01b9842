"""Layers: plain arguments in, tensors out. Nothing here knows a config, a corpus or a model."""
