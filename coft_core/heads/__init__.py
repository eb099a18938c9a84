"""Reading a step of which only the heads of the distributions were kept, with rigorous bounds on the rest."""
