"""Training of a translation model: settings, pairs, training, evaluation, report."""
