"""A fine-tuning run: settings, data, model, training, evaluation, report."""
