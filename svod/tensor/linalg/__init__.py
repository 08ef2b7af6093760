"""Linear algebra: factorisations, linear equations, norms."""
