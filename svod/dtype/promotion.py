"""The common dtype of several operands.

In: dtypes, and for ``result_type`` also Python scalars. Out: one dtype, whatever the order.
The array API standard fixes bool, signed, unsigned and float among themselves. Where it is
silent we choose:
- an integer with a float gives the float (as torch);
- uint64 with a signed integer gives float64 (as NumPy), for no integer holds both;
- float16 with bfloat16 gives float32, an 8-bit float with a wider one gives the wider one, and
  the two 8-bit floats give float16, which holds every value of both;
- float16 and narrower floats with a complex number count as float32;
- ``index`` and ``void`` meet nothing but themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np

from svod.base.errors import DTypeError
from svod.dtype import types as dt
from svod.dtype.convert import from_numpy
from svod.dtype.types import DType

DEFAULT_INT: Final = dt.int64  # of a Python int
DEFAULT_FLOAT: Final = dt.float32  # of a Python float, and of an integer that must become one
DEFAULT_COMPLEX: Final = dt.complex64  # of a Python complex number

Operand: TypeAlias = "DType | bool | int | float | complex | np.generic"

_SIGNED: Final = {8: dt.int8, 16: dt.int16, 32: dt.int32, 64: dt.int64}
_UNSIGNED: Final = {8: dt.uint8, 16: dt.uint16, 32: dt.uint32, 64: dt.uint64}
_pairs: dict[tuple[DType, DType], DType] = {}  # at most one entry per pair of dtypes


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation on an ``a`` and a ``b``."""
    if a is b:
        return a
    found = _pairs.get((a, b))
    if found is None:
        found = _pairs[a, b] = _join((a, b))
    return found


def result_type(*operands: Operand) -> DType:
    """The dtype of an operation on dtypes and Python scalars.

    A Python scalar is weak: it keeps the dtype of the others unless its kind (bool < int <
    float < complex) is above theirs. uint8 with 1 is uint8, int32 with 1.5 is float32, bool with
    1 is int64, float64 with 1j is complex128. Values play no part; an int that does not fit
    wraps when it is stored. A NumPy scalar has the dtype it says.
    """
    if not operands:
        raise DTypeError("result_type needs at least one dtype or scalar")
    strong: list[DType] = []
    weak = -1  # 0 bool, 1 int, 2 float, 3 complex
    for operand in operands:
        if isinstance(operand, DType):
            strong.append(operand)
        elif isinstance(operand, np.generic):
            strong.append(from_numpy(operand.dtype))
        elif isinstance(operand, bool):
            weak = max(weak, 0)
        elif isinstance(operand, int):
            weak = max(weak, 1)
        elif isinstance(operand, float):
            weak = max(weak, 2)
        elif isinstance(operand, complex):
            weak = 3
        else:
            raise DTypeError(
                f"{operand!r} of type {type(operand).__name__} has no dtype; "
                "give a dtype, bool, int, float or complex"
            )
    if not strong:
        return (dt.bool_, DEFAULT_INT, DEFAULT_FLOAT, DEFAULT_COMPLEX)[weak]
    common = promote(strong[0], strong[1]) if len(strong) == 2 else _join(strong)
    if weak == 1 and common.kind == "b":
        return DEFAULT_INT
    if weak == 2 and common.kind in "bui":
        return DEFAULT_FLOAT
    if weak == 3 and common.kind in "buif":
        return promote(common, DEFAULT_COMPLEX)
    if weak >= 2 and common.kind == "x":
        raise DTypeError("index arithmetic takes integers, not a float")
    return common


def least_upper_float(dtype: DType) -> DType:
    """The dtype itself when it is a float or complex, else the default float, as for sqrt."""
    if dtype.kind in "fc":
        return dtype
    if dtype.kind == "v":
        raise DTypeError("void has no float dtype above it")
    return DEFAULT_FLOAT.vec(dtype.lanes)


def _join(dtypes: Iterable[DType]) -> DType:
    """Works on the whole set, not by pairs, so the order of the operands cannot matter."""
    found = set(dtypes)
    if len(found) == 1:
        return found.pop()
    if any(d.kind in "xv" or d.lanes != 1 for d in found):
        names = " and ".join(sorted(map(repr, found)))
        raise DTypeError(f"{names} have no common dtype; cast one of them")
    if any(d.kind == "c" for d in found):
        return _join_complex(found)
    floats = {d for d in found if d.kind == "f"}
    if floats:
        return _join_floats(floats)
    unsigned = max((d.bits for d in found if d.kind == "u"), default=0)
    signed = max((d.bits for d in found if d.kind == "i"), default=0)
    if not signed:
        return _UNSIGNED[unsigned]
    if signed > unsigned:
        return _SIGNED[signed]
    return dt.float64 if unsigned == 64 else _SIGNED[2 * unsigned]


def _join_complex(found: set[DType]) -> DType:
    """The complex dtype whose parts hold the floats; integers play no part."""
    floats = {dt.FLOATS_OF.get(d, d) for d in found if d.kind in "fc"}
    return dt.COMPLEX_OF[_join_floats({dt.float32, *floats})]


def _join_floats(floats: set[DType]) -> DType:
    widest = max(d.bits for d in floats)
    top = [d for d in floats if d.bits == widest]
    if len(top) == 1:
        return top[0]
    return dt.float16 if widest == 8 else dt.float32
