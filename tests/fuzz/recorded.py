"""Random functions with several results, recorded and not: results, arguments and state are equal.

``python -m tests.fuzz.recorded 0 20000`` runs the functions of these seeds and prints those that
differ. A function reads and changes its arguments and tensors outside, which have memory or not,
and gives back values, views, arguments, constants and parts without elements, some of them twice.
It is called three times; arguments may be lazy, arrays, or donated.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
from svod import Tensor

CALLS = 3
FIRST = np.arange(6, dtype=np.float32).reshape(2, 3)
SECOND = np.arange(4, dtype=np.float32) + 0.5
Pick = Callable[[list[Any]], Any]


def put_row(t: Tensor) -> Tensor:
    if t.ndim:
        t[0] = 3.0
    return t


def changed(t: Tensor) -> Tensor:
    t += 1
    return t


# Each step is given a value, a way to pick from a list, all values, arguments, tensors outside.
STEPS: list[Callable[[Tensor, Pick, list[Any], list[Any], list[Any]], Tensor]] = [
    lambda x, pick, v, a, o: x + pick([1.0, 2.0, 0.0]),
    lambda x, pick, v, a, o: 1 + x,
    lambda x, pick, v, a, o: x * pick([1.0, 3.0, 0.0]),
    lambda x, pick, v, a, o: -x,
    lambda x, pick, v, a, o: x.reshape(-1),
    lambda x, pick, v, a, o: x.reshape(1, -1),
    lambda x, pick, v, a, o: x.T if x.ndim == 2 else x * 1,
    lambda x, pick, v, a, o: x[:1] if x.ndim else x,
    lambda x, pick, v, a, o: x.sum(),
    lambda x, pick, v, a, o: svod.cat([x.reshape(-1), pick(v).reshape(-1)]),
    lambda x, pick, v, a, o: x.reshape(-1)[0:0],
    lambda x, pick, v, a, o: svod.ones(2, 3),
    lambda x, pick, v, a, o: x.bitcast(svod.int32).bitcast(svod.float32),
    lambda x, pick, v, a, o: svod.where(x > 1, x, x),
    lambda x, pick, v, a, o: x.detach(),
    lambda x, pick, v, a, o: x.sum() + pick(o),
    lambda x, pick, v, a, o: pick(o) * 1,
    lambda x, pick, v, a, o: changed(pick(a)),
    lambda x, pick, v, a, o: changed(pick(o)),
    lambda x, pick, v, a, o: put_row(pick(o)),
    lambda x, pick, v, a, o: pick(o).assign(pick(o).sum() * 0 + x.sum()).realize() + 0,
    lambda x, pick, v, a, o: pick(o).zero_().realize() + x.sum(),
]


def run(seed: int, arguments: list[Any], outside: list[Any]) -> tuple[Any, ...]:
    """The function of a seed; the same steps with whatever it is given."""
    rng = random.Random(seed)

    def pick(choices: list[Any]) -> Any:
        return choices[rng.randrange(len(choices))]

    values = list(arguments)
    for _ in range(rng.randint(1, 6)):
        values.append(pick(STEPS)(pick(values), pick, values, arguments, outside))
    return tuple([pick(values if rng.random() < 0.8 else arguments) for _ in range(4)])


def difference(seed: int) -> str:
    """What differs between the function and the recorded one, or nothing."""
    rng = random.Random(-seed - 1)
    is_lazy, is_array = rng.random() < 0.4, rng.random() < 0.2
    donate = () if is_array else rng.choice([(), (), 0, 1, (0, 1)])

    def outside() -> list[Any]:
        other = Tensor(FIRST[0]) * 2 + 0.5
        return [Tensor(FIRST + 2).realize(), other if is_lazy else other.realize()]

    def arguments(call: int) -> list[Any]:
        second = Tensor(SECOND + call) + 0.5
        first = FIRST * (call + 1)
        return [first if is_array else Tensor(first).realize(), second]

    plain, kept = outside(), outside()
    f = svod.jit(lambda a, b: run(seed, [a, b], kept), donate=donate)
    for call in range(CALLS):
        given, used = [Tensor(a) for a in arguments(call)], arguments(call)
        wanted = [t.numpy() for t in run(seed, given, plain)]
        pairs = list(zip([t.numpy() for t in f(*used)], wanted, strict=True))
        pairs += [(a.numpy(), b.numpy()) for a, b in zip(kept, plain, strict=True)]
        if donate == () and not is_array:
            pairs += [(a.numpy(), b.numpy()) for a, b in zip(used, given, strict=True)]
        for place, (a, b) in enumerate(pairs):
            if a.shape != b.shape or not np.array_equal(a, b):
                return f"call {call}, value {place}: {a.tolist()}, not {b.tolist()}"
    return ""


def main() -> None:
    first, last = (int(a) for a in sys.argv[1:3])
    count = 0
    for seed in range(first, last):
        try:
            found = difference(seed)
        except Exception as error:
            found = repr(error)
        if found:
            count += 1
            print(f"seed {seed}: {found}")
    print(f"{last - first} functions, {count} differ")


if __name__ == "__main__":
    main()
