"""Symmetric tuning of decoding methods on a set of prompts with right answers."""
