"""qkv.search."""
