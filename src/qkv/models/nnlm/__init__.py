"""qkv.models.nnlm."""
