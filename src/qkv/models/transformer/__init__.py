"""qkv.models.transformer."""
