"""Random numbers: the generator and the distributions that are drawn from it."""
