"""qkv.nn.cpu."""
