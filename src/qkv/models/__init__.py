"""One family of models, one folder: network, objective, folder format, pretraining, report page."""
