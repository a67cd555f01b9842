"""What a text is: tokenizers and vocabularies, segmenters, sentences, languages, alignment of words."""
