"""Many continuations of one prompt in several worlds: drawn, merged into a tree, and compared."""
