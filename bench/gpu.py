"""The bars of CUDA, measured by events and checked against float64: ``python bench/gpu.py``.

Every case runs as a prepared plan on one GPU. Beside it, where it is installed, torch runs the same
case eagerly and compiled, in the same process; otherwise the best time of the performance page is
used and marked "page". Ends with 1 where a value is off, a bar is missed or a group fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from gpu_convolutions import convolution_cases
from gpu_harness import (
    RNG,
    Array,
    Bench,
    Result,
    as_graph,
    bandwidth,
    error_of,
    gpu_ms,
    rate,
    rounded,
)
from gpu_models import llama_case
from gpu_ops import ops_cases
from gpu_training import training_cases

import svod
from svod.base.knobs import knobs
from svod.tensor.recording.realize import prepare


def memory_cases(b: Bench) -> None:
    """Copies, maps and reductions."""
    torch = b.torch
    n = 64 << 20
    arrays = [RNG.standard_normal(n, np.float32) for _ in range(4)]
    a, bb, c, d = (b.on_gpu(x) for x in arrays)
    ta, tb, tc, td = (b.for_torch(x) for x in arrays)
    part = slice(0, 1 << 20)

    def gelu64(x: Array) -> Array:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    big = svod.cat([a, bb, c, d], dim=0).contiguous().realize()
    tbig = None if torch is None else torch.cat([ta, tb, tc, td])
    b.case(
        "copy 1 GiB (negated)", -big,
        lambda f: (f[part], -arrays[0][part].astype(np.float64)),
        None if torch is None else lambda: tbig.clone(), 0.512, 0.95,
        note=bandwidth(2 * big.numel() * 4),
    )  # fmt: skip

    def chain(p: Any, q: Any, r: Any, s: Any) -> Any:
        return torch.nn.functional.gelu(p * q + r, approximate="tanh") * s

    wanted = [x[part].astype(np.float64) for x in arrays]
    b.case(
        "gelu chain 64 M", (a * bb + c).gelu(approximate="tanh") * d,
        lambda f: (f[part], gelu64(wanted[0] * wanted[1] + wanted[2]) * wanted[3]),
        None if torch is None else lambda: chain(ta, tb, tc, td), 0.362, 0.95,
        compiled=chain, arguments=(ta, tb, tc, td), note=bandwidth(5 * n * 4),
    )  # fmt: skip
    rows, columns = 16384, 8192
    source = np.concatenate(arrays[:2]).reshape(rows, columns)
    x = big.reshape(2, rows, columns)[0].contiguous().realize()
    tx = None if torch is None else tbig.reshape(2, rows, columns)[0].contiguous()
    nbytes = rows * columns * 4
    exact = source.sum(dtype=np.float64)
    scale = np.sqrt(source.size)  # of a sum of standard normal numbers
    b.case(
        "sum of all 128 M", x.sum(), lambda f: (f / scale + 1, np.array(exact / scale + 1)),
        None if torch is None else lambda: tx.sum(), 0.142, 0.95,
        compiled=lambda t: t.sum(), arguments=(tx,), note=bandwidth(nbytes),
    )  # fmt: skip
    b.case(
        "sum of rows", x.sum(1), lambda f: (f[:64], source[:64].sum(1, dtype=np.float64)),
        None if torch is None else lambda: tx.sum(1), 0.148, 0.95,
        compiled=lambda t: t.sum(1), arguments=(tx,), note=bandwidth(nbytes),
    )  # fmt: skip
    b.case(
        "sum of columns", x.sum(0), lambda f: (f[:64], source[:, :64].sum(0, dtype=np.float64)),
        None if torch is None else lambda: tx.sum(0), 0.135, 0.95,
        compiled=lambda t: t.sum(0), arguments=(tx,), note=bandwidth(nbytes),
    )  # fmt: skip
    head = source[:64].astype(np.float64)
    powers = np.exp(head - head.max(1, keepdims=True))
    b.case(
        "softmax 16384x8192", x.softmax(-1),
        lambda f: (f[:64], powers / powers.sum(1, keepdims=True)),
        None if torch is None else lambda: torch.softmax(tx, -1), 0.331, 0.95,
        compiled=lambda t: torch.softmax(t, -1), arguments=(tx,), note=bandwidth(2 * nbytes),
    )  # fmt: skip
    weight, bias = (RNG.standard_normal(columns, np.float32) for _ in range(2))
    w, v = b.on_gpu(weight), b.on_gpu(bias)
    tw, tv = b.for_torch(weight), b.for_torch(bias)
    norm = (head - head.mean(1, keepdims=True)) / np.sqrt(head.var(1, keepdims=True) + 1e-5)

    def layernorm(t: Any, p: Any, q: Any) -> Any:
        return torch.nn.functional.layer_norm(t, (columns,), p, q, 1e-5)

    b.case(
        "layernorm 16384x8192", x.layer_norm(columns, w, v, 1e-5),
        lambda f: (f[:64], norm * weight + bias),
        None if torch is None else lambda: layernorm(tx, tw, tv), 0.293, 0.95,
        compiled=layernorm, arguments=(tx, tw, tv), note=bandwidth(2 * nbytes),
    )  # fmt: skip


def matvec_case(b: Bench) -> None:
    n = 16384
    array = RNG.standard_normal((n, n), np.float32)
    vector = RNG.standard_normal(n, np.float32)
    x, y = b.on_gpu(array, "bfloat16"), b.on_gpu(vector, "bfloat16")
    tx, ty = b.for_torch(array, "bfloat16"), b.for_torch(vector, "bfloat16")
    head, exact = rounded(array[:256]), rounded(vector)
    b.case(
        "matvec 16384 bf16", x @ y, lambda f: (f[:256], head @ exact),
        None if b.torch is None else lambda: tx @ ty, 0.145, 0.95,
        compiled=lambda p, q: p @ q, arguments=(tx, ty), note=bandwidth(2 * n * n),
    )  # fmt: skip


def matmul_cases(b: Bench) -> None:
    cases = [
        ("float32", 4096, 4096, 4096, 2.77, 0.8), ("bfloat16", 4096, 4096, 4096, 0.187, 0.85),
        ("float16", 4096, 4096, 4096, 0.200, 0.85), ("float32", 1000, 1111, 777, None, 0.5),
        ("bfloat16", 1000, 1111, 777, None, 0.5), ("bfloat16", 1024, 1024, 1024, 0.022, 0.5),
    ]  # fmt: skip
    for dtype, m, n, k, page, bar in cases:
        p, q = RNG.standard_normal((m, k), np.float32), RNG.standard_normal((k, n), np.float32)
        x, y = b.on_gpu(p, dtype), b.on_gpu(q, dtype)
        tx, ty = b.for_torch(p, dtype), b.for_torch(q, dtype)
        if dtype == "bfloat16":
            head, exact = rounded(p[:32]), rounded(q)
        else:
            kind = np.float16 if dtype == "float16" else np.float32
            head, exact = (t.astype(kind).astype(np.float64) for t in (p[:32], q))
        b.case(
            f"matmul {dtype} {m}x{n}x{k}", x @ y,
            lambda f, head=head, exact=exact: (f[:32], head @ exact),
            None if b.torch is None else lambda tx=tx, ty=ty: tx @ ty, page, bar,
            note=rate(2 * m * n * k),
        )  # fmt: skip


def mma_case(b: Bench) -> None:
    """The same product without Hopper's own tensor cores."""
    n = 4096
    p, q = (RNG.standard_normal((n, n), np.float32) for _ in range(2))
    x, y = b.on_gpu(p, "bfloat16"), b.on_gpu(q, "bfloat16")
    tx, ty = b.for_torch(p, "bfloat16"), b.for_torch(q, "bfloat16")
    head, exact = rounded(p[:32]), rounded(q)
    for name, ours, wanted in (("", x @ y, exact), (" turned", x @ y.T, exact.T)):
        with knobs.scope(tensor_cores="mma"):
            b.case(
                f"mma.sync bf16 4096{name}", ours,
                lambda f, wanted=wanted: (f[:32], head @ wanted),
                None if b.torch is None else lambda: tx @ ty, 0.187, 0.6, note=rate(2 * n**3),
            )  # fmt: skip


