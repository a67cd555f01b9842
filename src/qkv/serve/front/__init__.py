"""The pages of `qkv serve` and their routes (front.py)."""
