"""Asking a causal model whom a pronoun refers to."""

from __future__ import annotations

GENDERS = {
    "male": ("he", "him", "his", "himself"),
    "female": ("she", "her", "hers", "herself"),
    "neutral": ("they", "them", "their", "theirs", "themself", "themselves"),
}
"""Third-person pronouns, by gender."""


def resolution_prompt(sentence: str, pronoun: str) -> str:
    """The prompt of lm-evaluation-harness's Winogender, after Brown et al. 2020; a person's name is to follow."""
    return f"{sentence} ‘{pronoun.capitalize()}’ refers to the"
