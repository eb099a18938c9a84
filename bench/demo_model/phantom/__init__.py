"""Texts of the phantom: scenarios in which the strength of every association is chosen."""
