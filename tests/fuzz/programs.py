"""Random tensor programs, as data: a list of steps that tensors and shadows can both run.

``make_program(seed)`` draws a program. ``shadows(program)`` is its NumPy meaning with error
bounds, ``tensors(program, device)`` builds the same as lazy tensors. A step names its operands
by number, so any suffix can be dropped and any part of a program looked at alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import svod
from svod import Tensor
from svod.dtype import types as dt
from svod.dtype.casts import cast_array
from tests.fuzz import shadow as S
from tests.fuzz.shadow import Shadow

DTYPES = (
    dt.float32, dt.float32, dt.float32, dt.float64, dt.int32, dt.int64, dt.bool_, dt.uint8,
    dt.float16, dt.bfloat16,
)  # fmt: skip
CASTS = (*DTYPES, dt.int8, dt.int16, dt.uint16, dt.uint32, dt.uint64)
SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130)
LIMIT = 3000  # elements of one value: small, since most of the time goes into compiling


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: its name, the numbers of its operands, what else it needs."""

    name: str
    operands: tuple[int, ...] = ()
    options: Any = None


@dataclass(slots=True)
class Program:
    """Steps, and the numbers of the values to compute."""

    steps: list[Step] = field(default_factory=list)
    outputs: tuple[int, ...] = ()


def shadows(program: Program) -> list[Shadow]:
    """The NumPy values of all steps."""
    values: list[Shadow] = []
    for step in program.steps:
        values.append(_SHADOW[step.name]([values[i] for i in step.operands], step.options))
    return values


def tensors(program: Program, device: str | None = None, is_stored: bool = False) -> list[Tensor]:
    """The lazy tensors of all steps; ``is_stored`` gives every value a buffer of its own."""
    values: list[Tensor] = []
    for step in program.steps:
        if step.name == "input":
            values.append(Tensor(step.options, device=device))
        else:
            found = [values[i] for i in step.operands]
            made = _TENSOR[step.name](found, step.options)
            values.append(made.contiguous() if is_stored else made)
    return values


# -- the meaning of steps -----------------------------------------------------------------------

_TENSOR_UNARY = {name: (lambda x, n=name: getattr(x, n)()) for name in S.FUNCTIONS}
_TENSOR_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}


def _softmax_shadow(x: Shadow, axis: int) -> Shadow:
    top = S.reduced("amax", x, (axis,), True)
    grown = S.unary("exp", S.binary("sub", x, top))
    return S.binary("div", grown, S.reduced("sum", grown, (axis,), True))


def _softmax(x: Tensor, axis: int) -> Tensor:
    grown = (x - x.amax(axis, True)).exp()
    return grown / grown.sum(axis, True)


def _normalize_shadow(x: Shadow, axis: int) -> Shadow:
    apart = S.binary("sub", x, S.reduced("mean", x, (axis,), True))
    spread = S.reduced("mean", S.binary("mul", apart, apart), (axis,), True)
    shifted = S.binary("add", spread, S.exact(np.ones((), spread.array.dtype)))
    return S.binary("mul", apart, S.unary("rsqrt", shifted))


def _normalize(x: Tensor, axis: int) -> Tensor:
    apart = x - x.mean(axis, True)
    return apart * ((apart * apart).mean(axis, True) + 1).rsqrt()


def _scattered(x: Shadow, values: Shadow, places: NDArray[np.int64]) -> Shadow:
    return S.written(x, (places,), values)


def _write_rows(x: Tensor, values: Tensor, places: NDArray[np.int64]) -> Tensor:
    found = x.clone()
    found[Tensor(places).to(x.device)] = values
    return found


def _write_slice(x: Tensor, values: Tensor, key: Any) -> Tensor:
    found = x.clone()
    found[key] = values
    return found


def _take_line(x: Any, axis: int, places: Any) -> Any:
    return x[(slice(None),) * axis + (places,)]


def _one_hot_pick(table: Tensor, places: NDArray[np.int64]) -> Tensor:
    """Rows by a sum over a one-hot, as an embedding may be written."""
    rows = Tensor(places).to(table.device)
    count = table.shape[0]
    hot = rows.reshape(-1, 1) == svod.arange(count)
    spread = svod.where(hot.reshape(*hot.shape, 1), table.reshape(1, *table.shape), 0)
    return spread.sum(1)


