"""Runs and their folders: fine-tuning, learning curves, training of translators."""
