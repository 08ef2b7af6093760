"""The interned node of every graph, from tensors to linear programs.

Equal structure is the same object: ``a is b`` is structural equality. Nodes are made only
through ``make`` (or the smart constructors above it), never changed afterwards, and hold no
reference to their users. Tables are strong; ``sweep`` drops nodes nobody else holds.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from math import prod
from typing import Any

from svod.base.errors import ComplexOperand, GraphError, VariableError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O

_SHAPELESS = ()  # type: tuple[int, ...]
_EMPTY: frozenset[Any] = frozenset()


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
        from svod.ir.text import brief

        return brief(self)

    def __reduce__(self) -> Any:
        from svod.ir.text import dump, parse

        return (parse, (dump(self),))

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: Any) -> UOp:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the tensor graph; () for kernel values."""
        found = self._shape
        if found is None:
            _fill_shapes(self)
            found = self._shape
        return found  # type: ignore[no-any-return]

    @property
    def ranges(self) -> frozenset[UOp]:
        """The RANGEs this value depends on and that nothing below it closes."""
        found = self._ranges
        if found is None:
            _fill_ranges(self)
            found = self._ranges
        return found  # type: ignore[no-any-return]

    @property
    def content_hash(self) -> str:
        """Hash of the structure, the same in every process."""
        if self._hash is None:
            self._hash = structural_hash(self)
        return self._hash  # type: ignore[no-any-return]

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
        return _size(_symbolic().add(self, _node(other)))

    __radd__ = __add__

    def __mul__(self, other: UOp | int) -> UOp | int:
        return _size(_symbolic().mul(self, _node(other)))

    __rmul__ = __mul__

    def __sub__(self, other: UOp | int) -> UOp | int:
        return _size(_symbolic().sub(self, _node(other)))

    def __rsub__(self, other: int) -> UOp | int:
        return _size(_symbolic().sub(_node(other), self))

    def __neg__(self) -> UOp | int:
        return _size(_symbolic().mul(self, -1))

    def __floordiv__(self, other: UOp | int) -> UOp | int:
        return _size(_symbolic().divide(self, _node(other)))

    def __rfloordiv__(self, other: int) -> UOp | int:
        return _size(_symbolic().divide(_node(other), self))

    def __mod__(self, other: UOp | int) -> UOp | int:
        return _size(_symbolic().modulo(self, _node(other)))

    def __lt__(self, other: UOp | int) -> bool:
        return _decide(self, "<", other)

    def __le__(self, other: UOp | int) -> bool:
        return not _decide(self, ">", other)

    def __gt__(self, other: UOp | int) -> bool:
        return _decide(self, ">", other)

    def __ge__(self, other: UOp | int) -> bool:
        return not _decide(self, "<", other)

    def toposort(self) -> list[UOp]:
        """All nodes reachable from here, sources first."""
        return toposort((self,))

    def replace(self, src: tuple[UOp, ...]) -> UOp:
        """The same operation on other sources."""
        return self if src == self.src else make(self.op, self.dtype, src, self.arg)


def _symbolic() -> Any:
    from svod.ir import symbolic

    return symbolic


def _node(value: UOp | int) -> UOp:
    return value if isinstance(value, UOp) else const(value, dt.index)


def _size(node: UOp) -> UOp | int:
    return node.arg if node.op == O.CONST else node


def _decide(a: UOp, relation: str, b: UOp | int) -> bool:
    """Whether a relation between sizes holds for every value of the variables in them."""
    if a.dtype.kind != "x" or (isinstance(b, UOp) and b.dtype.kind != "x"):
        raise TypeError("nodes have no order; only sizes can be compared")
    difference = _symbolic().sub(a, _node(b))
    lo, hi = difference.vmin, difference.vmax
    if relation == "<" and (hi < 0 or lo >= 0):
        return bool(hi < 0)
    if relation == ">" and (lo > 0 or hi <= 0):
        return bool(lo > 0)
    raise VariableError(
        f"{a!r} {relation} {b!r} depends on the value of a variable: the difference is between "
        f"{lo} and {hi}"
    )


