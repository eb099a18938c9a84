"""Loading, branches over one cache, and scoring."""
