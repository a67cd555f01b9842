"""From files to batches of token ids; independent of models."""
