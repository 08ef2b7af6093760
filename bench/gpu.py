"""The bars of CUDA, measured by events and checked against float64: ``python bench/gpu.py``.

Every case runs as a prepared plan on one GPU. Beside it, where it is installed, torch runs the same
case eagerly and compiled, in the same process; otherwise the best time of the performance page is
used and marked "page". ratio = best peer time / ours, so more is better.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

import svod
from svod import Tensor
from svod.base.knobs import knobs
from svod.device.cuda.driver import context
from svod.tensor.realize import prepare

Array = np.ndarray[Any, Any]
ROUNDS = 15
WARM_SECONDS = 0.3
RNG = np.random.default_rng(7)


@dataclass
class Result:
    """One row of the table; times in milliseconds."""

    name: str
    ours: float
    error: float
    peer: float | None
    peer_name: str
    bar: float
    note: str = ""
    spread: float = 0.0
    kernels: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.peer / self.ours

    def line(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:6.2f}"
        peer = "" if self.peer is None else f"{self.peer:9.4f}"
        return (
            f"{self.name:28} {self.ours:9.4f} {peer:>9} {self.peer_name:>9} {ratio:>6} "
            f"{self.bar:5.2f}  {self.error:9.2e}  {self.note}"
        )


def gpu_ms(run: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Median and spread of one run, by events on our stream."""
    owner = context(0)
    driver, stream = owner.use(), owner.stream
    start, stop = (driver.handle("cuEventCreate", 0) for _ in range(2))
    deadline = time.perf_counter() + WARM_SECONDS
    while True:
        for _ in range(3):
            run()
        owner.synchronize()
        if time.perf_counter() > deadline:
            break
    times = []
    for _ in range(ROUNDS):
        driver.call("cuEventRecord", start, stream)
        for _ in range(repeat):
            run()
        driver.call("cuEventRecord", stop, stream)
        driver.call("cuEventSynchronize", stop)
        times.append(driver.elapsed_ms(start, stop) / repeat)
    return statistics.median(times), max(times) - min(times)


def torch_ms(run: Callable[[], object], repeat: int) -> float:
    """Median of one run of torch, by its events."""
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    deadline = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < deadline:
        for _ in range(3):
            run()
        torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        start.record()
        for _ in range(repeat):
            run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / repeat)
    return statistics.median(times)


