"""Files a person looks at: offline pictures and pages, made from plain numbers and never from a model."""
