"""Threefry, a counter-based random generator: equal numbers on every device and thread count.

Threefry-2x32 with 20 rounds turns (key, position) into two 32-bit words with integer tensor ops
only. The key and a running counter are data, a small buffer of four words, so that equal shapes
share one kernel. ``manual_seed`` sets the key and resets the counter.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p, pi, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.base.locks import held_lock
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of, finfo, iinfo
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core import tracing
from svod.tensor.core.complex_parts import joined
from svod.tensor.core.public_functions import guard_class
from svod.tensor.core.tensor_core import (
    Core,
    default_device,
    device_name,
    integer,
    shape_of,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.numpy_interchange import node_of_array

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA  # of the key schedule, from the Threefry paper


class Generator:
    """A seed and how many numbers have been drawn."""

    __slots__ = ("_lock", "drawn", "seed")

    def __init__(self, seed: int = 0) -> None:
        self._lock = held_lock()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start anew from a seed."""
        self.seed = integer(seed, "a seed") & ((1 << 64) - 1)
        self.drawn = 0
        return self

    def initial_seed(self) -> int:
        """The seed that the numbers started from."""
        return self.seed

    def get_state(self) -> Tensor:
        """Seed and count as a tensor, for ``set_state``."""
        return tensor_of(np.array([self.seed, self.drawn], np.uint64))

    def set_state(self, state: Any) -> Generator:
        """Go on from where another generator was."""
        words = np.asarray(state)
        if words.shape != (2,) or words.dtype != np.uint64:
            raise DTypeError(
                f"the state of a generator is a uint64 tensor of 2 elements, as get_state() gives "
                f"it, not {words.dtype} of shape {words.shape}"
            )
        with self._lock:
            self.seed, self.drawn = (int(w) for w in words)
        return self

    def draw(self, count: int, device: str | None) -> UOp:
        """Four words (key, key, counter, counter) for the next ``count`` numbers."""
        words = self.words(count)
        node = node_of_array(words, None, device, copy=False)[0]
        if tracing.state.effects is not None:  # a plan draws anew each time it runs
            tracing.state.effects.draws.append((self, count, node))
        return node

    def words(self, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Key and counter of the next ``count`` numbers."""
        with self._lock:
            start = self.drawn
            self.drawn += count
        parts = (self.seed, self.seed >> 32, start, start >> 32)
        return np.array([p & 0xFFFFFFFF for p in parts], np.uint32)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Start the default random numbers anew from a seed."""
    return default_generator.manual_seed(seed)


def initial_seed() -> int:
    """The seed of the default random numbers."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Where the default random numbers are, for ``set_rng_state``."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Go on with the default random numbers from a saved state."""
    default_generator.set_state(new_state)


def _word(state: UOp, place: int) -> UOp:
    return B.reshape(B.shrink(state, ((place, place + 1),)), ())


def _rotate(x: UOp, amount: int) -> UOp:
    left = B.binary(O.SHL, x, const(amount, dt.uint32))
    return B.binary(O.OR, left, B.binary(O.SHR, x, const(32 - amount, dt.uint32)))


def threefry(key: tuple[UOp, UOp], low: UOp, high: UOp) -> tuple[UOp, UOp]:
    """Two random words for each counter (low, high)."""
    parity = B.binary(O.XOR, B.binary(O.XOR, key[0], key[1]), const(_PARITY, dt.uint32))
    keys = (key[0], key[1], parity)
    x, y = B.binary(O.ADD, low, keys[0]), B.binary(O.ADD, high, keys[1])
    for step in range(5):
        for amount in _ROTATIONS[step % 2]:
            x = B.binary(O.ADD, x, y)
            y = B.binary(O.XOR, _rotate(y, amount), x)
        x = B.binary(O.ADD, x, keys[(step + 1) % 3])
        y = B.binary(O.ADD, y, keys[(step + 2) % 3])
        y = B.binary(O.ADD, y, const(step + 1, dt.uint32))
    return x, y


def _words(count: int, device: str | None, generator: Generator | None) -> tuple[UOp, UOp]:
    """Two random 32-bit words for each of ``count`` positions."""
    loops = tracing.state.loops
    steps = prod([loop.length for loop in loops])
    state = (generator or default_generator).draw(count * steps, device)
    start, block = _word(state, 2), _word(state, 3)
    if loops:
        start, block = _at_step(start, block, count)
    position = B.iota(count, dt.uint32)
    low = B.binary(O.ADD, position, start)
    carry = B.cast(B.binary(O.LT, low, start), dt.uint32)
    return threefry((_word(state, 0), _word(state, 1)), low, B.binary(O.ADD, block, carry))


def _at_step(start: UOp, block: UOp, count: int) -> tuple[UOp, UOp]:
    """The counter of the first number in this step of the loops that are being recorded."""
    number = const(0, dt.uint64)
    for loop in tracing.state.loops:
        loop.is_asked = True
        number = B.binary(O.MUL, number, const(loop.length, dt.uint64))
        number = B.binary(O.ADD, number, B.cast(loop.number, dt.uint64))
    high = B.binary(O.SHL, B.cast(block, dt.uint64), const(32, dt.uint64))
    whole = B.binary(O.ADD, high, B.cast(start, dt.uint64))
    whole = B.binary(O.ADD, whole, B.binary(O.MUL, number, const(count, dt.uint64)))
    low = B.cast(B.binary(O.AND, whole, const(0xFFFFFFFF, dt.uint64)), dt.uint32)
    return low, B.cast(B.binary(O.SHR, whole, const(32, dt.uint64)), dt.uint32)


def _unit(word: UOp, other: UOp, dtype: DType) -> UOp:
    """Random bits as a float from 0 up to but not including 1."""
    if dtype is dt.float64:
        high = B.cast(B.binary(O.SHR, word, const(5, dt.uint32)), dtype)
        low = B.cast(B.binary(O.SHR, other, const(6, dt.uint32)), dtype)
        high = B.binary(O.MUL, high, const(2.0**-27, dtype))
        return B.binary(O.ADD, high, B.binary(O.MUL, low, const(2.0**-53, dtype)))
    bits = {dt.float32: 24, dt.float16: 11, dt.bfloat16: 8}.get(dtype)
    if bits is None:
        raise DTypeError(f"random numbers of {dtype.name}: use float16, 32, 64 or bfloat16")
    whole = B.cast(B.binary(O.SHR, word, const(32 - bits, dt.uint32)), dt.float32)
    return B.cast(B.binary(O.MUL, whole, const(2.0**-bits, dt.float32)), dtype)


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    sizes = shape_of(shape)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"sizes are 0 or more, got {sizes}")
    return sizes


