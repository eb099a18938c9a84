"""What is done to a prompt before a model reads it: spans, lexicons, masking and rewording."""
