"""Comparisons: chains beside each other, and several policies over a prompt set."""
