"""The library of past audits."""
