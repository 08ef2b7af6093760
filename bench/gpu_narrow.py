"""Products of bytes, 8-bit floats and tf32 in every layout: ``python bench/gpu_narrow.py``.

Checked against float64 or integers and compared with torch in the same run: torch._int_mm,
torch.matmul with allow_tf32, and torch._scaled_mm, which only has the layout along the summed axis.
"a" and "b" name the factors whose memory is turned. An error of 0 is exact.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from gpu_harness import Array, Bench, rate

import svod
from svod import Tensor
from svod.base.knobs import knobs

RNG = np.random.default_rng(17)
HEAD = 32  # rows that are checked
LAYOUTS = ("", "a", "b", "ab")
Peer = Callable[[], object]


def drawn(kind: str, *shape: int) -> Array:
    if kind == "int8":
        return RNG.integers(-128, 128, shape).astype(np.int8)
    values = RNG.standard_normal(shape, np.float32)
    return values.astype(ml_dtypes.float8_e4m3fn) if kind == "float8" else values


def factors(kind: str, m: int, n: int, k: int, turned: str) -> tuple[Array, Array]:
    a = drawn(kind, *((k, m) if "a" in turned else (m, k)))
    b = drawn(kind, *((n, k) if "b" in turned else (k, n)))
    return a, b


def laid(x: Any, y: Any, turned: str) -> tuple[Any, Any]:
    return x.T if "a" in turned else x, y.T if "b" in turned else y


def first_rows(kind: str, a: Array, b: Array, turned: str) -> Array:
    """The first rows of the exact product."""
    x, y = laid(a, b, turned)
    wide = np.float64  # integers stay exact: their sums are below 2**53
    found: Array = x[:HEAD].astype(wide) @ y.astype(wide)
    return found


def peer_of(bench: Bench, kind: str, a: Array, b: Array, turned: str) -> tuple[Peer | None, str]:
    """The same product in torch, or the nearest it has."""
    torch = bench.torch
    if torch is None:
        return None, ""
    if kind == "float8":
        raw = [torch.from_numpy(t.view(np.uint8)).cuda().view(torch.float8_e4m3fn) for t in (a, b)]
        x, y = laid(*raw, turned)
        x = x.view(torch.uint8).contiguous().view(torch.float8_e4m3fn)
        y = y.view(torch.uint8).T.contiguous().T.view(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")

        def scaled() -> Any:
            return torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        return usable(scaled), "along k"
    x, y = laid(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), turned)
    if kind == "float32":
        torch.backends.cuda.matmul.allow_tf32 = True
        return usable(lambda: x @ y), ""
    found = usable(lambda: torch._int_mm(x, y))
    if found is not None:
        return found, ""
    x, y = x.contiguous(), y.T.contiguous().T
    return usable(lambda: torch._int_mm(x, y)), "along k"


def usable(run: Peer) -> Peer | None:
    """The peer, unless it refuses the shapes."""
    try:
        run()
    except RuntimeError as problem:
        print(f"  torch: {str(problem).splitlines()[0][:100]}")
        return None
    return run


def case(bench: Bench, kind: str, size: tuple[int, int, int], turned: str, cores: str) -> None:
    m, n, k = size
    a, b = factors(kind, m, n, k, turned)
    result = {"int8": svod.int32, "float32": svod.float32, "float8": svod.bfloat16}[kind]
    x, y = laid(Tensor(a, device="CUDA").realize(), Tensor(b, device="CUDA").realize(), turned)
    wanted = first_rows(kind, a, b, turned)
    peer, remark = peer_of(bench, kind, a, b, turned)
    with knobs.scope(tensor_cores=cores, tf32=True):
        bench.case(
            f"{kind} {m}x{n}x{k} {turned or '-'} {cores}", x.matmul(y, dtype=result),
            lambda f: (f[:HEAD], wanted), peer, None, 0.0,
            note=lambda ms: f"{rate(2.0 * m * n * k)(ms)} {remark}",
        )  # fmt: skip


def full_case(bench: Bench, size: int) -> None:
    """8-bit floats with sums in full: the tensor cores of one warp."""
    a, b = factors("float8", size, size, size, "b")
    x, y = laid(Tensor(a, device="CUDA").realize(), Tensor(b, device="CUDA").realize(), "b")
    wanted = first_rows("float8", a, b, "b")
    bench.case(
        f"float8 {size} in full", x.matmul(y, dtype=svod.float32),
        lambda f: (f[:HEAD], wanted), None, None, 0.0, note=rate(2.0 * size**3),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--no-torch", action="store_true", help="no comparison")
    options = parser.parse_args()
    bench = Bench(not options.no_torch, False)
    n = options.size
    for kind in ("int8", "float32", "float8"):
        for cores in ("auto", "mma"):
            for turned in LAYOUTS if cores == "auto" else ("", "b"):
                case(bench, kind, (n, n, n), turned, cores)
        case(bench, kind, (1000, 1111, 777), "", "auto")
        case(bench, kind, (1024, 1024, 1024), "", "auto")
    full_case(bench, n)
    return int(any(r.complaint for r in bench.results))


if __name__ == "__main__":
    sys.exit(main())
