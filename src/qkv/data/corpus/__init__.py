"""A corpus: documents from text files, checked, encoded and written to shards; shards read back for training."""
