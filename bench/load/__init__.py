"""What a server bears: many sessions in its store, many loads of models, and many reviewers at once."""
