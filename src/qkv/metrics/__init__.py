"""Metrics that every job reports. Standard library and numpy only; independent of models, tasks and files.

Implemented here because training runs without scikit-learn and seqeval, and because each metric is a few lines that a
reader should see; where scikit-learn has the same metric, tests compare the two.
"""
