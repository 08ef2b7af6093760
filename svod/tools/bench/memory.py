"""Kernels that wait for memory, against torch with `out=` and two threads, and NumPy.

Each side has arrays from its own allocator, and both run in turn in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import svod
from svod.tools.bench.bar import Case, Line, at_least, peer, times
from svod.tools.bench.measure import alternate
from svod.tools.report import duration

ELEMENTS = 16 << 20  # 64 MB of float32
Array = npt.NDArray[np.float32]


def compare(
    name: str,
    limit: float,
    arrays: list[Array],
    ours: Callable[..., Any],
    theirs: dict[str, Callable[[Any, list[Any]], object]],
    expected: Callable[..., Any],
    numpys: Callable[..., Any] | None = None,
) -> Iterator[Line]:
    """Our function against the quickest of theirs; `theirs` take an output and torch's tensors."""
    torch = peer("torch")
    torch.set_num_threads(2)
    output = ours(*[svod.Tensor(array) for array in arrays])
    plan = output.prepare()
    tensors = [torch.from_numpy(array).clone() for array in arrays]
    result = torch.empty(tuple(output.shape))
    contenders: dict[str, Callable[[], object]] = {"ours": plan.execute}
    for title, call in theirs.items():
        contenders[title] = partial(call, result, tensors)
    if numpys is not None:
        contenders["numpy"] = partial(numpys, *arrays)
    with torch.no_grad():
        rounds = alternate(contenders)
    if not np.allclose(output.numpy(), expected(*arrays), rtol=1e-4, atol=1e-5):
        raise RuntimeError(f"{name} differs from NumPy")
    best = min([title for title in contenders if title != "ours"], key=rounds.median)
    moved = sum(array.nbytes for array in arrays) + output.nbytes
    note = f"{duration(rounds.median('ours'))} ({moved / rounds.median('ours') / 1e9:.1f} GB/s)"
    note += f", {best} {duration(rounds.median(best))}"
    against = "torch" if numpys is None else "the best peer"
    yield at_least(f"{name}, speed / {against}", rounds.speed("ours", best), limit, times, note)


def multiply_add() -> Iterator[Line]:
    """a*b+c; torch may use the fused addcmul."""
    torch = peer("torch")
    theirs: dict[str, Callable[[Any, list[Any]], object]] = {
        "torch addcmul": lambda out, t: torch.addcmul(t[2], t[0], t[1], out=out),
        "torch mul, add": lambda out, t: torch.add(torch.mul(t[0], t[1], out=out), t[2], out=out),
    }
    arrays = [normal(seed) for seed in range(3)]

    def formula(a: Any, b: Any, c: Any) -> Any:
        return a * b + c

    return compare("a*b+c over 64 MB", 0.9, arrays, formula, theirs, formula)


def total() -> Iterator[Line]:
    """The sum of all elements."""
    torch = peer("torch")
    theirs: dict[str, Callable[[Any, list[Any]], object]] = {
        "torch": lambda out, t: torch.sum(t[0], dim=0, out=out)
    }

    def exact(a: Array) -> Any:
        return a.sum(dtype=np.float64)

    arrays = [normal(0) + np.float32(1)]  # away from zero, so that the sum is well conditioned
    return compare("sum over 64 MB", 0.9, arrays, lambda a: a.sum(), theirs, exact)


def columns() -> Iterator[Line]:
    """Sums down the columns of a square matrix, which lie far apart in memory."""
    theirs: dict[str, Callable[[Any, list[Any]], object]] = {
        "torch": lambda out, t: peer("torch").sum(t[0], dim=0, out=out)
    }

    def exact(a: Array) -> Any:
        return a.sum(0, dtype=np.float64)

    arrays = [normal(0).reshape(4096, 4096) + np.float32(1)]
    return compare(
        "sum of the columns of 64 MB", 1.5, arrays, lambda a: a.sum(0), theirs, exact,
        lambda a: a.sum(0),
    )  # fmt: skip


def transposed() -> Iterator[Line]:
    """A transposed copy of a square matrix, and images with their channels moved last."""
    theirs: dict[str, Callable[[Any, list[Any]], object]] = {
        "torch": lambda out, t: out.copy_(t[0].T)
    }
    yield from compare(
        "transposed copy of 1024²", 1.0, [normal(0)[: 1 << 20].reshape(1024, 1024)],
        lambda a: a.permute(1, 0).contiguous(), theirs, lambda a: a.T,
        lambda a: np.ascontiguousarray(a.T),
    )  # fmt: skip
    theirs = {"torch": lambda out, t: out.copy_(t[0].permute(0, 2, 3, 1))}
    images = normal(0)[: 8 * 64 * 56 * 56].reshape(8, 64, 56, 56)
    yield from compare(
        "channels last, 8×64×56²", 1.0, [images],
        lambda a: a.permute(0, 2, 3, 1).contiguous(), theirs,
        lambda a: a.transpose(0, 2, 3, 1), lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)),
    )  # fmt: skip


def exponential() -> Iterator[Line]:
    """exp of every element."""
    return unary("exp")


def hyperbolic_tangent() -> Iterator[Line]:
    """tanh of every element."""
    return unary("tanh")


def unary(name: str) -> Iterator[Line]:
    """A function of every element."""
    called = getattr(peer("torch"), name)
    theirs: dict[str, Callable[[Any, list[Any]], object]] = {
        "torch": lambda out, t: called(t[0], out=out)
    }
    return compare(
        f"{name} over 16M elements",
        1.5,
        [normal(0)],
        lambda a: getattr(a, name)(),
        theirs,
        getattr(np, name),
    )


def normal(seed: int) -> Array:
    """64 MB of normally distributed values."""
    return np.random.default_rng(seed).standard_normal(ELEMENTS, dtype=np.float32)


CASES = (
    Case("multiply_add", "a*b+c over 64 MB arrays, against torch", multiply_add),
    Case("sum", "the sum of 64 MB, against torch", total),
    Case("columns", "sums down the columns of 64 MB, against torch and NumPy", columns),
    Case("transposed", "transposed copies, against torch and NumPy", transposed),
    Case("exp", "exp of 16M elements, against torch", exponential),
    Case("tanh", "tanh of 16M elements, against torch", hyperbolic_tangent),
)
