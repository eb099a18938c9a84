"""Attribute swaps: variants of a prompt, their texts and their distributions."""
