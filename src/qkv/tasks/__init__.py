"""One fine-tuning task, one file: features, head, loss, decoding, metric."""
