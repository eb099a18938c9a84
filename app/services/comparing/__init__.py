"""Chains beside each other."""
