"""Prompt sets: uploads, columns, checks and the sets that ship."""
