"""One loop for every model: it is handed a module, an objective and batches, and imports none of them."""
