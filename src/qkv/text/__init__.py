"""qkv.text."""
