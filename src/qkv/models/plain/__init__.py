"""qkv.models.plain."""
