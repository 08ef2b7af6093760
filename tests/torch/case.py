"""A case: a torch name with arguments, run alike on torch and on Svod.

Arguments are described, not given, so that one description makes a NumPy array, a torch tensor
and a tensor of ours. A name is called in every form torch has for it: ``torch.name(x, ...)``,
``x.name(...)``, ``torch.nn.functional.name(x, ...)`` and ``torch.special.name(x, ...)``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = ("float64", "float32", "float16", "bfloat16")
WIDE = ("float64", "float32")
INTEGERS = ("int64", "int32", "uint8")
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")
ONE = ("float32",)

# relative and absolute tolerance by the dtype of a result
TOLERANCES = {
    "float64": (1e-9, 1e-11),
    "float32": (2e-5, 2e-6),
    "float16": (4e-3, 1e-3),
    "bfloat16": (3e-2, 1e-2),
}


@dataclass(frozen=True)
class Data:
    """An input: a shape and where its values come from."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str | None = None  # None: the dtype the case runs with
    values: tuple[Any, ...] | None = None
    layout: str = "plain"  # or "turned": axes reversed in memory, "strided": every second one
    distinct: bool = False
    grad: bool = True

    def array(self, dtype: str, place: int) -> Array:
        """The values, the same on every machine."""
        kind = self.dtype or dtype
        if self.values is not None:
            found = np.array(self.values).reshape(self.shape)
            return _rounded(found, kind)
        random = np.random.default_rng(7 + 101 * place)
        count = int(np.prod(self.shape))
        if kind == "bool":
            return random.integers(0, 2, self.shape).astype(bool)
        if kind in ("float64", "float32", "float16", "bfloat16"):
            if self.distinct:
                line = (random.permutation(count) + 0.5) / max(count, 1)
                return _rounded(
                    (line * (self.high - self.low) + self.low).reshape(self.shape), kind
                )
            return _rounded(random.uniform(self.low, self.high, self.shape), kind)
        low = int(np.ceil(self.low * 3 if self.low < 0 else self.low))
        high = int(np.floor(self.high * 3))
        if kind.startswith("u"):
            low = max(low, 0)
        if self.distinct:
            return (random.permutation(count) + low).reshape(self.shape).astype(kind)
        return random.integers(low, max(high, low + 1), self.shape).astype(kind)


def _rounded(values: Array, kind: str) -> Array:
    """Values a dtype can hold; bfloat16 is kept as float32."""
    if kind != "bfloat16":
        with np.errstate(all="ignore"):
            return values.astype(kind)
    bits = values.astype(np.float32).view(np.uint32)
    even = ((bits >> 16) & 1) + 0x7FFF
    short = np.where(np.isnan(values), bits, bits + even) & 0xFFFF0000
    return short.astype(np.uint32).view(np.float32)


@dataclass(frozen=True)
class DT:
    """A dtype among the arguments."""

    name: str


