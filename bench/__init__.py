"""Scripts that build the embedded model and measure the program."""
