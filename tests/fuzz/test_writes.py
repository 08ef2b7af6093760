"""Random programs that write: in-place forms, parts, assignments, copies and recorded functions.

Every tensor is a value. An array that NumPy copies wherever one tensor is made from another has to
show the same numbers, whatever was realised when. Views are not assigned through here: those share
memory.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor

BLOCK = 25
PROGRAMS = 75
STEPS = 40
SHAPES = ((3, 4), (5,), (2, 3, 4), (4, 4))
Pair = tuple[Tensor, Any]


def _part(draw: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for size in shape:
        start = draw.randrange(size)
        stop = draw.randrange(start + 1, size + 1)
        kinds = (start, start - size, slice(None), slice(start, stop), slice(None, None, -1))
        found.append(draw.choice((*kinds, slice(start, None, 2))))
    return tuple(found[: draw.randrange(len(shape) + 1)])


def _grow(x: Tensor) -> Tensor:
    x += 1
    return x * 2


def _swap(x: Tensor, y: Tensor) -> Tensor:
    held = x + 0
    x.copy_(y)
    y.copy_(held)
    return x - y


class Writes:
    """One program: pairs of a tensor and the array it has to equal."""

    def __init__(self, seed: int, has_views: bool) -> None:
        self.draw = random.Random(seed)
        self.grow, self.swap = svod.jit(_grow), svod.jit(_swap)
        self.pairs: list[Pair] = []
        shape = self.draw.choice(SHAPES)
        for _ in range(3):
            a = np.array([self.draw.randrange(-4, 5) for _ in range(int(np.prod(shape)))])
            array = a.reshape(shape).astype(np.float32)
            self.pairs.append((Tensor(array), array.copy()))
        names = "sum scaled put put_other grow_here realize copy several flip recorded swapped"
        self.actions = names.split() + (["part", "moved"] if has_views else ["assign"])

    def step(self) -> None:
        """One action, and smaller numbers where they have grown."""
        one, two = self.draw.choice(self.pairs), self.draw.choice(self.pairs)
        made = getattr(self, self.draw.choice(self.actions))(*one, *two)
        if made is not None:
            self.pairs.append((made[0], np.array(made[1])))
        if len(self.pairs) > 8:
            self.pairs.pop(self.draw.randrange(8))
        for i, (_, a) in enumerate(self.pairs):
            if np.abs(a).max(initial=0) > 1e5:
                self.pairs[i] = (Tensor(a % 7), np.array(a % 7))

    def sum(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair | None:
        return (t + u * 2, a + b * 2) if a.shape == b.shape else None

    def scaled(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair:
        return t.clip(-9, 9) * 3 - 1, np.clip(a, -9, 9) * 3 - 1

    def part(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair:
        place = _part(self.draw, a.shape)
        return t[place], a[place]

    def moved(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair | None:
        return (t.transpose(0, -1), a.swapaxes(0, -1)) if a.ndim > 1 else None

    def put(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        place = _part(self.draw, a.shape)
        t[place] = a[place] = float(self.draw.randrange(-3, 4))

    def put_other(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        if a.shape == b.shape:
            place = _part(self.draw, a.shape)
            t[place] = u[place] + 1
            a[place] = b[place].copy() + 1

    def grow_here(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        if a.shape == b.shape:
            t += u
            a += b.copy()

    def assign(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        if a.shape == b.shape:
            t.assign(u * 2)
            a[...] = b * 2

    def realize(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        t.realize()

    def several(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        svod.realize(t, u)

    def copy(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair:
        return t.clone(), a

    def flip(self, t: Tensor, a: Any, u: Tensor, b: Any) -> None:
        if a.ndim:
            t.copy_(t.flip(0))
            a[...] = a[::-1].copy()

    def recorded(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair:
        found = self.grow(t)
        a += 1
        return found, a * 2

    def swapped(self, t: Tensor, a: Any, u: Tensor, b: Any) -> Pair | None:
        if a.shape != b.shape or t is u:
            return None
        found = self.swap(t, u)
        a[...], b[...] = b.copy(), a.copy()
        return found, a - b


@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
@pytest.mark.parametrize("has_views", [False, True])
def test_programs_that_write_give_what_numpy_gives(has_views: bool, first: int) -> None:
    for seed in range(first, first + BLOCK):
        program = Writes(seed, has_views)
        for _ in range(STEPS):
            program.step()
        for t, a in program.pairs:
            np.testing.assert_array_equal(t.numpy(), a, err_msg=f"program {seed}")
