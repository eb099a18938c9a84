"""Calibrations: prompt sets, runs, and the thresholds that are read off them."""
