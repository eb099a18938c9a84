"""Controls: what comparable words do in a prompt, and how an effect is compared with what they do."""

NEUTRAL = 39
"""Comparable words that are put in a marked word's place: p can fall to 1 / 40."""
OTHERS = 19
"""Other words of the prompt that are masked."""
