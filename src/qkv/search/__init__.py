"""Decoding over a model's `step(tokens, state)`: greedy, sampling, beam search."""
