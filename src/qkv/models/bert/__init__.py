"""qkv.models.bert."""
