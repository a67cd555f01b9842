"""qkv.jobs.translate."""
