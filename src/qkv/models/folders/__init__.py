"""qkv.models.folders."""
