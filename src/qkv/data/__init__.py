"""Files to batches: knows text and token ids, not models."""
