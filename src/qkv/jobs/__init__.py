"""qkv.jobs."""
