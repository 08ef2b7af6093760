"""Random programs over tensors that show each other's elements, beside arrays that do.

``python -m tests.fuzz.aliases 0 20000`` runs the programs of these seeds, on the device that is
named last if one is, and prints those that differ. A program makes tensors, views, copies and
values, writes to them in every way there is, realises some, calls recorded functions, drops names,
and compares at the end and now and then.
NumPy's views are the model: they share memory as torch's do. Numbers are small and whole, so that
all results are exact.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
from svod import Tensor

STEPS = 30
MOST = 12  # tensors that have a name at one time
LIMIT = 4096.0  # larger numbers begin again
SHAPES = ((6,), (3, 4), (4, 4), (2, 3, 4), (2, 2, 3), (1, 5), ())
Array = np.ndarray[Any, Any]
Pair = tuple[Tensor, Array]


def _grow(x: Tensor) -> Tensor:
    x += 1
    return x * 2


def _put(x: Tensor) -> Tensor:
    x.reshape(-1)[0] = 3.0
    return x.sum()


def _swap(x: Tensor, y: Tensor) -> Tensor:
    held = x + 0
    x.copy_(y)
    y.copy_(held + 1)
    return x - y


class Program:
    """Tensors by the arrays they have to equal."""

    def __init__(self, seed: int, device: str | None = None) -> None:
        self.draw = random.Random(seed)
        self.device = device
        self.pairs: list[Pair] = []
        self.recorded = {f: svod.jit(f) for f in (_grow, _put, _swap)}
        self.captured: list[tuple[Callable[[Tensor], Tensor], Tensor, Array]] = []
        self.log: list[str] = []
        for _ in range(2):
            self.make()
        names = [n for n in vars(Program) if n[:3] in ("do_", "to_")]
        self.actions = [getattr(self, n) for n in names]

    def run(self, steps: int = STEPS) -> None:
        """Take the steps, and compare at the end."""
        for _ in range(steps):
            self.step()
        self.check()

    def step(self) -> None:
        """One action on tensors drawn at random."""
        action = self.draw.choice(self.actions)
        one = self.draw.randrange(len(self.pairs))
        self.log.append(f"{action.__name__} {one}{self.pairs[one][1].shape}")
        made = action(*self.pairs[one])
        if made is not None:
            self.pairs.append(made)
        if len(self.pairs) > MOST:
            self.pairs.pop(self.draw.randrange(len(self.pairs)))
        if any(np.abs(a).max(initial=0) > LIMIT for _, a in self.pairs):
            self.check()
            self.pairs.clear()
            self.captured.clear()
            self.make()
        if not self.draw.randrange(8):
            self.check_one(self.draw.choice(self.pairs))

    def check(self) -> None:
        """Every tensor equals its array."""
        for pair in self.pairs:
            self.check_one(pair)

    def check_one(self, pair: Pair) -> None:
        t, a = pair
        text = "; ".join(self.log)
        np.testing.assert_array_equal(t.numpy(), a, err_msg=text)

    # -- pieces --------------------------------------------------------------------------------

    def numbers(self, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape))
        found = np.array([self.draw.randrange(-4, 5) for _ in range(count)], np.float32)
        return found.reshape(shape)

    def make(self) -> None:
        a = self.numbers(self.draw.choice(SHAPES))
        t = Tensor(a, device=self.device)
        if self.draw.randrange(2):
            t = t * 2 - 1
            a = a * 2 - 1
        self.pairs.append((t, np.array(a)))

    def key(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        found: list[Any] = []
        for size in shape:
            if not size:
                break
            start = self.draw.randrange(size)
            stop = self.draw.randrange(start + 1, size + 1)
            whole, part = slice(None), slice(start, stop)
            backward, spread = slice(None, None, -1), slice(start, None, 2)
            found.append(self.draw.choice((start, start - size, whole, part, backward, spread)))
        return tuple(found[: self.draw.randrange(len(found) + 1)])

    def other(self, shape: tuple[int, ...]) -> Pair:
        """A tensor of this shape: one there is, or a new one."""
        fits = [p for p in self.pairs if p[1].shape == shape]
        if fits and self.draw.randrange(3):
            return self.draw.choice(fits)
        a = self.numbers(shape)
        return Tensor(a, device=self.device), a

    def is_writable(self, a: Array) -> bool:
        """NumPy refuses to write to what is stretched, and so does a tensor."""
        return bool(a.flags.writeable)

    # -- views ---------------------------------------------------------------------------------

    def to_part(self, t: Tensor, a: Array) -> Pair:
        key = self.key(a.shape)
        return t[key], a[(*key, ...)]

    def to_transposed(self, t: Tensor, a: Array) -> Pair:
        axes = tuple(self.draw.sample(range(a.ndim), a.ndim))
        return t.permute(*axes) if axes else t.T, a.transpose(axes)

    def to_reshaped(self, t: Tensor, a: Array) -> Pair | None:
        n = a.size
        if not n:
            return None
        sizes = [s for s in range(1, n + 1) if n % s == 0]
        first = self.draw.choice(sizes)
        shape = self.draw.choice([(n,), (first, n // first), (n // first, 1, first)])
        return t.reshape(shape), a.reshape(shape)

    def to_unsqueezed(self, t: Tensor, a: Array) -> Pair:
        axis = self.draw.randrange(a.ndim + 1)
        return t.unsqueeze(axis), np.expand_dims(a, axis)

    def to_squeezed(self, t: Tensor, a: Array) -> Pair:
        return t.squeeze(), a.squeeze()[...]

    def to_diagonal(self, t: Tensor, a: Array) -> Pair | None:
        if a.ndim < 2:
            return None
        offset = self.draw.randrange(-1, 2)
        found = t.diagonal(offset, a.ndim - 2, a.ndim - 1)
        model = a.diagonal(offset, a.ndim - 2, a.ndim - 1)
        model.flags.writeable = a.flags.writeable
        return found, model

    def to_pieces(self, t: Tensor, a: Array) -> Pair | None:
        if not a.ndim or a.shape[0] < 2:
            return None
        i = self.draw.randrange(2)
        kind = self.draw.randrange(3)
        if kind == 0:
            return t.unbind(0)[i], a[i, ...]
        if kind == 1:
            return t.split(1)[i], a[i : i + 1]
        return t.chunk(2)[0], a[: -(-a.shape[0] // 2)]

    def to_detached(self, t: Tensor, a: Array) -> Pair:
        return (t.detach() if self.draw.randrange(2) else t.data), a[...]

    def to_expanded(self, t: Tensor, a: Array) -> Pair | None:
        if a.ndim > 2:
            return None
        return t.expand(2, *a.shape), np.broadcast_to(a, (2, *a.shape))

    # -- values --------------------------------------------------------------------------------

    def to_copy(self, t: Tensor, a: Array) -> Pair:
        return t.clone(), a.copy()

    def to_flipped(self, t: Tensor, a: Array) -> Pair | None:
        return (t.flip(0), np.flip(a, 0).copy()) if a.ndim else None

    def to_gathered(self, t: Tensor, a: Array) -> Pair | None:
        return (t[[0, 0]], a[[0, 0]].copy()) if a.ndim and a.shape[0] else None

    def to_value(self, t: Tensor, a: Array) -> Pair:
        u, b = self.other(a.shape)
        return t + u * 2, np.ascontiguousarray(a + b * 2).reshape(a.shape)

    def to_contiguous(self, t: Tensor, a: Array) -> Pair:
        found = a[...] if a.flags.c_contiguous else np.ascontiguousarray(a)
        return t.contiguous(), found

    # -- writes --------------------------------------------------------------------------------

    def do_put(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            key = self.key(a.shape)
            t[key] = a[key] = float(self.draw.randrange(-3, 4))

    def do_put_other(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            u, b = self.other(a.shape)
            key = self.key(a.shape)
            t[key] = u[key] + 1
            a[key] = b[key] + 1

    def do_put_rows(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a) and a.ndim and a.shape[0] > 1:
            t[[1, 0]] = 2.0
            a[[1, 0]] = 2.0

    def do_add(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            u, b = self.other(a.shape)
            t += u
            a += b.copy()

    def do_add_to_part(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            key = self.key(a.shape)
            t[key] += 1
            a[key] += 1

    def do_copy(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            u, b = self.other(a.shape)
            t.copy_(u)
            a[...] = b.copy()

    def do_assign(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            u, b = self.other(a.shape)
            t.assign(u * 2)
            a[...] = b * 2

    def do_fill(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a):
            t.fill_(2.0)
            a[...] = 2.0

    def do_iterate(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a) and a.ndim == 2:
            for row in t:
                row.mul_(-1)
            a *= -1

    def do_copyin(self, t: Tensor, a: Array) -> None:
        if self.is_writable(a) and a.size:
            new = self.numbers(a.shape)
            t.copyin(new)
            a[...] = new

    # -- when things happen --------------------------------------------------------------------

    def do_realize(self, t: Tensor, a: Array) -> None:
        t.realize()

    def do_realize_several(self, t: Tensor, a: Array) -> None:
        svod.realize(t, self.draw.choice(self.pairs)[0])

    def do_forget(self, t: Tensor, a: Array) -> None:
        if len(self.pairs) > 2:
            self.pairs.pop(self.draw.randrange(len(self.pairs)))

    # -- recorded functions --------------------------------------------------------------------

    def to_grown(self, t: Tensor, a: Array) -> Pair | None:
        if not self.is_writable(a) or not a.size:
            return None
        found = self.recorded[_grow](t)
        a += 1
        return found, np.ascontiguousarray(a * 2).reshape(a.shape)

    def to_first_put(self, t: Tensor, a: Array) -> Pair | None:
        if not self.is_writable(a) or not a.size:
            return None
        found = self.recorded[_put](t)
        flat = a.reshape(-1)
        flat[0] = 3.0  # a copy where the rows are not one line, as in torch
        return found, np.asarray(a.sum(), np.float32).copy()

    def to_swapped(self, t: Tensor, a: Array) -> Pair | None:
        u, b = self.other(a.shape)
        if not self.is_writable(a) or not self.is_writable(b) or not a.size:
            return None
        found = self.recorded[_swap](t, u)
        held = a.copy()
        a[...] = b.copy()
        b[...] = held + 1
        return found, np.ascontiguousarray(a - b).reshape(a.shape)

    def do_capture(self, t: Tensor, a: Array) -> None:
        """Record a function that writes to this tensor, which is no argument of it."""
        if not self.is_writable(a) or not a.ndim or not a.size:
            return
        kind = self.draw.randrange(3)

        def write(x: Tensor) -> Tensor:
            if kind == 0:
                t.add_(x)
            elif kind == 1:
                t[0] = x
            else:
                t[0:1].assign(x.expand(t[0:1].shape))
            return t * 2

        self.captured = [*self.captured[-2:], (svod.jit(write), t, a, kind)]  # type: ignore[list-item]

    def to_captured(self, t: Tensor, a: Array) -> Pair | None:
        if not self.captured:
            return None
        write, _, b, kind = self.draw.choice(self.captured)  # type: ignore[misc]
        value = float(self.draw.randrange(-3, 4))
        found = write(Tensor(value, device=self.device) + 0)
        if kind == 0:
            b += value
        else:
            b[0:1] = value
        return found, np.ascontiguousarray(b * 2).reshape(b.shape)


def main(first: int, last: int, device: str | None = None) -> int:
    """Run the programs of these seeds; the number of those that differ."""
    wrong = 0
    for seed in range(first, last):
        program = Program(seed, device)
        try:
            program.run()
        except Exception as error:
            wrong += 1
            shown = str(error).strip().splitlines()
            print(f"program {seed}: {type(error).__name__}: {shown[-1] if shown else ''}"[:300])
            print("   " + "; ".join(program.log)[-600:], flush=True)
        if seed % 500 == 499:
            print(f"{seed + 1 - first} programs, {wrong} differ", flush=True)
    print(f"seeds {first} to {last}: {wrong} of {last - first} programs differ")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4]) > 0)
