"""The graph: nodes, ops, rewriting, symbolic integers, text, verifiers and NumPy meaning."""

from svod.ir.node import UOp, const, make

__all__ = ["UOp", "const", "make"]
