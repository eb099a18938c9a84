"""Speed of a decoding step, measured against other ways of decoding in the same run."""
