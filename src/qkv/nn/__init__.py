"""Layers: plain arguments in, tensors out, independent of configs, data and models."""
