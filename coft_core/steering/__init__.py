"""Directions in a model's attention heads, and hooks that move activations along them."""
