"""Fitting what methods need: symmetric tuning, and directions for steering."""
