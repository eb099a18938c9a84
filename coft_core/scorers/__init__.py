"""Scorers of toxicity, chosen by name."""

from coft_core.scorers.base import ToxicityScorer, load_scorer

__all__ = ["ToxicityScorer", "load_scorer"]
