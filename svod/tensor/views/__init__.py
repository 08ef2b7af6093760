"""Tensors that share elements: which of them each shows, and what a write does to the others."""
