"""Verification of reports and evidence bundles: everything that can be computed again is, and compared."""
