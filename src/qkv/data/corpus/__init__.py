"""qkv.data.corpus."""
