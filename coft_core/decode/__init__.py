"""Decoding: the loop, a step's decision, what is kept of it, and how it is read again."""
