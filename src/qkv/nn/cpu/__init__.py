"""Decoding on a CPU: caches, 8-bit weights, kernels compiled by numba, speculative decoding."""
