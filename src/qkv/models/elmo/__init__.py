"""qkv.models.elmo."""