def _one_hot_shadow(table: Shadow, places: NDArray[np.int64]) -> Shadow:
    inside = (places >= 0) & (places < table.shape[0])
    kind = table.dtype.kind
    target = dt.int64 if kind in "bi" else dt.uint64 if kind == "u" else table.dtype
    found = S.moved(S.cast(table, target), lambda v: v[np.where(inside, places, 0)])
    return S.moved(found, lambda v: np.where(inside[:, None], v, np.zeros_like(v)))


_SHADOW: dict[str, Callable[[list[Shadow], Any], Shadow]] = {
    "input": lambda x, o: S.exact(o),
    "cast": lambda x, o: S.cast(x[0], o),
    "reshape": lambda x, o: S.moved(x[0], lambda v: v.reshape(o)),
    "permute": lambda x, o: S.moved(x[0], lambda v: v.transpose(o)),
    "expand": lambda x, o: S.moved(x[0], lambda v: np.broadcast_to(v, o)),
    "pad": lambda x, o: S.padded(x[0], o),
    "slice": lambda x, o: S.moved(x[0], lambda v: v[o]),
    "flip": lambda x, o: S.moved(x[0], lambda v: np.flip(v, o)),
    "cat": lambda x, o: S.joined(x, o),
    "where": lambda x, o: S.where(x[0], x[1], x[2]),
    "matmul": lambda x, o: S.matmul(x[0], x[1]),
    "softmax": lambda x, o: _softmax_shadow(x[0], o),
    "normalize": lambda x, o: _normalize_shadow(x[0], o),
    "take": lambda x, o: S.moved(x[0], lambda v: _take_line(v, *o)),
    "write_rows": lambda x, o: _scattered(x[0], x[1], o),
    "write_slice": lambda x, o: S.written(x[0], o, x[1]),
    "one_hot": lambda x, o: _one_hot_shadow(x[0], o),
    "contiguous": lambda x, o: x[0],
    "realize": lambda x, o: x[0],
    "add_number": lambda x, o: _with_number(x[0], o),
    **{f"unary {n}": (lambda x, o, n=n: S.unary(n, x[0])) for n in S.FUNCTIONS},
    **{f"binary {n}": (lambda x, o, n=n: S.binary(n, x[0], x[1])) for n in _TENSOR_BINARY},
    **{
        f"reduce {n}": (lambda x, o, n=n: S.reduced(n, x[0], *o))
        for n in ("sum", "prod", "amax", "amin", "any", "all", "mean")
    },
}


def _with_number(x: Shadow, number: int | float) -> Shadow:
    if isinstance(number, float) and not x.is_float:
        x = S.cast(x, dt.float32)
    if x.dtype is dt.bool_:
        x = S.cast(x, dt.int64)
    return S.binary("add", x, S.exact(cast_array(np.asarray(number), x.dtype)))


_TENSOR: dict[str, Callable[[list[Tensor], Any], Tensor]] = {
    "cast": lambda x, o: x[0].cast(o),
    "reshape": lambda x, o: x[0].reshape(o),
    "permute": lambda x, o: x[0].permute(o),
    "expand": lambda x, o: x[0].expand(o),
    "pad": lambda x, o: x[0].pad(o),
    "slice": lambda x, o: x[0][o],
    "flip": lambda x, o: x[0].flip(o),
    "cat": lambda x, o: svod.cat(x, dim=o),
    "where": lambda x, o: svod.where(x[0], x[1], x[2]),
    "matmul": lambda x, o: x[0] @ x[1],
    "softmax": lambda x, o: _softmax(x[0], o),
    "normalize": lambda x, o: _normalize(x[0], o),
    "take": lambda x, o: _take_line(x[0], o[0], Tensor(o[1]).to(x[0].device)),
    "write_rows": lambda x, o: _write_rows(x[0], x[1], o),
    "write_slice": lambda x, o: _write_slice(x[0], x[1], o),
    "one_hot": lambda x, o: _one_hot_pick(x[0], o),
    "contiguous": lambda x, o: x[0].contiguous(),
    "realize": lambda x, o: x[0].realize(),
    "add_number": lambda x, o: x[0] + o,
    **{f"unary {n}": (lambda x, o, f=f: f(x[0])) for n, f in _TENSOR_UNARY.items()},
    **{f"binary {n}": (lambda x, o, f=f: f(x[0], x[1])) for n, f in _TENSOR_BINARY.items()},
    **{
        f"reduce {n}": (lambda x, o, n=n: getattr(x[0], n)(o[0], o[1]))
        for n in ("sum", "prod", "amax", "amin", "any", "all", "mean")
    },
}

