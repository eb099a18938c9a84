"""Key-value memory of decoding: preallocated rows of their own lengths, and where a prefix is held once."""
