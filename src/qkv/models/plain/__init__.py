"""Encoders without attention (CNN, RNN, look-up) for tasks, on word vectors or on a language model."""
