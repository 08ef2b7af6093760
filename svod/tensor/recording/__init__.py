"""From tensors to plans: realize, prepare, jit, scan."""
