"""The gate of a pipeline: claims about a model that must hold, each with a verdict and the whole with an exit code."""

from app.shared.wiring import Feature

FEATURE = Feature(__name__, {"check": "hold a model against the claims of a file, for a pipeline"})
"""Checks."""
