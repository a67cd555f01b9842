"""Whole jobs: the Python API. The command line, the server and the page are faces of what is here."""