def largest(size: UOp | int) -> int:
    """The largest value of a size."""
    return size.vmax if isinstance(size, UOp) else size


def is_symbolic(shape: tuple[Any, ...]) -> bool:
    """Whether a shape holds a run-time size."""
    return UOp in map(type, shape)


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
_sweep_lock = threading.Lock()
SWEEP_NODES = 8192  # made since the last sweep: some 5 ms of sweeping
SWEEP_BYTES = 128 << 20  # of buffers that graphs used since the last sweep
SWEEP_ALL_NODES = 100_000
_sweep_all_at = SWEEP_ALL_NODES
_swept_to = 0  # the newest node the last sweep looked at
_swept_sizes = [0] * 128  # entries per table that the last sweep left
_counted_to = 0  # the newest BUFFER whose bytes were counted
_waiting_bytes = 0  # of BUFFERs counted since all nodes were swept
_swept_bytes = 0  # of these, what an earlier sweep of young nodes has seen


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
        node.vmin, node.vmax = _index_bounds(op, src, arg)
    elif kind == "f" or kind == "v":
        node.vmin = node.vmax = None
    elif kind == "c":
        _only_a_view(op, dtype)
        node.vmin = node.vmax = None
    else:
        node.vmin, node.vmax = _integer_bounds(op, dtype, src, arg)
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
        from svod.ir import pairs

        return pairs.constant(value, dtype)
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
    from svod.ir.args import VarArg

    return make(O.DEFINE_VAR, dt.index, (), VarArg(name, lo, hi))


INDEX_LIMIT = (1 << 62) - 1


