"""qkv.api."""
