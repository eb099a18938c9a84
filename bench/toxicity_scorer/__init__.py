"""Training and measurement of the embedded toxicity scorer."""
