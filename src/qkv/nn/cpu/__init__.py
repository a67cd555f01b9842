"""Decoding on a CPU: caches, 8-bit weights, numba kernels, speculative decoding."""
