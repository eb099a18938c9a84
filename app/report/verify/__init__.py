"""Verification of reports and bundles: what can be computed again is, and compared."""
