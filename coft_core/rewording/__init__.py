"""Rewording English prompts: pronouns, articles and verbs that agree, other groups' words, and neutral ones."""
