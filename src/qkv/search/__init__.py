"""Decoding over one `step(tokens, state)`: greedy, sampling, beam search."""
