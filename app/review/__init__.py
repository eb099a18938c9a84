"""Verdicts of reviewers: the log, second opinions, and agreement."""
