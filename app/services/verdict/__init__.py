"""Verdicts of reviewers: the log, its rules, and agreement."""
