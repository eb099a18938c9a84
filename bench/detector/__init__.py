"""Training and measurement of the embedded span detector."""