def _index_bounds(op: int, src: tuple[UOp, ...], arg: Any) -> tuple[int, int]:
    if op == O.CONST:
        return arg, arg
    if op == O.RANGE or op == O.SPECIAL:
        return 0, max(src[0].vmax - 1, 0)
    if op == O.DEFINE_VAR:
        return arg.lo, arg.hi
    if op == O.LANES:
        return 0, arg - 1
    if len(src) == 2:
        a, b = src
        a0, a1, b0, b1 = a.vmin, a.vmax, b.vmin, b.vmax
        if op == O.ADD:
            return a0 + b0, a1 + b1
        if op == O.MUL:
            corners = (a0 * b0, a0 * b1, a1 * b0, a1 * b1)
            return min(corners), max(corners)
        if op == O.IDIV and b0 > 0:
            corners = (a0 // b0, a0 // b1, a1 // b0, a1 // b1)
            return min(corners), max(corners)
        if op == O.MOD and b0 > 0:
            if a0 >= 0 and a1 < b0:
                return a0, a1
            return 0, b1 - 1
        if op == O.MAX:
            return max(a0, b0), max(a1, b1)
        if op == O.MIN:
            return min(a0, b0), min(a1, b1)
        if op == O.SUB:
            return a0 - b1, a1 - b0
    if op == O.WHERE:
        return min(src[1].vmin, src[2].vmin), max(src[1].vmax, src[2].vmax)
    if op == O.BIND or op == O.BROADCAST or op == O.AFTER or op == O.GEP:
        return src[0].vmin, src[0].vmax
    if op == O.CAST and src[0].vmin is not None:
        return max(src[0].vmin, -INDEX_LIMIT), min(src[0].vmax, INDEX_LIMIT)
    return -INDEX_LIMIT, INDEX_LIMIT


def _integer_bounds(op: int, dtype: DType, src: tuple[UOp, ...], arg: Any) -> tuple[int, int]:
    if op == O.CONST:
        return int(arg), int(arg)
    lo, hi = dt.integer_limits(dtype)
    if op in O.COMPARE and src[0].dtype.kind == "c":
        raise ComplexOperand(f"{O.NAMES[op]} takes real numbers, not {src[0].dtype.name}")
    if op == O.CAST and src[0].vmin is not None and lo <= src[0].vmin and src[0].vmax <= hi:
        return src[0].vmin, src[0].vmax
    if op == O.IOTA:
        return 0, max(largest(arg) - 1, 0)
    if op == O.DEFINE_VAR:
        return arg.lo, arg.hi
    if op in O.MOVEMENT and op != O.PAD and src[0].vmin is not None:
        return src[0].vmin, src[0].vmax
    return lo, hi


# -- shapes ------------------------------------------------------------------------------------


def _fill_shapes(root: UOp) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node._shape is not None:
            stack.pop()
            continue
        waiting = [s for s in node.src if s._shape is None]
        if waiting:
            stack.extend(waiting)
            continue
        node._shape = _shape_of(node)
        stack.pop()


def _shape_of(node: UOp) -> tuple[int, ...]:
    op, src, arg = node.op, node.src, node.arg
    if op in O.ALU:
        for s in src:
            if s._shape:
                return s._shape  # type: ignore[no-any-return]
        return _SHAPELESS
    if op in (
        O.CAST,
        O.BITCAST,
        O.CONTIGUOUS,
        O.COPY,
        O.ASSIGN,
        O.FLIP,
        O.AFTER,
        O.SCATTER,
        O.BIND,
    ):
        return src[0]._shape  # type: ignore[no-any-return]
    if op == O.RESHAPE or op == O.EXPAND:
        return arg  # type: ignore[no-any-return]
    if op == O.PERMUTE:
        inner = src[0]._shape
        return tuple([inner[a] for a in arg])
    if op == O.PAD:
        return tuple([n + a + b for n, (a, b) in zip(src[0]._shape, arg, strict=True)])
    if op == O.SHRINK:
        return tuple([b - a for a, b in arg])
    if op == O.REDUCE_AXIS:
        return tuple([1 if i in arg.axes else n for i, n in enumerate(src[0]._shape)])
    if op == O.BUFFER or op == O.BUFFER_VIEW:
        return (arg.size,)
    if op == O.PARAM or op == O.CUSTOM_FUNCTION:
        return arg.shape  # type: ignore[no-any-return]
    if op == O.IOTA:
        return (arg,)
    if op == O.COMPLEX:
        return src[0]._shape[:-1]  # type: ignore[no-any-return]
    if op == O.CAT:
        first = src[0]._shape
        total = sum([s._shape[arg] for s in src])
        return (*first[:arg], total, *first[arg + 1 :])
    if op == O.GATHER:
        return src[1]._shape + src[0]._shape[len(src) - 1 :]  # type: ignore[no-any-return]
    if op == O.SCAN:
        own = src[1]._shape
        return own if arg.is_last else (arg.length, *own)
    if op == O.MSELECT or op == O.MSTACK:
        return src[0]._shape  # type: ignore[no-any-return]
    return _SHAPELESS


# -- open ranges -------------------------------------------------------------------------------


def _fill_ranges(root: UOp) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node._ranges is not None:
            stack.pop()
            continue
        waiting = [s for s in node.src if s._ranges is None]
        if waiting:
            stack.extend(waiting)
            continue
        node._ranges = _ranges_of(node)
        stack.pop()


def _ranges_of(node: UOp) -> frozenset[UOp]:
    op, src = node.op, node.src
    if op == O.RANGE:
        own: frozenset[UOp] = frozenset((node,))
        return own.union(src[0]._ranges)
    if not src:
        return _EMPTY
    if op == O.REDUCE or op == O.END:
        inner: frozenset[UOp] = src[0]._ranges
        for s in src[1:]:
            inner = inner | s._ranges
        closed = [s for s in src if s.op == O.RANGE]
        return inner.difference(closed)
    first: frozenset[UOp] = src[0]._ranges
    if len(src) == 1:
        return first
    for s in src[1:]:
        more = s._ranges
        if more is not first and not more <= first:
            first = first | more
    return first


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
    found.sort(key=_serial)
    return found


def _serial(node: UOp) -> int:
    return node.sn


def substitute(roots: tuple[UOp, ...], mapping: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """The roots with nodes replaced; a replacement is not searched again."""
    done = dict(mapping)
    for node in toposort(roots):
        if node not in done:
            src = node.src
            if src:
                new = tuple([done[s] for s in src])
                done[node] = node if new == src else make(node.op, node.dtype, new, node.arg)
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


# -- reclaiming --------------------------------------------------------------------------------


def live_nodes() -> int:
    """How many nodes the tables hold."""
    return sum([len(t) for t in _tables])


def count_of(op: int) -> int:
    """How many nodes of an op there are, those included that nothing refers to any more."""
    return len(_tables[op])


def note_buffers(buffers: Iterable[UOp]) -> None:
    """Count BUFFERs a graph used, each once: their memory is free only when their nodes go."""
    global _waiting_bytes, _counted_to
    newest = _counted_to
    for node in buffers:
        if node.sn > _counted_to:
            _waiting_bytes += node.arg.size * node.dtype.itemsize
            newest = max(newest, node.sn)
    _counted_to = newest


def maybe_sweep() -> None:
    """Sweep when enough has been made since the last time; called before new work begins.

    Most nodes die young, so usually only those made since the last sweep are looked at; all of
    them when their number has doubled or much memory was used since that happened.
    """
    young_bytes = _waiting_bytes - _swept_bytes
    if _next_sn - _swept_to < SWEEP_NODES and young_bytes < SWEEP_BYTES:
        return
    with _sweep_lock:
        _sweep_entries(young=True)
        if live_nodes() > _sweep_all_at or _waiting_bytes > 4 * SWEEP_BYTES:
            _sweep_entries()


def sweep() -> int:
    """Drop every node that only the tables hold; returns how many were dropped.

    Users always come after sources, so one pass from the newest to the oldest frees whole
    dead chains.
    """
    with _sweep_lock:
        return _sweep_entries()


def _sweep_entries(young: bool = False) -> int:
    global _swept_to, _swept_bytes, _waiting_bytes, _sweep_all_at
    getrefcount = sys.getrefcount
    reached = _next_sn
    # Keys in creation order, copied first: other threads may add nodes meanwhile. What is new in
    # a table is at its end.
    sizes = [len(table) for table in _tables]
    if young:
        pending = [
            list(islice(reversed(table), len(table) - old))[::-1]
            for table, old in zip(_tables, _swept_sizes, strict=True)
        ]
    else:
        pending = [list(table) for table in _tables]
    order = []
    for number, keys in enumerate(pending):
        table = _tables[number]
        order.extend([(table[key].sn, number) for key in keys])
    order.sort(reverse=True)
    unheld = _unheld_count()
    count = 0
    for _, number in order:
        table = _tables[number]
        key = pending[number].pop()
        node = table.get(key)
        if node is None:
            continue
        # a RANGE is a member of its own set of open ranges
        own = 1 if node.op == O.RANGE and node._ranges is not None else 0
        if getrefcount(node) <= unheld + own:
            del table[key]
            if getrefcount(node) > unheld + own - 1:  # another thread found it just now
                table.setdefault(key, node)
            else:
                node._ranges = None
                sizes[number] -= 1
                count += 1
        del node, key
    _swept_sizes[:] = sizes
    _swept_to, _swept_bytes = reached, _waiting_bytes
    if not young:
        _waiting_bytes = _swept_bytes = 0
        _sweep_all_at = max(SWEEP_ALL_NODES, 2 * live_nodes())
    return count


def _unheld_count() -> int:
    """What getrefcount says of a local name for something only a table holds.

    Interpreters differ: some lend a local to a call without counting it.
    """
    table = {0: object()}
    node = table.get(0)
    return sys.getrefcount(node)
