"""The interned node of every graph, from tensors to linear programs.

Equal structure is the same object: ``a is b`` is structural equality. Nodes are made only
through ``make`` (or the smart constructors above it), never changed afterwards, and hold no
reference to their users. Tables are strong; ``svod.ir.sweep`` drops nodes nobody else holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from math import prod
from operator import attrgetter
from typing import Any, Protocol

from svod.base.errors import ComplexOperand, GraphError, VariableError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.facts import fill_ranges, fill_shapes, index_bounds, integer_bounds

_EMPTY: frozenset[Any] = frozenset()


class Above(Protocol):
    """The modules that are built on this one and whose functions nodes call nevertheless."""

    @property
    def symbolic(self) -> Any: ...

    @property
    def pairs(self) -> Any: ...

    @property
    def text(self) -> Any: ...


_known_above: list[Above] = []  # filled by the package, which knows all its modules


def know_above(modules: Above) -> None:
    """Name the modules above, from which sizes, complex numbers and printing come."""
    _known_above[:] = [modules]


def modules_above() -> Above:
    """The modules above, each loaded at first use."""
    return _known_above[0]


class UOp:
    """One operation: ``op``, ``dtype``, ``src`` and ``arg``.

    ``vmin``/``vmax`` bound integer nodes that take part in index arithmetic, else they are the
    limits of the dtype (None for floats). ``sn`` is the creation number: sources have smaller
    ones, so sorting by it is a topological order.
    """

    __slots__ = (
        "_hash",
        "_ranges",
        "_shape",
        "arg",
        "dtype",
        "nf",
        "op",
        "origin",
        "sn",
        "src",
        "vmax",
        "vmin",
    )

    op: int
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any  # a typed record of svod.ir.args, or a plain int / str / tuple as the op list says
    vmin: Any  # int, or None for values that are not integers
    vmax: Any
    sn: int
    nf: int  # bit set of rewriters for which this node is in normal form
    origin: Any  # (file, line) of the user's code, or the number of the node that stands for it
    _shape: Any  # filled when first asked for, as are the next two
    _ranges: Any
    _hash: Any

    def __repr__(self) -> str:
        return str(modules_above().text.brief(self))

    def __reduce__(self) -> Any:
        text = modules_above().text
        return (text.parse, (text.dump(self),))

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: Any) -> UOp:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the tensor graph; () for kernel values."""
        found = self._shape
        if found is None:
            fill_shapes(self)
            found = self._shape
        return found  # type: ignore[no-any-return]

    @property
    def ranges(self) -> frozenset[UOp]:
        """The RANGEs this value depends on and that nothing below it closes."""
        found = self._ranges
        if found is None:
            fill_ranges(self)
            found = self._ranges
        return found  # type: ignore[no-any-return]

    @property
    def content_hash(self) -> str:
        """Hash of the structure, the same in every process."""
        if self._hash is None:
            self._hash = structural_hash(self)
        return self._hash  # type: ignore[no-any-return]

    def with_sources(self, src: tuple[UOp, ...]) -> UOp:
        """The same op over other sources, for the same line of user code."""
        if src == self.src:
            return self
        found = make(self.op, self.dtype, src, self.arg)
        if found.origin is None:
            found.origin = self.origin
        return found

    # -- sizes: arithmetic on run-time integers, as shapes need it --------------------------------

    def bind(self, value: int) -> UOp:
        """This variable with a value for the plans made from it."""
        if self.op != O.DEFINE_VAR:
            raise GraphError(f"only a Variable can be bound, not {self!r}")
        _, lo, hi = self.arg
        if not lo <= value <= hi:
            raise VariableError(f"variable {self.arg.name}={value} is outside bounds [{lo}, {hi}]")
        return make(O.BIND, dt.index, (self, const(value, dt.index)))

    def __add__(self, other: UOp | int) -> UOp | int:
        if not isinstance(other, (UOp, int)):
            return NotImplemented  # a tensor knows what to do with a size
        return _size(_symbolic().add(self, _node(other)))

    __radd__ = __add__

    def __mul__(self, other: UOp | int) -> UOp | int:
        if not isinstance(other, (UOp, int)):
            return NotImplemented  # a tensor knows what to do with a size
        return _size(_symbolic().mul(self, _node(other)))

    __rmul__ = __mul__

    def __sub__(self, other: UOp | int) -> UOp | int:
        if not isinstance(other, (UOp, int)):
            return NotImplemented  # a tensor knows what to do with a size
        return _size(_symbolic().sub(self, _node(other)))

    def __rsub__(self, other: int) -> UOp | int:
        if not isinstance(other, (UOp, int)):
            return NotImplemented
        return _size(_symbolic().sub(_node(other), self))

    def __neg__(self) -> UOp | int:
        return _size(_symbolic().mul(self, -1))

    def __floordiv__(self, other: UOp | int) -> UOp | int:
        if not isinstance(other, (UOp, int)):
            return NotImplemented  # a tensor knows what to do with a size
        return _size(_symbolic().divide(self, _node(other)))

    def __rfloordiv__(self, other: int) -> UOp | int:
        return _size(_symbolic().divide(_node(other), self))

    def __mod__(self, other: UOp | int) -> UOp | int:
        if not isinstance(other, (UOp, int)):
            return NotImplemented  # a tensor knows what to do with a size
        return _size(_symbolic().modulo(self, _node(other)))

    def __rmod__(self, other: int) -> int:
        return other % self.__index__()

    def __lt__(self, other: UOp | int) -> bool:
        return _decide(self, "<", other)

    def __le__(self, other: UOp | int) -> bool:
        return not _decide(self, ">", other)

    def __gt__(self, other: UOp | int) -> bool:
        return _decide(self, ">", other)

    def __ge__(self, other: UOp | int) -> bool:
        return not _decide(self, "<", other)

    def __index__(self) -> int:
        """The number that a size is with the values its variables are bound to."""
        value = _symbolic().value_of(self) if self.dtype.kind == "x" else None
        if value is None:
            raise VariableError(
                f"{_text(self)} is no number: bind its variables where a shape is made, n.bind(7)"
            )
        return int(value)

    def toposort(self) -> list[UOp]:
        """All nodes reachable from here, sources first."""
        return toposort((self,))

    def replace(self, src: tuple[UOp, ...]) -> UOp:
        """The same operation on other sources."""
        return self if src == self.src else make(self.op, self.dtype, src, self.arg)


