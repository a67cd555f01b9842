"""Labelled files of any format as examples: detection, reading, repair, checks, splits."""

from qkv.data.labelled.reader import labelled as labelled