def attention_case(b: Bench) -> None:
    """Attention of 4 x 32 heads over 4096 tokens, causal; full and smaller ones for comparison."""
    cases = [
        (4, 32, 4096, 128, True, 0.950, 0.5), (4, 32, 4096, 128, False, None, 0.0),
        (4, 16, 4096, 64, True, None, 0.0), (1, 32, 512, 128, True, None, 0.0),
        (4, 16, 4096, 256, True, None, 0.0),
    ]  # fmt: skip
    for batch, heads, tokens, width, is_causal, page, bar in cases:
        shape = (batch, heads, tokens, width)
        arrays = [RNG.standard_normal(shape, np.float32) for _ in range(3)]
        q, k, v = (b.on_gpu(t, "bfloat16") for t in arrays)
        tq, tk, tv = (b.for_torch(t, "bfloat16") for t in arrays)
        exact = _attended(*[rounded(t[-1, -1]) for t in arrays], is_causal)

        def peer(tq: Any = tq, tk: Any = tk, tv: Any = tv, is_causal: bool = is_causal) -> Any:
            attend = b.torch.nn.functional.scaled_dot_product_attention
            return attend(tq, tk, tv, is_causal=is_causal)

        flops = 4.0 * batch * heads * tokens * tokens * width / (2 if is_causal else 1)
        name = "causal" if is_causal else "full"
        b.case(
            f"{name} {batch}x{heads}x{tokens}x{width}",
            q.scaled_dot_product_attention(k, v, is_causal=is_causal),
            lambda f, exact=exact: (f[-1, -1], exact),
            None if b.torch is None else peer, page, bar, note=rate(flops),
        )  # fmt: skip


