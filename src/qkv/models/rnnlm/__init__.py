"""qkv.models.rnnlm."""
