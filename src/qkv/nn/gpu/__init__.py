"""Triton kernels and fused blocks for a GPU: the equations of nn/ with less memory traffic."""
