"""What a Python user calls: load, Model, Classifier, Generator, Translator; and the same over files."""
