"""RNNLM (Mikolov et al. 2010): the next word from a recurrent state."""
