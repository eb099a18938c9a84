"""Calibration runs: requests, jobs, stored thresholds and what is read off them."""
