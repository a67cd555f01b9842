"""NNLM (Bengio et al. 2003): the next word from a window of words."""
