"""Symmetric tuning: methods swept alike, each judged at its best point."""
