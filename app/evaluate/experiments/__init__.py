"""Named experiments: the tables and figures of the paper, made on a model of one's choice."""
