"""Benchmarks: one file a suite, with its metric's definition and citation beside it."""
