"""The graph: nodes, ops, rewriting, symbolic integers, text, verifiers and NumPy meaning."""

from typing import Any

from svod.ir.node import UOp, const, know_above, make

__all__ = ["UOp", "const", "make"]


class _Above:
    """What nodes take from modules that are built on them: arithmetic of sizes, complex numbers,
    their printed form."""

    @property
    def symbolic(self) -> Any:
        from svod.ir import symbolic

        return symbolic

    @property
    def pairs(self) -> Any:
        from svod.ir import pairs

        return pairs

    @property
    def text(self) -> Any:
        from svod.ir import text

        return text


know_above(_Above())
