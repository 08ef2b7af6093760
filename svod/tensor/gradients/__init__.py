"""Gradients: reverse mode over graphs, and the state of tensors that it reads."""
