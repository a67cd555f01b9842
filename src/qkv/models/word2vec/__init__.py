"""word2vec (Mikolov et al. 2013): one vector a word."""
