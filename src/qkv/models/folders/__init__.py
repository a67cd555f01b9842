"""What all families share about model folders: weights, locating a model by name, cards, pooling files."""
