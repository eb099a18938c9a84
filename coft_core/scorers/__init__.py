"""Scorers of toxicity, chosen by name."""
