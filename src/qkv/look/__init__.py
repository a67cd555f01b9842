"""qkv.look."""