def rand(
    *shape: Any, dtype: Any = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """Uniform numbers from 0 up to but not including 1."""
    sizes, kind = _sizes(shape), dt.float32 if dtype is None else dtype_of(dtype)
    where = device_name(device) or default_device()
    if kind.kind == "c":  # each part is uniform
        return _complex(rand, sizes, kind, where, generator)
    if 0 in sizes:
        return wrap(B.full(sizes, 0, kind), where)
    word, other = _words(prod(sizes), where, generator)
    return wrap(B.reshape(_unit(word, other, kind), sizes), where)


def _complex(
    draw: Any, sizes: tuple[int, ...], kind: DType, where: str, generator: Generator | None
) -> Tensor:
    """Complex numbers whose two parts are drawn one after the other."""
    options = {"dtype": dt.FLOATS_OF[kind], "device": where, "generator": generator}
    return joined(draw(sizes, **options), draw(sizes, **options))


def randn(
    *shape: Any, dtype: Any = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """Normal numbers with mean 0 and standard deviation 1 (Box-Muller)."""
    sizes, kind = _sizes(shape), dt.float32 if dtype is None else dtype_of(dtype)
    where = device_name(device) or default_device()
    if kind.kind == "c":  # of complex numbers the variance is that of both parts together
        return _complex(randn, sizes, kind, where, generator) * 0.5**0.5
    if kind.kind != "f":
        raise DTypeError(f"normal numbers are floats, not {kind.name}")
    if 0 in sizes:
        return wrap(B.full(sizes, 0, kind), where)
    wide = kind if kind.bits >= 32 else dt.float32
    word, other = _words(prod(sizes), where, generator)
    # float64 reads all bits of both words in each of its two uniform numbers, in other order.
    radius = 1 - wrap(_unit(word, other, wide), where)
    angle = wrap(_unit(other, word, wide), where) * (2 * pi)
    found = (radius.log() * -2).sqrt() * angle.cos()
    return found.reshape(sizes).cast(kind)


def randint(
    low: int,
    high: int | Sequence[int] | None = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: str | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Whole numbers from low up to but not including high: ``randint(0, 10, (2, 3))``."""
    if size is None:  # randint(high, size)
        if high is None:
            raise ShapeError("randint needs a size: randint(low, high, size)")
        low, high, size = 0, low, high
    first, last = integer(low, "low"), integer(high, "high")
    if last <= first:
        raise ShapeError(f"randint: high {last} must be above low {first}")
    sizes, kind = _sizes((size,)), dt.int64 if dtype is None else dtype_of(dtype)
    where = device_name(device) or default_device()
    if 0 in sizes:
        return wrap(B.full(sizes, 0, kind), where)
    word, other = _words(prod(sizes), where, generator)
    span = last - first
    wide = B.cast(word, dt.uint64)
    if span <= 1 << 32:
        scaled = B.binary(O.MUL, wide, const(span, dt.uint64))
        found = B.binary(O.SHR, scaled, const(32, dt.uint64))
    else:
        both = B.binary(O.SHL, wide, const(32, dt.uint64))
        both = B.binary(O.OR, both, B.cast(other, dt.uint64))
        found = B.binary(O.MOD, both, const(span, dt.uint64)) if span < 1 << 64 else both
    number = wrap(B.reshape(B.cast(found, dt.int64), sizes), where)
    return (number + first).cast(kind)


def rand_like(x: Tensor, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Uniform numbers with the shape, dtype and device of another tensor."""
    kind = x.dtype if x.dtype.kind in "fc" else dt.float32
    return rand(x.shape, dtype=dtype or kind, device=device or x._device)


def randn_like(x: Tensor, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Normal numbers with the shape, dtype and device of another tensor."""
    kind = x.dtype if x.dtype.kind in "fc" else dt.float32
    return randn(x.shape, dtype=dtype or kind, device=device or x._device)


def randint_like(input: Tensor, low: int, high: int | None = None, *, dtype: Any = None) -> Tensor:
    """Whole numbers with the shape, dtype and device of another tensor, up to below high."""
    first, last = (0, low) if high is None else (low, high)
    kind = input.dtype if dtype is None else dtype_of(dtype)
    return randint(first, last, input.shape, device=input._device).cast(kind)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    """Normal numbers with a mean and a standard deviation, each a number or a tensor."""
    tensors = [v for v in (mean, std) if isinstance(v, Core)]
    if not isinstance(std, Core):
        check_deviation(std)
    shape = B.broadcast_shapes(*[t.shape for t in tensors]) if size is None else _sizes((size,))
    if tensors:  # torch takes the dtype of the mean, of the deviation where that is a number
        options = {"dtype": tensors[0].dtype, "device": tensors[0].device} | options
    found = randn(shape, **options)
    return (found * std + mean).cast(found.dtype)


def bernoulli(p: Any, **options: Any) -> Tensor:
    """1 with the probability that each element says, else 0."""
    if isinstance(p, (int, float)) and not 0 <= p <= 1:
        raise ShapeError(f"bernoulli: p is a probability, not {p}")
    chance = tensor_of(p)
    return (rand(chance.shape, device=chance._device, **options) < chance).cast(chance.dtype)


def randperm(
    n: int, *, dtype: Any = None, device: str | None = None, generator: Generator | None = None
) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    count = integer(n, "n")
    kind = dt.int64 if dtype is None else dtype_of(dtype)
    where = device_name(device) or default_device()
    if count <= 1:
        return wrap(B.full((count,), 0, kind), where)
    word, _ = _words(count, where, generator)
    return wrap(word, where).argsort(0).cast(kind)


def multinomial(weights: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    """Positions of the last axis drawn with these weights."""
    count = integer(num_samples, "num_samples")
    if count < 1:
        raise ShapeError(f"multinomial draws at least 1 sample, not {count}")
    if weights.dtype.kind != "f":
        raise DTypeError(f"multinomial takes weights of floats, not {weights.dtype.name}")
    if weights.ndim not in (1, 2):
        raise ShapeError(f"multinomial needs 1 or 2 axes of weights, not {weights.shape}")
    if not replacement or count == 1:
        # Exponential races: the smallest of e / w is drawn with probability w / sum(w).
        race = -(1 - rand_like(weights)).log() / weights
        return select(weights > 0, race, float("inf")).topk(count, -1, largest=False).indices
    total = weights.cumsum(-1)
    goal = rand(*weights.shape[:-1], count, device=weights._device) * total[..., -1:]
    return (total.unsqueeze(-2) <= goal.unsqueeze(-1)).sum(-1).clamp(max=weights.shape[-1] - 1)


class Random(Core):
    """The random creators as static methods of Tensor, and in-place fills."""

    __slots__ = ()

    rand = staticmethod(rand)
    randn = staticmethod(randn)
    randint = staticmethod(randint)
    randperm = staticmethod(randperm)
    manual_seed = staticmethod(manual_seed)

    def rand_like(self: Tensor, **options: Any) -> Tensor:
        """Uniform numbers with the shape, dtype and device of this tensor."""
        return rand_like(self, **options)

    def randn_like(self: Tensor, **options: Any) -> Tensor:
        """Normal numbers with the shape, dtype and device of this tensor."""
        return randn_like(self, **options)

    def bernoulli(self: Tensor) -> Tensor:
        """1 with the probability that each element says, else 0."""
        return bernoulli(self)

    def multinomial(self: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
        """Positions of the last axis drawn with these weights."""
        return multinomial(self, num_samples, replacement)

    def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
        """In place: uniform numbers from a to b."""
        check_range(a, b)
        start = a if self.dtype.kind != "c" else complex(a, a)  # each part is uniform
        return self.become(rand_like(self) * (b - a) + start)

    def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """In place: normal numbers."""
        check_deviation(std)
        return self.become(randn_like(self) * std + mean)

    def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
        """In place: numbers whose logarithms are normal."""
        _positive(std, "std")
        return self.become((randn_like(_floats(self)) * std + mean).exp())

    def exponential_(self: Tensor, lambd: float = 1.0) -> Tensor:
        """In place: waiting times with this rate."""
        _positive(lambd, "lambd")
        return self.become((-rand_like(_floats(self))).log1p() * (-1 / lambd))

    def geometric_(self: Tensor, p: float) -> Tensor:
        """In place: how many tries it takes, each with the chance p."""
        if not 0 < p < 1:
            raise ShapeError(f"geometric_: p is between 0 and 1, not {p}")
        tries = (-rand(self.shape, device=self._device)).log1p() * (1 / log1p(-p))
        return self.become(tries.ceil().clamp(1).cast(self.dtype))

    def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
        """In place: numbers of a Cauchy distribution."""
        _positive(sigma, "sigma")
        return self.become(((rand_like(_floats(self)) - 0.5) * pi).tan() * sigma + median)

    def random_(self: Tensor, from_: int = 0, to: int | None = None) -> Tensor:
        """In place: whole numbers from 0 or ``from_`` up to below ``to``.

        With one argument that is ``to``; without, all whole numbers that the dtype holds exactly.
        """
        if to is None and from_:
            from_, to = 0, from_
        if to is None:
            to = _whole_numbers(self.dtype)
        return self.become(randint(from_, to, self.shape, device=self._device).cast(self.dtype))


def check_deviation(std: float) -> None:
    """Refuse a standard deviation below zero."""
    if not std >= 0:
        raise ShapeError(f"a standard deviation is 0 or more, not {std}")


def check_range(a: float, b: float) -> None:
    """Refuse a range that ends before it begins."""
    if not a <= b:
        raise ShapeError(f"uniform numbers from {a} to {b}: the end is below the beginning")


def _positive(value: float, name: str) -> None:
    if not value > 0:
        raise ShapeError(f"{name} is above 0, not {value}")


def _floats(x: Tensor) -> Tensor:
    if x.dtype.kind != "f":
        raise DTypeError(f"these numbers are floats, the tensor is {x.dtype.name}")
    return x


def _whole_numbers(dtype: DType) -> int:
    """How many whole numbers from 0 on a dtype holds exactly, as far as randint reaches."""
    if dtype.kind == "b":
        return 2
    if dtype.kind == "f":
        return int(2 / finfo(dtype).eps) + 1
    return min(int(iinfo(dtype).max), 2**63 - 2) + 1


guard_class(Generator, "__init__", "manual_seed")
