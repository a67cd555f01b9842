"""How good is it: figures that every job reports. Standard library and numpy; knows no model, task or file.

Written by hand, since training runs without scikit-learn and seqeval, and each metric is a few lines whose definition
a reader should see; where scikit-learn has the same metric, tests compare the two.
"""
