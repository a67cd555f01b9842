"""Networks: one paper, one file. A config in, tensors out."""