def _attended(q: Array, k: Array, v: Array, is_causal: bool) -> Array:
    """One head in float64."""
    scores = q @ k.T / np.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = (powers / powers.sum(-1, keepdims=True)) @ v
    return found


def graph_case(b: Bench) -> None:
    """100 tiny dependent kernels as one replayed plan."""
    array = RNG.standard_normal(1024, np.float32)
    t = b.on_gpu(array)
    wanted = array.astype(np.float64)
    for _ in range(100):
        t = (t * 0.5 + 1.0).contiguous()
        wanted = wanted * 0.5 + 1.0
    peer = None
    if b.torch is not None:
        torch = b.torch
        source = b.for_torch(array)

        def chain() -> Any:
            value = source
            for _ in range(100):
                value = torch.add(1.0, value, alpha=0.5)
            return value

        peer = as_graph(torch, chain)
    b.case("100 tiny kernels", t, lambda f: (f, wanted), peer, 0.109, 1.0)


def variable_case(b: Bench) -> None:
    """The replay of 100 tiny kernels when a variable of one of them changes before each."""
    array = RNG.standard_normal(1024, np.float32)
    n = svod.Variable("n", 1, 1000)
    x = b.on_gpu(array)
    t = (x + x[: n.bind(3)].sum()).contiguous()
    for _ in range(98):
        t = (t * 0.5 + 1.0).contiguous()
    plan = prepare([t])
    still, _ = gpu_ms(plan.execute, 10)
    numbers = iter(range(1 << 30))
    moving, _ = gpu_ms(lambda: plan.execute_with_vars({"n": 1 + next(numbers) % 1000}), 10)
    plan.execute_with_vars({"n": 700})
    found = plan.output_buffer()
    assert found is not None
    wanted = array.astype(np.float64) + array[:700].sum(dtype=np.float64)
    for _ in range(98):
        wanted = wanted * 0.5 + 1.0
    error = error_of(found.copyout(), wanted)
    row = Result("variable changed each time", moving, error, still, "unchanged", 1 / 1.2)
    b.results.append(row)
    print(row.line(), flush=True)


GROUPS = {
    "memory": memory_cases,
    "matvec": matvec_case,
    "matmul": matmul_cases,
    "mma": mma_case,
    "attention": attention_case,
    "graph": graph_case,
    "variable": variable_case,
    "llama": llama_case,
    "conv": convolution_cases,
    "ops": ops_cases,
    "training": training_cases,
}
EXTRA = ("conv", "ops", "training")  # longer, by name only


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--no-torch", action="store_true", help="compare with the stored times")
    parser.add_argument("--no-compile", action="store_true", help="torch eagerly only")
    parser.add_argument("--json", help="write the results there too")
    options = parser.parse_args()
    bench = Bench(not options.no_torch, not options.no_compile)
    failed = False
    for name in options.groups or [g for g in GROUPS if g not in EXTRA]:
        try:
            GROUPS[name](bench)
        except Exception as problem:
            print(f"{name}: {type(problem).__name__}: {problem}", flush=True)
            failed = True
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(r) for r in bench.results], file, indent=1)
    return int(failed or any(r.complaint for r in bench.results))


if __name__ == "__main__":
    sys.exit(main())
