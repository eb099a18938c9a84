"""Contexts from references and rollouts make a calibration."""
