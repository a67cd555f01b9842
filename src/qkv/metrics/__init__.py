"""How good is it: figures that every job reports. Standard library and numpy; knows no model, task or file."""
