"""qkv.nn.gpu."""
