"""Batch audits: many prompts with the same settings, their outcomes and impact ratios."""