@dataclass(frozen=True)
class Case:
    """One call of one name."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = WIDE
    # of t (torch), m (method), f (functional), s (special), l (linalg), k (masked), w (windows);
    # empty: those of the first four that torch has
    forms: str = ""
    grad: bool = True  # compare gradients, in float64
    differences: bool = True  # and check them by finite differences
    tolerance: float = 1.0  # a factor on the tolerances
    gradient_tolerance: float = 1.0
    values: bool = True  # False: random results, only shapes and dtypes are compared
    order: str = ""  # "sorted": results are compared as sets

    def data(self) -> list[Data]:
        """The inputs, in order."""
        return [*_inputs(self.args), *_inputs(tuple(self.options.values()))]

    def digest(self) -> str:
        """Changes when the call or its inputs change."""
        text = repr((self.name, self.args, sorted(self.options.items()), self.forms, self.order))
        return f"{zlib.crc32(text.encode()):08x}"


def _inputs(value: Any) -> Iterator[Data]:
    if isinstance(value, Data):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _inputs(v)


class Library:
    """torch or Svod behind one face."""

    def __init__(self, module: Any, functional: Any) -> None:
        self.module, self.functional = module, functional

    def tensor(self, array: Array, dtype: str) -> Any:
        raise NotImplementedError

    def array(self, value: Any) -> tuple[str, Array]:
        raise NotImplementedError

    def forms(self, name: str) -> str:
        """The forms in which the library has a name."""
        places = (self.module, self.module.Tensor, self.functional, self.module.special)
        found = [f for f, p in zip("tmfs", places, strict=True) if hasattr(p, name)]
        if "t" in found and not callable(getattr(self.module, name)):
            found.remove("t")  # a dtype, not a function
        return "".join(found)

    def inputs(self, case: Case, dtype: str) -> list[Any]:
        found = []
        for place, d in enumerate(case.data()):
            array = d.array(dtype, place)
            kind = d.dtype or dtype
            if d.layout == "turned":
                order = tuple(range(array.ndim))[::-1]
                made = self.tensor(np.ascontiguousarray(array.T), kind).permute(order)
            elif d.layout == "strided":
                wide = np.repeat(array, 2, -1)
                made = self.tensor(wide, kind)[..., ::2]
            else:
                made = self.tensor(array, kind)
            found.append(made)
        return found

    def call(self, case: Case, form: str, inputs: Sequence[Any]) -> Any:
        """The result of the call in one form."""
        rest = iter(inputs)
        args = self._filled(case.args, rest)
        options = {k: self._filled(v, rest) for k, v in case.options.items()}
        if form == "m":
            found = getattr(args[0], case.name)
            return found(*args[1:], **options) if callable(found) else found
        where = self._space(form)
        return getattr(where, case.name)(*args, **options)

    def _space(self, form: str) -> Any:
        if form == "f":
            return self.functional
        paths = {"t": "", "s": "special", "l": "linalg", "k": "masked", "w": "signal windows"}
        return reduce(getattr, paths[form].split(), self.module)

    def _filled(self, value: Any, rest: Iterator[Any]) -> Any:
        if isinstance(value, Data):
            return next(rest)
        if isinstance(value, DT):
            return getattr(self.module, value.name)
        if isinstance(value, (list, tuple)):
            return type(value)([self._filled(v, rest) for v in value])
        return value

    def outputs(self, result: Any) -> list[Any]:
        """The tensors and numbers of a result, one after the other."""
        if isinstance(result, self.module.Tensor):
            return [result]
        if isinstance(result, (list, tuple)):
            return [o for r in result for o in self.outputs(r)]
        return [result]


class Svod(Library):
    def __init__(self) -> None:
        import svod
        from svod.nn import functional

        super().__init__(svod, functional)

    def tensor(self, array: Array, dtype: str) -> Any:
        return self.module.Tensor(array).cast(dtype)

    def array(self, value: Any) -> tuple[str, Array]:
        if not isinstance(value, self.module.Tensor):
            return "python", np.asarray(value)
        name = value.dtype.name
        found = value.numpy()
        return name, found.astype(np.float32) if name == "bfloat16" else found


class Torch(Library):
    def __init__(self) -> None:
        import torch

        super().__init__(torch, torch.nn.functional)

    def tensor(self, array: Array, dtype: str) -> Any:
        return self.module.from_numpy(np.array(array)).to(getattr(self.module, dtype))

    def array(self, value: Any) -> tuple[str, Array]:
        if not isinstance(value, self.module.Tensor):
            if isinstance(value, self.module.dtype):
                return "python", np.asarray(str(value))
            return "python", np.asarray(value)
        name = str(value.dtype).removeprefix("torch.")
        value = value.detach()
        value = value.float() if name == "bfloat16" else value
        return name, value.resolve_neg().contiguous().numpy()


def weights(shape: tuple[int, ...]) -> Array:
    """What an output is multiplied with before outputs are added up for a gradient."""
    count = int(np.prod(shape))
    return (np.cos(np.arange(count) * 1.7) + 1.3).reshape(shape)


def close(found: Array, wanted: Array, dtype: str, factor: float) -> str:
    """What differs, or nothing."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, torch has {wanted.shape}"
    relative, absolute = TOLERANCES.get(dtype, (0.0, 0.0))
    if dtype not in TOLERANCES:
        near = np.asarray(found == wanted)
    else:
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        near = np.isclose(a, b, rtol=relative * factor, atol=absolute * factor, equal_nan=True)
    if near.all():
        return ""
    place = tuple([int(i) for i in np.argwhere(~near)[0]])
    return (
        f"{int((~near).sum())} of {near.size} differ; at {place}: {found[place]!r}, "
        f"torch has {wanted[place]!r}"
    )


Check = Callable[[Case, str], None]
