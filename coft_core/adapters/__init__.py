"""Ways in which other programs run the methods: each speaks the words of its program, and has no rule of its own."""
