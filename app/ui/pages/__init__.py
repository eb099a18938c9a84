"""One module per page; each builds its part of the Blocks and wires its handlers."""
