"""qkv.data.pairs."""
