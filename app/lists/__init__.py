"""Word lists of reviewers."""
