"""Swaps: the same prompt with one attribute exchanged."""
