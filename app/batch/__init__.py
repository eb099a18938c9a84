"""Batches: many prompts audited with the same settings, their outcomes and impact ratios."""
