"""Texts written token by token: the best one, the few best, or one by chance."""
