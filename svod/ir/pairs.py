"""What complex numbers mean to the constructors: pairs of floats.

A node of complex dtype is a COMPLEX over floats of shape (.., 2). Movement, joining, choice, sums,
indexed access and storage act on the floats as they are or part by part; products and comparison
for equality are spelled out. Everything else ends in a ComplexOperand.

Values that were computed are two parts side by side, a CAT along the last axis; these are taken
apart again for free, so a chain of operations is one kernel over the parts. Values in memory stay
one node, so views of them stay views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svod.base.errors import ComplexOperand, DTypeError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const


def parts(z: UOp) -> tuple[UOp, UOp]:
    """The real and the imaginary part."""
    pairs, shape = z.src[0], z.shape
    if _is_joined(pairs):
        re, im = pairs.src
        return B.reshape(re, shape), B.reshape(im, shape)
    rest = tuple([(0, n) for n in shape])
    re = B.shrink(pairs, (*rest, (0, 1)))
    im = B.shrink(pairs, (*rest, (1, 2)))
    return B.reshape(re, shape), B.reshape(im, shape)


def joined(re: UOp, im: UOp) -> UOp:
    """Complex numbers of two parts of one shape and dtype."""
    if re.dtype is not im.dtype or re.dtype not in dt.COMPLEX_OF:
        raise DTypeError(
            f"complex numbers need two parts of float32 or float64, got {re.dtype.name} "
            f"and {im.dtype.name}"
        )
    shape = B.broadcast_shapes(re.shape, im.shape)
    sides = [B.reshape(B.broadcast_to(x, shape), (*shape, 1)) for x in (re, im)]
    found = _taken_apart(*sides)
    return B.complex_view(B.cat(sides, len(shape)) if found is None else found)


def constant(value: Any, dtype: DType) -> UOp:
    """A number as a complex constant."""
    kind = dt.FLOATS_OF[dtype]
    number = complex(value)
    return joined(const(number.real, kind), const(number.imag, kind))


def _is_joined(pairs: UOp) -> bool:
    return pairs.op == O.CAT and len(pairs.src) == 2 and pairs.arg == len(pairs.shape) - 1


def _is_zero(part: UOp) -> bool:
    """Whether a part is 0 everywhere: a real operand among complex ones."""
    while part.op in O.MOVEMENT:
        part = part.src[0]
    return part.op == O.CONST and part.arg == 0


def _taken_apart(re: UOp, im: UOp) -> UOp | None:
    """The floats that two parts were cut from."""
    if re.op != O.SHRINK or im.op != O.SHRINK or re.src != im.src:
        return None
    pairs = re.src[0]
    rest = tuple([(0, n) for n in pairs.shape[:-1]])
    is_whole = pairs.shape[-1] == 2 and re.arg == (*rest, (0, 1)) and im.arg == (*rest, (1, 2))
    return pairs if is_whole else None


# -- constructors ----------------------------------------------------------------------------------


def moved(op: int, x: UOp, arg: Any) -> UOp:
    """One of the movement ops on complex numbers."""
    if _is_joined(x.src[0]):
        return joined(*[_move(op, part, arg) for part in parts(x)])
    return B.complex_view(_move(op, x.src[0], _ends[op](arg, len(x.shape))))


_move_by: dict[int, Any] = {
    O.RESHAPE: B.reshape,
    O.EXPAND: B.expand,
    O.PERMUTE: B.permute,
    O.PAD: B.pad,
    O.SHRINK: B.shrink,
    O.FLIP: B.flip,
}
_ends: dict[int, Any] = {  # the last axis, of the two parts, stays
    O.RESHAPE: lambda arg, rank: (*arg, 2),
    O.EXPAND: lambda arg, rank: (*arg, 2),
    O.PERMUTE: lambda arg, rank: (*arg, rank),
    O.PAD: lambda arg, rank: (*arg, (0, 0)),
    O.SHRINK: lambda arg, rank: (*arg, (0, 2)),
    O.FLIP: lambda arg, rank: arg,
}


def _move(op: int, x: UOp, arg: Any) -> UOp:
    found: UOp = _move_by[op](x, arg)
    return found


def cat(pieces: Sequence[UOp], axis: int) -> UOp:
    """Complex pieces one after the other."""
    if any(_is_joined(piece.src[0]) for piece in pieces):
        sides = zip(*[parts(piece) for piece in pieces], strict=True)
        return joined(*[B.cat(side, axis) for side in sides])
    return B.complex_view(B.cat([piece.src[0] for piece in pieces], axis))


def cast(x: UOp, dtype: DType) -> UOp:
    """From and to complex dtypes; what is complex becomes complex or a truth, nothing else."""
    if dtype.kind != "c":
        if dtype.kind != "b":
            raise ComplexOperand(
                f"{x.dtype.name} has no {dtype.name}: take the real or imaginary part, or abs()"
            )
        return binary(O.NE, x, constant(0, x.dtype))
    kind = dt.FLOATS_OF[dtype]
    if x.dtype.kind != "c":
        return joined(B.cast(x, kind), const(0.0, kind))
    if _is_joined(x.src[0]):
        return joined(*[B.cast(part, kind) for part in parts(x)])
    return B.complex_view(B.cast(x.src[0], kind))


def unary(op: int, x: UOp) -> UOp:
    """The negative."""
    if op != O.NEG:
        raise ComplexOperand(f"{O.NAMES[op]} takes real numbers, not {x.dtype.name}")
    return joined(*[B.unary(op, part) for part in parts(x)])


def binary(op: int, a: UOp, b: UOp) -> UOp:
    """Sum, difference, product, quotient by a real number, and whether two are equal."""
    (p, q), (r, s) = parts(a), parts(b)
    if op in (O.ADD, O.SUB):
        return joined(B.binary(op, p, r), B.binary(op, q, s))
    if op in (O.MUL, O.DIV) and _is_zero(s):  # by a real number
        return joined(B.binary(op, p, r), B.binary(op, q, r))
    if op == O.MUL and _is_zero(q):
        return joined(B.binary(op, p, r), B.binary(op, p, s))
    if op == O.MUL:
        re = B.binary(O.SUB, B.binary(O.MUL, p, r), B.binary(O.MUL, q, s))
        im = B.binary(O.ADD, B.binary(O.MUL, p, s), B.binary(O.MUL, q, r))
        return joined(re, im)
    if op in (O.EQ, O.NE):
        both = O.AND if op == O.EQ else O.OR
        return B.binary(both, B.binary(op, p, r), B.binary(op, q, s))
    raise ComplexOperand(f"{O.NAMES[op]} takes real numbers, not {a.dtype.name}")


def where(condition: UOp, a: UOp, b: UOp) -> UOp:
    """A choice, part by part."""
    sides = zip(parts(a), parts(b), strict=True)
    return joined(*[B.where(condition, x, y) for x, y in sides])


def reduce(x: UOp, op: int, axes: tuple[int, ...]) -> UOp:
    """The sum over axes."""
    if op != O.ADD:
        raise ComplexOperand(f"a reduction by {O.NAMES[op]} takes real numbers, not {x.dtype.name}")
    return joined(*[B.reduce(part, op, axes) for part in parts(x)])


def gather(x: UOp, indices: Sequence[UOp]) -> UOp:
    """Elements at indices."""
    if _is_joined(x.src[0]):
        return joined(*[B.gather(part, indices) for part in parts(x)])
    return B.complex_view(B.gather(x.src[0], indices))


def scatter(x: UOp, values: UOp, indices: Sequence[UOp], mode: str) -> UOp:
    """Elements set or added at indices."""
    return B.complex_view(B.scatter(x.src[0], values.src[0], indices, mode))