def as_graph(torch: Any, run: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    """What torch does as a CUDA graph, which reads its arguments where they are."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(*arguments)
    return graph.replay  # type: ignore[no-any-return]


def error_of(found: Array, wanted: Array) -> float:
    """|found - wanted| / |wanted|, in float64; anything that is no number is infinite."""
    found = np.asarray(found, np.float64)
    if not np.isfinite(found).all():
        return float("inf")
    return float(np.linalg.norm(found - wanted) / (np.linalg.norm(wanted) or 1.0))


class Bench:
    """Cases over shared inputs."""

    def __init__(self, use_torch: bool, use_compile: bool) -> None:
        self.results: list[Result] = []
        self.use_compile = use_compile
        self.torch: Any = None
        if use_torch:
            try:
                import torch

                self.torch = torch if torch.cuda.is_available() else None
            except ImportError:
                self.torch = None

    def on_gpu(self, array: Array, dtype: str | None = None) -> Tensor:
        t = Tensor(array, device="CUDA")
        return (t.cast(dtype) if dtype else t).contiguous().realize()

    def for_torch(self, array: Array, dtype: str | None = None) -> Any:
        if self.torch is None:
            return None
        t = self.torch.from_numpy(array).cuda()
        return t.to(getattr(self.torch, dtype)) if dtype else t

    def case(
        self,
        name: str,
        ours: Tensor,
        check: Callable[[Array], tuple[Array, Array]],
        peer: Callable[[], object] | None,
        page: float | None,
        bar: float,
        repeat: int = 10,
        compiled: Callable[..., object] | None = None,
        arguments: tuple[Any, ...] = (),
        note: Callable[[float], str] = lambda ms: "",
    ) -> None:
        """One row: our plan, its values, the peer's best time."""
        began = time.perf_counter()
        plan = prepare([ours])
        prepared = time.perf_counter() - began
        for _ in range(3):
            plan.execute()
        buffer = plan.output_buffer()
        assert buffer is not None
        found = buffer.copyout().reshape(ours.shape)
        if found.dtype.kind not in "fiub" or found.dtype.itemsize < 4:
            found = found.astype(np.float32)
        error = error_of(*check(found))
        median, spread = gpu_ms(plan.execute, repeat)
        best, peer_name = page, "page"
        if self.torch is not None and peer is not None:
            best, peer_name = torch_ms(peer, repeat), "eager"
            if self.use_compile and compiled is not None:
                is_compiled = isinstance(compiled, partial)
                fast = compiled if is_compiled else self.torch.compile(compiled)
                fused = torch_ms(lambda: fast(*arguments), repeat)
                if fused < best:
                    best, peer_name = fused, "inductor"
        kernels = [k.entry_point for k in plan.kernels()]
        text = f"{note(median)}  prepare {prepared * 1e3:.0f} ms, {len(kernels)} kernels"
        result = Result(name, median, error, best, peer_name, bar, text, spread, kernels)
        self.results.append(result)
        print(result.line(), flush=True)


def bandwidth(nbytes: float) -> Callable[[float], str]:
    return lambda ms: f"{nbytes / ms / 1e9:.2f} TB/s"


def rate(flops: float) -> Callable[[float], str]:
    return lambda ms: f"{flops / ms / 1e9:.1f} TFLOP/s"


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


def rounded(array: Array) -> Array:
    """The values bfloat16 keeps, as float64."""
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def matmul_cases(b: Bench) -> None:
    cases = [
        ("float32", 4096, 4096, 4096, 2.77, 0.8), ("bfloat16", 4096, 4096, 4096, 0.187, 0.6),
        ("float16", 4096, 4096, 4096, 0.200, 0.6), ("float32", 1000, 1111, 777, None, 0.5),
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

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain()
        peer = graph.replay
    b.case("100 tiny kernels", t, lambda f: (f, wanted), peer, 0.109, 1.0)


LAYERS, WIDTH, HEADS, HIDDEN, CACHED = 8, 4096, 32, 11008, 512
PARTS = ("q", "k", "v", "o", "gate", "up", "down")


def attention(q: Any, k: Any, v: Any, mask: Any, softmax: Any) -> Any:
    scores = (q @ k.permute(0, 2, 1)).float() * q.shape[-1] ** -0.5
    return softmax(scores if mask is None else scores + mask).to(q.dtype) @ v


def llama(x: Any, weights: list[dict[str, Any]], attend: Any, silu: Any, cat: Any) -> Any:
    """Layers over x[T, WIDTH]; with a cache the one token attends to what was there before."""
    tokens, size = x.shape[0], WIDTH // HEADS

    def norm(h: Any, scale: Any) -> Any:
        wide = h.float()
        return ((wide * (wide * wide).mean(-1, keepdim=True).add(1e-5).rsqrt()).to(h.dtype)) * scale

    for w in weights:
        h = norm(x, w["norm1"])
        q, k, v = ((h @ w[name].T).reshape(tokens, HEADS, size).permute(1, 0, 2) for name in "qkv")
        if tokens == 1:
            k, v = cat([w["keys"], k], 1), cat([w["values"], v], 1)
        mixed = attend(q, k, v, w["mask"] if tokens > 1 else None)
        x = x + mixed.permute(1, 0, 2).reshape(tokens, WIDTH) @ w["o"].T
        h = norm(x, w["norm2"])
        x = x + (silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T
    return x


def llama_case(b: Bench) -> None:
    """One decode step and a prefill of 512 tokens; needs torch for its values."""
    torch = b.torch
    if torch is None:
        print("llama: needs torch for the values; skipped")
        return
    torch.manual_seed(5)
    size = WIDTH // HEADS

    def draw(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(*shape, device="cuda") * scale).to(torch.bfloat16)

    def ours(t: Any) -> Tensor:
        import ml_dtypes

        if t.dtype == torch.float32:
            return Tensor(t.cpu().numpy(), device="CUDA").realize()
        return Tensor(
            t.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16), device="CUDA"
        ).realize()

    mask = torch.full((512, 512), -1e30, device="cuda").triu(1)
    theirs = []
    for _ in range(LAYERS):
        w = {name: draw(WIDTH, WIDTH, scale=WIDTH**-0.5) for name in "qkvo"}
        w |= {name: draw(HIDDEN, WIDTH, scale=WIDTH**-0.5) for name in ("gate", "up")}
        w["down"] = draw(WIDTH, HIDDEN, scale=HIDDEN**-0.5)
        w |= {name: draw(WIDTH) * 0.1 + 1 for name in ("norm1", "norm2")}
        w |= {name: draw(HEADS, CACHED, size) for name in ("keys", "values")}
        theirs.append(w | {"mask": mask})
    mine = [{name: ours(t) for name, t in w.items()} for w in theirs]

    def written_out(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return attention(q, k, v, mask, lambda t: torch.softmax(t, -1))

    def fused(q: Any, k: Any, v: Any, mask: Any) -> Any:
        causal = mask is not None
        whole = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=causal
        )
        return whole[0]

    def torch_model(x: Any, weights: Any, attend: Any = written_out) -> Any:
        return llama(x, weights, attend, torch.nn.functional.silu, torch.cat)

    for name, tokens, bar, page in (("decode", 1, 0.95, 1.176), ("prefill", 512, 0.6, None)):
        x = draw(tokens, WIDTH)
        exact = x.double()
        for w in theirs:
            exact = torch_model(exact, [{n: t.double() for n, t in w.items()}])
        result = llama(
            ours(x), mine, partial(attention, softmax=lambda t: t.softmax(-1)),
            lambda t: t.silu(), lambda parts, axis: svod.cat(parts, dim=axis),
        )  # fmt: skip
        models = [lambda x, w: torch_model(x, w), lambda x, w: torch_model(x, w, fused)]
        eager = min([as_graph(torch, m, x, theirs) for m in models], key=lambda f: torch_ms(f, 3))
        compiled = None
        if b.use_compile:
            graphs = [as_graph(torch, torch.compile(m), x, theirs) for m in models]
            compiled = partial(min(graphs, key=lambda f: torch_ms(f, 3)))
        flops = 2.0 * tokens * LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * HIDDEN)
        b.case(
            f"llama {name}", result, lambda f, t=exact: (f, t.cpu().numpy()), eager,
            page, bar, repeat=3, compiled=compiled,
            note=bandwidth(flops) if tokens == 1 else rate(flops),
        )  # fmt: skip


# images, channels, outputs, side, window, stride
CONVOLUTIONS = (
    (32, 64, 64, 56, 3, 1), (32, 128, 128, 28, 3, 1), (32, 256, 256, 14, 3, 1),
    (32, 512, 512, 7, 3, 1), (32, 64, 128, 56, 3, 2), (32, 256, 256, 56, 3, 1),
    (8, 512, 512, 64, 3, 1),
)  # fmt: skip


def convolution_cases(b: Bench) -> None:
    """Convolutions in bfloat16 and their gradients; torch as a graph, of its fastest algorithms."""
    torch = b.torch
    if torch is None:
        print("conv: needs torch for the values; skipped")
        return
    torch.backends.cudnn.benchmark = True
    run = torch.nn.functional.conv2d
    both = torch.nn.grad
    for images, channels, outputs, side, window, stride in CONVOLUTIONS:
        shape, kernel = (images, channels, side, side), (outputs, channels, window, window)
        options = {"stride": stride, "padding": window // 2}
        x, w = (torch.randn(*s, device="cuda").bfloat16() for s in (shape, kernel))
        exact = run(x.double(), w.double(), **options)
        flops = 2.0 * exact.numel() * channels * window * window
        name = f"{images}x{channels}x{side} to {outputs}{f'/{stride}' if stride > 1 else ''}"
        last = [t.permute(0, 2, 3, 1).contiguous() for t in (x, w)]
        ours = [svod.from_dlpack(t) for t in (x, w)]
        turned = [svod.from_dlpack(t).permute(0, 3, 1, 2) for t in last]
        seen = [t.permute(0, 3, 1, 2) for t in last]
        b.case(
            f"conv {name}", ours[0].conv2d(ours[1], **options),
            lambda f, t=exact: (f, t.cpu().numpy()),
            as_graph(torch, partial(run, **options), x, w), None, 0.0, note=rate(flops),
        )  # fmt: skip
        b.case(
            "  channels last", turned[0].conv2d(turned[1], **options).permute(0, 2, 3, 1),
            lambda f, t=exact: (f, t.permute(0, 2, 3, 1).cpu().numpy()),
            as_graph(torch, partial(run, **options), *seen), None, 0.0, note=rate(flops),
        )  # fmt: skip
        g = torch.randn_like(exact).bfloat16()
        given = [t.detach().requires_grad_() for t in ours]
        given[0].conv2d(given[1], **options).backward(svod.from_dlpack(g))
        rules = (
            ("  gradient of the image", both.conv2d_input, (shape, w, g)),
            ("  gradient of the weight", both.conv2d_weight, (x, kernel, g)),
        )
        for (title, rule, arguments), t in zip(rules, given, strict=True):
            wide = [a.double() if hasattr(a, "double") else a for a in arguments]
            wanted = rule(*wide, **options)
            b.case(
                title, t.grad, lambda f, t=wanted: (f, t.cpu().numpy()),
                as_graph(torch, partial(rule, **options), *arguments), None, 0.0, note=rate(flops),
            )  # fmt: skip


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
    times = f"{moving:9.4f} {still:9.4f}  x{moving / still:.2f}"
    print(f"{'variable changed each time':28} {times}  {error:.2e}")


def more_cases(b: Bench) -> None:
    """No bars: what a user meets next."""
    torch = b.torch
    if torch is None:
        print("more: needs torch for the values; skipped")
        return
    f = torch.nn.functional
    x = RNG.standard_normal((8192, 8192), np.float32)
    ids = RNG.integers(0, 8192, 16384)
    image = RNG.standard_normal((32, 64, 56, 56), np.float32)
    kernel = RNG.standard_normal((64, 64, 3, 3), np.float32)
    few = RNG.standard_normal((8, 8192), np.float32)
    heads = RNG.standard_normal((2, 16, 1024, 64), np.float32)
    a, i, c, k, s, q = (b.on_gpu(t) for t in (x, ids, image, kernel, few, heads))
    ta, ti, tc, tk, ts, tq = (b.for_torch(t) for t in (x, ids, image, kernel, few, heads))

    def row(name: str, ours: Tensor, peer: Callable[[], Any]) -> None:
        with torch.no_grad():
            torch.backends.cudnn.allow_tf32 = False
            exact = peer().double().cpu().numpy()
        b.case(name, ours, lambda found: (found, exact), peer, None, 0.0)

    row("transpose 8192", a.T.contiguous() + 1, lambda: ta.T.contiguous() + 1)
    row("gather 16384 rows", a[i] * 2, lambda: ta[ti] * 2)
    rows, table = a[:, :1024].contiguous().realize(), a[:4096, :1024].contiguous().realize()
    trows, ttable = ta[:, :1024].contiguous(), ta[:4096, :1024].contiguous()
    at, tat = (i[:8192] // 2).realize(), ti[:8192] // 2
    row(
        "index_add 8192 rows", table.index_add(0, at, rows), lambda: ttable.index_add(0, tat, trows)
    )
    line, tline = a[0].contiguous().realize(), ta[0].contiguous()
    row(
        "index_add 8192",
        line.index_add(0, i[:8192], a[1]),
        lambda: tline.index_add(0, ti[:8192], ta[1]),
    )
    row("conv 3x3 f32", c.conv2d(k, padding=1), lambda: f.conv2d(tc, tk, padding=1))
    row("linear of 8 rows f32", s @ a.T, lambda: ts @ ta.T)
    row("log softmax", a.log_softmax(-1), lambda: torch.log_softmax(ta, -1))
    row("variance of columns", a.var(0), lambda: ta.var(0))
    scores = (q @ q.permute(0, 1, 3, 2) * 0.125).softmax(-1) @ q
    row("attention f32 1024", scores, lambda: f.scaled_dot_product_attention(tq, tq, tq))


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
    "more": more_cases,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--no-torch", action="store_true", help="compare with the stored times")
    parser.add_argument("--no-compile", action="store_true", help="torch eagerly only")
    parser.add_argument("--json", help="write the results there too")
    options = parser.parse_args()
    facts = context(0).facts
    print(f"{facts.name}, driver {facts.driver}, {facts.multiprocessors} multiprocessors")
    head = f"{'case':28} {'ours ms':>9} {'peer ms':>9} {'peer':>9} {'ratio':>6} {'bar':>5}"
    print(f"{head}  {'error':>9}", flush=True)
    bench = Bench(not options.no_torch, not options.no_compile)
    for name in options.groups or [g for g in GROUPS if g != "more"]:
        try:
            GROUPS[name](bench)
        except Exception as problem:
            print(f"{name}: {type(problem).__name__}: {problem}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(r) for r in bench.results], file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
