"""Offline pictures and pages for people, made from plain numbers and never from a model."""
