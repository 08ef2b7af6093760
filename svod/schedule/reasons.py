"""Why values are stored or computed where they are used: what the fusion decision says of itself.

A `Reason` is noted where a decision was not a matter of course; `CallFacts` is what is known of
one kernel call beside its body. Both are for people to look at: nothing is computed from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from svod.ir.node import UOp

# Rules that a decision may name, in words.
RULES = {
    "effect": "a result, or memory that is written",
    "form": "part of a formula that is one kernel, or an operand that its tile reads as a matrix",
    "source": "stored for what is made of it: a wider type, or reads at places that data decide",
    "windows": "many windows look into it, and it costs more than a load",
    "product": "a product whose tile computes each element once, which its users would not",
    "repeated": "a reduction that would be computed more often than it has results",
    "nested": "a reduction inside another one, too long to be computed again for each step",
    "second": "the kernel that uses it holds a product already",
    "uses": "used at more places than a kernel repeats",
    "finished": "it finishes a product that is stored anyway",
    "costs": "the cheaper one of computing it at each use and of storing it once",
}


class Reason(NamedTuple):
    """One decision; costs are in the units of the cost table, None where none were compared."""

    rule: str  # of RULES
    is_stored: bool
    uses: int = 0
    evaluations: int = 0  # over all uses
    elements: int = 0
    inline: float | None = None  # cost of computing it at each use
    stored: float | None = None  # cost of computing it once, writing it and reading it


class CallFacts(NamedTuple):
    """What is known of a call beside its body."""

    reason: Reason | None  # why its result is stored
    kept: tuple[tuple[UOp, Reason], ...]  # nodes of the body that could have been stored
    origins: tuple[tuple[UOp, Any], ...]  # nodes of the body that come from elsewhere than the call