# -- drawing ------------------------------------------------------------------------------------


def make_program(seed: int, most: int = 30) -> Program:
    """The program of a seed."""
    with np.errstate(all="ignore"):
        return _Maker(seed).run(most)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.program = Program()
        self.values: list[Shadow] = []

    def run(self, most: int) -> Program:
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self.new_input(self.shape(), self.random.choice(DTYPES))
        wanted = len(self.values) + self.random.choice((1, 2, 3, 5, 8, 12, 20, most))
        tries = 0
        while len(self.values) < wanted and tries < 20 * most:
            tries += 1
            getattr(self, self.random.choice(_MOVES))()
        self.program.outputs = self._outputs()
        return self.program

    def _outputs(self) -> tuple[int, ...]:
        """The last result, and perhaps others nothing uses, or any value."""
        made = [i for i, s in enumerate(self.program.steps) if s.name != "input"]
        used = {i for s in self.program.steps for i in s.operands}
        free = [i for i in made if i not in used]
        found = {free[-1] if free else len(self.values) - 1}
        for _ in range(self.random.choice((0, 0, 1, 2, 4))):
            found.add(self.random.choice(free or made or [0]))
        if self.random.random() < 0.2:
            found.add(self.random.randrange(len(self.values)))
        return tuple(sorted(found))

    def add(self, name: str, operands: tuple[int, ...] = (), options: Any = None) -> int:
        step = Step(name, operands, options)
        value = _SHADOW[name]([self.values[i] for i in operands], options)
        self.program.steps.append(step)
        self.values.append(value)
        return len(self.values) - 1

    # -- pieces of a choice --------------------------------------------------------------------

    def shape(self, limit: int = LIMIT) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 3, 4))):
            size = self.random.choice(SIZES)
            if prod(found) * size <= limit:
                found = (*found, size)
        return found

    def array(self, shape: tuple[int, ...], dtype: dt.DType) -> Any:
        if dtype.kind == "b":
            return self.data.integers(0, 2, shape).astype(bool)
        if dtype.kind == "u":
            return self.data.integers(0, 256, shape).astype(np.uint8)
        if dtype.kind == "i":
            top = self.random.choice((4, 100, 1 << 30))
            return cast_array(self.data.integers(-top, top, shape), dtype)
        coarse = self.data.integers(-32, 33, shape) / 8.0
        values = self.random.choice((coarse, self.data.normal(size=shape)))
        found = cast_array(np.asarray(values), dtype)
        if self.random.random() < 0.1 and found.size:
            flat = found.reshape(-1)
            special = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
            flat[self.data.integers(0, flat.size, 3)] = self.data.choice(special, 3).astype(
                flat.dtype
            )
            found = flat.reshape(shape)
        return found

    def new_input(self, shape: tuple[int, ...], dtype: dt.DType) -> int:
        return self.add("input", (), np.array(self.array(shape, dtype)))

    def pick(self) -> int:
        """A value; results that nothing uses yet are the most likely."""
        used = {i for s in self.program.steps for i in s.operands}
        free = [i for i, s in enumerate(self.program.steps) if s.name != "input" and i not in used]
        chance = self.random.random()
        if free and chance < 0.75:
            return free[-1] if chance < 0.5 else self.random.choice(free)
        return self.random.randrange(len(self.values))

    def partner(self, x: int, dtype: dt.DType | None = None) -> int:
        """Another value that broadcasts with x, perhaps a new one."""
        shape = self.values[x].shape
        fit = [i for i, v in enumerate(self.values) if _broadcasts(v.shape, shape)]
        if fit and self.random.random() < 0.6:
            found = self.random.choice(fit)
        else:
            small = tuple([n if self.random.random() < 0.7 else 1 for n in shape])
            small = small[self.random.choice((0, 0, 0, len(small) // 2)) :]
            found = self.new_input(small, dtype or self.random.choice(DTYPES))
        return found

    def axis(self, shape: tuple[int, ...]) -> int:
        return self.random.randrange(len(shape))

    # -- moves ---------------------------------------------------------------------------------

    def unary(self) -> None:
        x = self.pick()
        kind = self.values[x].dtype
        names = list(S.FUNCTIONS)
        if kind is dt.bool_:
            return
        if kind.kind in "iu":
            names = ["neg", "abs"] if self.random.random() < 0.7 else names
        self.add(f"unary {self.random.choice(names)}", (x,))

    def binary(self) -> None:
        x = self.pick()
        y = self.partner(x)
        if self.random.random() < 0.5:
            x, y = y, x
        common = S.promote(self.values[x].dtype, self.values[y].dtype)
        names = ["add", "sub", "mul", "max", "min", "lt", "le", "eq", "ne"]
        if common.kind == "f":
            names += ["div", "add", "mul", "sub"]
        elif common.kind == "b":
            names = ["and", "or", "xor", "max", "min", "eq", "ne", "lt", "le"]
        else:
            names += ["and", "or", "xor", "floordiv", "mod", "shl", "shr", "div"]
        self.add(f"binary {self.random.choice(names)}", (x, y))

    def number(self) -> None:
        number = self.random.choice((1, 2, -3, 7, 0.5, -1.25, 100))
        x = self.pick()
        if self.values[x].dtype.kind == "u" and number == -3:
            number = 3
        self.add("add_number", (x,), number)

    def choose(self) -> None:
        x = self.pick()
        y = self.partner(x)
        tests = [
            i
            for i, v in enumerate(self.values)
            if v.dtype is dt.bool_ and _broadcasts(v.shape, self.values[x].shape)
        ]
        if tests:
            test = self.random.choice(tests)
        else:
            other = self.partner(x)
            test = self.add("binary lt", (x, other))
        if _broadcasts(*[self.values[i].shape for i in (test, x, y)]):
            self.add("where", (test, x, y))

    def cast(self) -> None:
        self.add("cast", (self.pick(),), self.random.choice(CASTS))

    def reshape(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        flat = prod(shape)
        found: list[int] = []
        while flat > 1 and len(found) < 4:
            divisors = [d for d in range(1, flat + 1) if flat % d == 0]
            size = self.random.choice(divisors)
            found.append(size)
            flat //= size
        if flat > 1 or self.random.random() < 0.2:
            found.append(flat)
        self.add("reshape", (x,), tuple(found))

    def permute(self) -> None:
        x = self.pick()
        axes = list(range(len(self.values[x].shape)))
        self.random.shuffle(axes)
        self.add("permute", (x,), tuple(axes))

    def expand(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        wide: list[int] = []
        for n in shape:
            wide.append(self.random.choice(SIZES[:12]) if n == 1 else n)
        if prod(wide) <= LIMIT and shape:
            self.add("expand", (x,), tuple(wide))

    def pad(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        pairs = tuple(
            [(self.random.choice((0, 0, 1, 3)), self.random.choice((0, 0, 1, 2))) for _ in shape]
        )
        if shape and prod([n + a + b for n, (a, b) in zip(shape, pairs, strict=True)]) <= LIMIT:
            self.add("pad", (x,), pairs)

    def cut(self) -> None:
        x = self.pick()
        if self.values[x].shape:
            self.add("slice", (x,), self.key(self.values[x].shape))

    def key(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """A basic index that keeps at least one element."""
        found: list[Any] = []
        for n in shape:
            kind = self.random.random()
            start = self.random.randrange(n)
            if kind < 0.3:
                found.append(slice(None))
            elif kind < 0.4:
                found.append(start - self.random.choice((0, n)))
            elif kind < 0.5:
                found.append(slice(None, None, self.random.choice((-1, 2, 3, -2))))
            else:
                stop = self.random.randrange(start, n) + 1
                found.append(slice(start, stop, self.random.choice((1, 1, 2, 3))))
        return tuple(found)

    def flip(self) -> None:
        x = self.pick()
        rank = len(self.values[x].shape)
        axes = tuple([a for a in range(rank) if self.random.random() < 0.5])
        if axes:
            self.add("flip", (x,), axes)

    def join(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        if not shape:
            return
        axis = self.axis(shape)
        rest = shape[:axis] + shape[axis + 1 :]
        fit = [
            i
            for i, v in enumerate(self.values)
            if len(v.shape) == len(shape) and v.shape[:axis] + v.shape[axis + 1 :] == rest
        ]
        parts = [x] + [self.random.choice(fit) for _ in range(self.random.choice((1, 1, 2, 4)))]
        self.random.shuffle(parts)
        if sum([prod(self.values[i].shape) for i in parts]) <= LIMIT:
            self.add("cat", tuple(parts), axis)

    def fold(self) -> None:
        x = self.pick()
        value = self.values[x]
        rank = len(value.shape)
        axes = tuple([a for a in range(rank) if self.random.random() < 0.5])
        names = ["sum", "sum", "sum", "amax", "amin", "mean", "prod"]
        if value.dtype.kind in "bui":
            names += ["any", "all"]
        name = self.random.choice(names)
        if not axes:
            return
        self.add(f"reduce {name}", (x,), (axes, self.random.random() < 0.5))

    def matmul(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        if len(shape) < 2:
            return
        columns = self.random.choice(SIZES)
        lead = shape[:-2] if self.random.random() < 0.5 else ()
        other = (*lead, shape[-1], columns)
        if prod(other) > LIMIT or prod(shape[:-1]) * columns > LIMIT:
            return
        kind = self.values[x].dtype
        y = self.new_input(
            other, kind if self.random.random() < 0.7 else self.random.choice(DTYPES)
        )
        self.add("matmul", (x, y))

    def composed(self) -> None:
        x = self.pick()
        value = self.values[x]
        if not value.shape or not value.is_float:
            return
        name = self.random.choice(("softmax", "normalize"))
        self.add(name, (x,), self.axis(value.shape))

    def take(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        if not shape:
            return
        axis = self.axis(shape)
        places = self.data.integers(
            -shape[axis], shape[axis], self.random.choice(((3,), (17,), (2, 3)))
        )
        if prod(shape) // shape[axis] * places.size <= LIMIT:
            self.add("take", (x,), (axis, places))

    def write_rows(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        if not shape:
            return
        places = self.data.integers(-shape[0], shape[0], self.random.choice((1, 3, 9)))
        rows = (len(places), *shape[1:])
        if prod(rows) > LIMIT:
            return
        kind = self.values[x].dtype
        y = self.new_input(
            rows, kind if kind in DTYPES else dt.uint8 if kind.kind == "u" else dt.bool_
        )
        self.add("write_rows", (x, y), places)

    def write_slice(self) -> None:
        x = self.pick()
        value = self.values[x]
        if not value.shape:
            return
        key = self.key(value.shape)
        part = value.array[key].shape
        kind = value.dtype if value.dtype in DTYPES else dt.bool_
        y = self.new_input(part, kind)
        self.add("write_slice", (x, y), key)

    def one_hot(self) -> None:
        x = self.pick()
        shape = self.values[x].shape
        if len(shape) != 2:
            return
        places = self.data.integers(-1, shape[0] + 2, self.random.choice((1, 5, 17)))
        if len(places) * shape[1] <= LIMIT:
            self.add("one_hot", (x,), places)

    def keep(self) -> None:
        self.add(self.random.choice(("contiguous", "realize")), (self.pick(),))


_MOVES = (
    ["unary"] * 5
    + ["binary"] * 9
    + ["number", "number", "choose", "choose", "cast", "cast"]
    + ["reshape", "reshape", "permute", "permute", "expand", "pad", "pad", "cut", "cut", "flip"]
    + [
        "join",
        "join",
        "fold",
        "fold",
        "fold",
        "fold",
        "fold",
        "matmul",
        "matmul",
        "matmul",
        "composed",
        "take",
        "write_rows",
        "write_slice",
    ]
    + ["one_hot", "keep"]
)


def _broadcasts(*shapes: tuple[int, ...]) -> bool:
    try:
        return prod(np.broadcast_shapes(*shapes)) <= LIMIT
    except ValueError:
        return False


def slice_of(program: Program, number: int) -> Program:
    """Only the steps the value of this number needs."""
    needed = {number}
    for i in range(number, -1, -1):
        if i in needed:
            needed.update(program.steps[i].operands)
    order = sorted(needed)
    place = {old: new for new, old in enumerate(order)}
    steps = [
        Step(s.name, tuple([place[i] for i in s.operands]), s.options)
        for s in [program.steps[i] for i in order]
    ]
    return Program(steps, (place[number],))


def listing(program: Program) -> str:
    """The program for people."""
    lines = []
    for number, (step, value) in enumerate(zip(program.steps, shadows(program), strict=True)):
        options = "" if step.name == "input" or step.options is None else f" {step.options!r}"
        operands = ", ".join([f"v{i}" for i in step.operands])
        kind = f"{value.array.dtype}{list(value.shape)}"
        lines.append(f"v{number} = {step.name}({operands}){options}  # {kind}")
    return "\n".join([*lines, f"outputs {program.outputs}"])
