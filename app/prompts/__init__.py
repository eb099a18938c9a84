"""Prompts as pages and files give them: sets, rows, the form, and its words."""
