"""On a CPU. Decoding: caches, 8-bit weights, numba kernels, speculation. Encoders: packed weights, precisions."""
