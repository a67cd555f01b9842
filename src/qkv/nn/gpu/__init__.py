"""Triton kernels and fused blocks for a GPU: the same equations as nn/, with fewer bytes moved."""
