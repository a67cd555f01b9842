"""qkv.models.word2vec."""
