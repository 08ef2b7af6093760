"""Short forms for the tables of cases."""

from __future__ import annotations

from typing import Any

from tests.torch.case import ALL, DT, FLOATS, INTEGERS, NUMBERS, ONE, WIDE, Case, Data

__all__ = [
    "ALL", "BAD", "CASES", "DT", "FLOATS", "INTEGERS", "NUMBERS", "ONE", "WIDE", "Data", "add",
    "bad", "distinct", "each", "ids", "lit", "mask", "pos", "special", "unit", "x",
]  # fmt: skip

CASES: list[Case] = []
BAD: list[Case] = []
_NAN, _INF = float("nan"), float("inf")


def add(name: str, *args: Any, **options: Any) -> None:
    """A case for each of several names; options with an underscore are settings of the case."""
    settings = {k[1:]: options.pop(k) for k in list(options) if k.startswith("_")}
    for one in name.split():
        CASES.append(Case(one, args, options, **settings))


def bad(name: str, *args: Any, **options: Any) -> None:
    """A call that torch refuses."""
    settings = {k[1:]: options.pop(k) for k in list(options) if k.startswith("_")}
    settings.setdefault("dtypes", ONE)
    for one in name.split():
        BAD.append(Case(one, args, options, grad=False, **settings))


def x(*shape: int, low: float = -2.0, high: float = 2.0, **more: Any) -> Data:
    """Numbers between -2 and 2, whole ones between -6 and 5."""
    return Data(shape, low, high, **more)


def pos(*shape: int, low: float = 0.2, high: float = 3.0, **more: Any) -> Data:
    """Numbers above zero."""
    return Data(shape, low, high, **more)


def unit(*shape: int, **more: Any) -> Data:
    """Numbers between -0.95 and 0.95."""
    return Data(shape, -0.95, 0.95, **more)


def distinct(*shape: int, **more: Any) -> Data:
    """Numbers of which no two are equal."""
    return Data(shape, distinct=True, **more)


def lit(
    *values: Any, shape: tuple[int, ...] | None = None, dtype: str | None = None, **more: Any
) -> Data:
    """These values."""
    return Data(shape if shape is not None else (len(values),), dtype=dtype, values=values, **more)


def special(dtype: str | None = None) -> Data:
    """NaN, infinities, zeros and numbers around the usual limits."""
    return lit(
        _NAN, _INF, -_INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 30.0, -30.0, dtype=dtype
    )


def ids(*values: int, shape: tuple[int, ...] | None = None) -> Data:
    """Indices."""
    return lit(*values, shape=shape, dtype="int64")


def mask(*shape: int) -> Data:
    """Truth values."""
    return Data(shape, dtype="bool")


def each(
    names: str,
    make: Any = x,
    dtypes: tuple[str, ...] = FLOATS,
    grad: bool = True,
    edge: bool = True,
    **more: Any,
) -> None:
    """Functions of one tensor: plain, turned, strided, empty, a scalar, and special values."""
    add(names, make(3, 4), _dtypes=dtypes, _grad=grad, **more)
    add(names, make(2, 3, 2, layout="turned"), _dtypes=("float32",), _grad=False, **more)
    add(names, make(5, layout="strided"), _dtypes=("float32",), _grad=False, **more)
    add(names, make(0, 3), _dtypes=("float32",), _grad=False, **more)
    add(names, make(), _dtypes=("float64",), _grad=grad, **more)
    if edge:
        add(names, special(), _dtypes=("float64", "float32"), _grad=False, **more)
