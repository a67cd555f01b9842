"""The command line, one file a verb: faces of `run/` with no logic of their own. Heavy imports stay inside a verb."""
