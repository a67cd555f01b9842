"""What can be written, by name; for the command line, which imports nothing heavy."""

EXPORT_FORMATS = ("onnx",)
EXPORTED_HEADS = ("sequence", "token", "span", "choice", "masked", "none")
"""The heads of models/encoder.py that a graph can have; none: the vectors of tokens, and of texts where the folder says
how they are pooled."""
LEAST_COSINE, MOST_LOSS = 0.99, 0.02
"""With float32, of int8 that is accepted; and how much of a task's score it may lose."""
