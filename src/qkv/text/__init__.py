"""Text processing: tokenizers and vocabularies, segmenters, sentences, languages, word alignment."""
