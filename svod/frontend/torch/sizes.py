"""Sizes of a graph: torch's symbols become Variables, its expressions index arithmetic.

In: integers, SymInts and sympy expressions. Out: integers and nodes. A Variable needs bounds,
since memory has room for the largest size. torch often knows none, so the first bound is a power
of two above the size of the first call, and a plan is made again where a later size is larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import (
    CleanDiv,
    FloorDiv,
    Min,
    Mod,
    ModularIndexing,
    PythonMod,
)

from svod.base.errors import UnsupportedError, VariableError
from svod.ir.node import UOp
from svod.ir.symbolic import minimum
from svod.tensor.core.variable import Variable

Bounds = Mapping[str, tuple[int, int]]
LEAST_ROOM = 32  # the smallest upper bound: short sequences mostly grow


class Sizes:
    """The sizes of one graph, under bounds of its symbols."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._known: dict[Any, int | UOp] = {}

    def of(self, size: Any) -> int | UOp:
        """A size as Svod's shapes take it."""
        if type(size) is int:
            return size
        found = expression(size)
        if found not in self._known:
            self._known[found] = self._convert(sympy.expand(found))
        return self._known[found]

    def shape(self, shape: Any) -> tuple[Any, ...]:
        return tuple([self.of(size) for size in shape])

    def _convert(self, e: Any) -> Any:
        if e.is_Integer:
            return int(e)
        if e.is_Symbol:
            low, high = self.bounds[e.name]
            return Variable(e.name, low, high)
        parts = [self._convert(a) for a in e.args]
        if isinstance(e, sympy.Add):
            return _folded(parts, lambda a, b: a + b)
        if isinstance(e, sympy.Mul):
            return _folded(parts, lambda a, b: a * b)
        if isinstance(e, sympy.Pow) and e.exp.is_Integer and int(e.exp) > 0:
            return _folded([parts[0]] * int(e.exp), lambda a, b: a * b)
        if isinstance(e, (FloorDiv, CleanDiv)):
            return parts[0] // parts[1]
        if isinstance(e, (Mod, PythonMod)):
            return parts[0] % parts[1]
        if isinstance(e, ModularIndexing):
            return parts[0] // parts[1] % parts[2]
        if isinstance(e, (Min, sympy.Min)) and all(isinstance(p, UOp) for p in parts):
            return _folded(parts, minimum)
        raise UnsupportedError(f"the size {e} has no form in Svod")


def _folded(parts: list[Any], join: Any) -> Any:
    parts = sorted(parts, key=lambda p: isinstance(p, int))  # numbers come last
    found = parts[0]
    for part in parts[1:]:
        found = join(found, part)
    return found


def expression(size: Any) -> Any:
    """A size as a sympy expression."""
    if isinstance(size, torch.SymInt):
        return size.node.expr
    return sympy.sympify(size)


def symbols_of(size: Any) -> set[str]:
    """Names of the symbols a size depends on."""
    if type(size) is int:
        return set()
    return {s.name for s in expression(size).free_symbols}


def evaluated(size: Any, values: Mapping[str, int]) -> int:
    """A size under these values of its symbols."""
    if type(size) is int:
        return size
    e = expression(size)
    if e.is_Symbol:
        return values[e.name]
    return int(e.subs({symbol: values[symbol.name] for symbol in e.free_symbols}))


def bounds_for(
    value: int, low: Any, high: Any, before: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Bounds of a symbol that has this value now and may be between ``low`` and ``high``."""
    if before is not None and before[0] <= value <= before[1]:
        return before
    least = max(0, int(low)) if _is_finite(low) else 0
    most = 1 << max(value * 2 - 1, LEAST_ROOM - 1).bit_length()
    if _is_finite(high):
        most = min(most, int(high))
    return min(least, value), max(most, value)


def first_bounds(values: Any) -> Bounds:
    """Bounds of all symbols in sizes of a graph, from what they were when torch recorded it."""
    found: dict[str, tuple[int, int]] = {}
    for size in values:
        if type(size) is int:
            continue
        env = size.node.shape_env
        for symbol in expression(size).free_symbols:
            if symbol.name not in found:
                hint = env.backed_var_to_val.get(symbol, LEAST_ROOM)
                known = env.var_to_range.get(symbol)
                limits = (0, None) if known is None else (known.lower, known.upper)
                found[symbol.name] = bounds_for(int(hint), *limits)
    return found


def _is_finite(bound: Any) -> bool:
    """torch writes infinities of its own for sizes that nothing bounds."""
    if bound is None or not getattr(bound, "is_Integer", isinstance(bound, int)):
        return False
    return abs(int(bound)) < 1 << 40


class Readings:
    """Where the values of symbols are found in the arguments of a call."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, int | None, int, int]] = {}  # argument, axis, a, b
        self.ranges: dict[str, tuple[Any, Any]] = {}

    def note(self, argument: int, value: Any) -> None:
        """An argument is a size or a tensor with sizes: what it says about symbols."""
        if isinstance(value, torch.SymInt):
            self._note(argument, None, value)
        elif isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                self._note(argument, axis, size)

    def _note(self, argument: int, axis: int | None, size: Any) -> None:
        if type(size) is int:
            return
        e = expression(size)
        self._note_ranges(size, e)
        if e.is_Symbol:
            self.places.setdefault(e.name, (argument, axis, 1, 0))
            return
        free = list(e.free_symbols)
        if len(free) == 1 and free[0].name not in self.places:
            line = sympy.Poly(e, free[0]) if e.is_polynomial(free[0]) else None
            if line is not None and line.degree() == 1:
                a, b = line.all_coeffs()
                if a.is_Integer and b.is_Integer:
                    self.places[free[0].name] = (argument, axis, int(a), int(b))

    def _note_ranges(self, size: Any, e: Any) -> None:
        env = size.node.shape_env
        for symbol in e.free_symbols:
            found = env.var_to_range.get(symbol)
            if found is not None:
                self.ranges[symbol.name] = (found.lower, found.upper)

    def read(self, names: Any, args: Any) -> dict[str, int]:
        """The values of symbols in this call."""
        found: dict[str, int] = {}
        for name in names:
            if name not in self.places:
                raise VariableError(f"no argument of the graph says what the size {name} is")
            argument, axis, a, b = self.places[name]
            given = args[argument]
            value = given if axis is None else given.shape[axis]
            found[name] = int(value) if (a, b) == (1, 0) else (int(value) - b) // a
        return found