def _symbolic() -> Any:
    return modules_above().symbolic


def _node(value: UOp | int) -> UOp:
    return value if isinstance(value, UOp) else const(value, dt.index)


def _text(size: UOp | int) -> str:
    return str(_symbolic().size_text(size))


def _size(node: UOp) -> UOp | int:
    return node.arg if node.op == O.CONST else node


def _decide(a: UOp, relation: str, b: UOp | int) -> bool:
    """Whether a relation between sizes holds: for every value of the variables in them, or where
    that differs, for the values they are bound to."""
    if a.dtype.kind != "x" or (isinstance(b, UOp) and b.dtype.kind != "x"):
        raise TypeError("nodes have no order; only sizes can be compared")
    difference = _symbolic().sub(a, _node(b))
    lo, hi = difference.vmin, difference.vmax
    if relation == "<" and (hi < 0 or lo >= 0):
        return bool(hi < 0)
    if relation == ">" and (lo > 0 or hi <= 0):
        return bool(lo > 0)
    if relation == ">" and isinstance(b, UOp) and _symbolic().is_minimum_with(a, b):
        return False
    value = _symbolic().value_of(difference)
    if value is not None:
        return bool(value < 0 if relation == "<" else value > 0)
    raise VariableError(
        f"{_text(a)} {relation} {_text(b)} depends on the value of a variable: the difference is "
        f"between {lo} and {hi}"
    )


def largest(size: UOp | int) -> int:
    """The largest value of a size."""
    return size.vmax if isinstance(size, UOp) else size


def is_symbolic(shape: tuple[Any, ...]) -> bool:
    """Whether a shape holds a run-time size."""
    for size in shape:  # noqa: SIM110 - a third of the time of any() over a generator
        if type(size) is UOp:
            return True
    return False


