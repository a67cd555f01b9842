"""Files to batches: text and token ids, no models."""
