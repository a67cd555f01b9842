"""One training loop for every model: it takes a module, an objective and batches, and imports none of them."""
