"""qkv.models.gpt."""
