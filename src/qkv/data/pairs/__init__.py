"""Bitext: texts with their translations, from files to batches."""
