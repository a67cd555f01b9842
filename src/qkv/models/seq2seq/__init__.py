"""qkv.models.seq2seq."""