def stored_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of the memory a tensor is kept in: run-time sizes at their largest."""
    return tuple([largest(n) for n in shape]) if is_symbolic(shape) else shape


def elements(shape: tuple[Any, ...]) -> int:
    """How many elements a tensor of this shape has at most."""
    count = prod(shape)
    if type(count) is int:
        return count
    return prod([largest(n) for n in shape])


_tables: list[dict[Any, UOp]] = [{} for _ in range(128)]
_next_sn = 0


def make(op: int, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
    """The node with these parts: an existing one, or a new one."""
    table = _tables[op]
    key = (src, dtype, arg)
    found = table.get(key)
    if found is not None:
        return found
    return _insert(table, key, op, dtype, src, arg)


def _insert(
    table: dict[Any, UOp], key: Any, op: int, dtype: DType, src: tuple[UOp, ...], arg: Any
) -> UOp:
    global _next_sn
    node = UOp.__new__(UOp)
    node.op = op
    node.dtype = dtype
    node.src = src
    node.arg = arg
    node.nf = 0
    node.origin = None
    node._shape = None
    node._ranges = None
    node._hash = None
    kind = dtype.kind
    if kind == "x":
        node.vmin, node.vmax = index_bounds(op, src, arg)
    elif kind == "f" or kind == "v":
        node.vmin = node.vmax = None
    elif kind == "c":
        _only_a_view(op, dtype)
        node.vmin = node.vmax = None
    else:
        node.vmin, node.vmax = integer_bounds(op, dtype, src, arg)
    _next_sn = node.sn = _next_sn + 1
    return table.setdefault(key, node)


def _only_a_view(op: int, dtype: DType) -> None:
    """Complex numbers are floats under another name; nothing else in a graph has their dtype."""
    if op != O.COMPLEX:
        raise ComplexOperand(f"{O.NAMES[op]} takes real numbers, not {dtype.name}")


def const(value: Any, dtype: DType) -> UOp:
    """A constant. Floats are keyed by their bits, so -0.0, 0.0 and every NaN payload differ."""
    kind = dtype.kind
    if kind == "f":
        value = float(value)
        key = (_EMPTY, dtype, struct.pack("<d", value))
    elif kind == "b":
        value = bool(value)
        key = (_EMPTY, dtype, value)
    elif kind == "c":
        return modules_above().pairs.constant(value, dtype)  # type: ignore[no-any-return]
    else:
        value = int(value)
        key = (_EMPTY, dtype, value)
    table = _tables[O.CONST]
    found = table.get(key)
    if found is not None:
        return found
    return _insert(table, key, O.CONST, dtype, (), value)


def variable(name: str, lo: int, hi: int) -> UOp:
    """A run-time integer between lo and hi, both included."""
    return make(O.DEFINE_VAR, dt.index, (), VarArg(name, lo, hi))


# -- walks -------------------------------------------------------------------------------------


def toposort(roots: Iterable[UOp]) -> list[UOp]:
    """All nodes reachable from the roots, sources before users."""
    seen = set(roots)
    found = list(seen)
    for node in found:  # grows while it is read
        for s in node.src:
            if s not in seen:
                seen.add(s)
                found.append(s)
    found.sort(key=serial)
    return found


serial = attrgetter("sn")  # the order of creation, in which sources come before users


def substitute(roots: tuple[UOp, ...], mapping: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """The roots with nodes replaced; a replacement is not searched again."""
    done = dict(mapping)
    for node in toposort(roots):
        if node not in done:
            src = node.src
            if src:
                done[node] = node.with_sources(tuple([done[s] for s in src]))
            else:
                done[node] = node
    return tuple([done[r] for r in roots])


# -- stable hash -------------------------------------------------------------------------------


def structural_hash(root: UOp) -> str:
    """One blake2b over the linearised graph; depends on structure only."""
    numbers: dict[UOp, int] = {}
    hasher = blake2b(digest_size=16)
    lines = []
    for node in depth_first(root):
        numbers[node] = len(numbers)
        arg = node.arg
        if type(arg) is float:
            text = struct.pack("<d", arg).hex()
        else:
            text = _arg_text(arg)
        src = ",".join([str(numbers[s]) for s in node.src])
        lines.append(f"{node.op} {node.dtype!r} {src} {text}")
    hasher.update("\n".join(lines).encode())
    return hasher.hexdigest()


def _arg_text(arg: Any) -> str:
    """An argument as text; sizes in it by their own structure."""
    if isinstance(arg, UOp):
        return f"({arg.content_hash})"
    if type(arg) is tuple:
        return "(" + ",".join([_arg_text(a) for a in arg]) + ")"
    return repr(arg)


def depth_first(root: UOp) -> Iterator[UOp]:
    """Sources first, left to right: an order that depends on structure alone."""
    seen: set[UOp] = set()
    stack: list[tuple[UOp, int]] = [(root, 0)]
    while stack:
        node, state = stack.pop()
        if state:
            yield node
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, 1))
        for s in reversed(node.src):
            if s not in seen:
                stack.append((s, 0))
