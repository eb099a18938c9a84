"""Models: loading, branches as rows of one batch, keys and values, shared forwards."""
