"""qkv.data.labelled."""
