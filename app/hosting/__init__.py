"""Models in memory: which are loaded, how much each takes, and the texts under way in them."""
