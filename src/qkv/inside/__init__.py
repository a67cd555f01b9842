"""What happens inside a model, as numbers: attention and its steps, states, positions, meanings, alignments.

The page (explore/) shows them; a program may ask the same functions.
"""
