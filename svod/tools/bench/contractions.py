"""Matrix products of awkward sizes and convolutions, against the best of torch, NumPy, onnxruntime.

Two threads each, all in turn in one process; values are checked against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

import svod
from svod.tools.bench.bar import Case, Line, MissingPeer, at_least, peer, times
from svod.tools.bench.measure import alternate
from svod.tools.report import duration

Array = npt.NDArray[np.float32]
SIZES = (
    (511, 511, 511), (1000, 1000, 1000), (1537, 1537, 1537), (777, 333, 555), (65, 1000, 129),
    (4096, 4096, 7),
)  # fmt: skip
# name, input, weights, stride, padding, groups, share of the best peer's speed
CONVOLUTIONS = (
    ("3×3 64→64 on 56²", (1, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1, 0.95),
    ("7×7/2 3→64 on 224²", (1, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1, 0.8),
    ("3×3/2 64→128 on 56²", (1, 64, 56, 56), (128, 64, 3, 3), 2, 1, 1, 0.8),
    ("depthwise 3×3, 64 on 56²", (1, 64, 56, 56), (64, 1, 3, 3), 1, 1, 64, 0.8),
    ("depthwise 3×3/2, 64 on 112²", (1, 64, 112, 112), (64, 1, 3, 3), 2, 1, 64, 0.8),
)


def race(
    name: str,
    limit: float,
    output: svod.Tensor,
    expected: npt.NDArray[np.float64],
    theirs: dict[str, Callable[[], object]],
    flops: float,
) -> Line:
    """Our plan against the quickest of theirs."""
    plan = output.prepare()
    rounds = alternate({"ours": plan.execute, **theirs})
    scale = float(np.abs(expected).max())
    if not np.allclose(output.numpy(), expected, rtol=1e-4, atol=1e-5 * scale):
        raise RuntimeError(f"{name} differs from float64")
    best = min(theirs, key=rounds.median)
    note = f"{flops / rounds.median('ours') / 1e9:.0f} GFLOP/s, "
    note += f"{best} {duration(rounds.median(best))}"
    speed = rounds.speed("ours", best)
    return at_least(f"{name}, speed / the best peer", speed, limit, times, note)


def products() -> Iterator[Line]:
    """Sizes that do not divide, each with plain and transposed operands."""
    torch = peer("torch")
    torch.set_num_threads(2)
    for m, k, n in SIZES:
        for turned in ("", "A", "B", "AB"):
            a = normal(0, (k, m) if "A" in turned else (m, k))
            b = normal(1, (n, k) if "B" in turned else (k, n))
            left, right = (x.T if t in turned else x for x, t in ((a, "A"), (b, "B")))
            ours = [svod.Tensor(x).realize() for x in (a, b)]
            x, y = [t.permute(1, 0) if s in turned else t for t, s in zip(ours, "AB", strict=True)]
            out, place = torch.empty(m, n), np.empty((m, n), np.float32)
            p, q = torch.from_numpy(a), torch.from_numpy(b)
            p, q = p.T if "A" in turned else p, q.T if "B" in turned else q
            theirs: dict[str, Callable[[], object]] = {
                "torch": lambda p=p, q=q, out=out: torch.matmul(p, q, out=out),
                "numpy": lambda p=left, q=right, out=place: np.matmul(p, q, out=out),
            }
            which = f", {' and '.join(turned)} transposed" if turned else ""
            exact = left.astype(np.float64) @ right.astype(np.float64)
            yield race(f"{m}×{k}×{n}{which}", 0.95, x @ y, exact, theirs, 2.0 * m * n * k)


def convolutions() -> Iterator[Line]:
    """Layers of ResNet and MobileNet, batch 1."""
    torch = peer("torch")
    torch.set_num_threads(2)
    for name, shape, weights, stride, padding, groups, limit in CONVOLUTIONS:
        x, w = normal(0, shape), normal(1, weights)
        p, q = torch.from_numpy(x), torch.from_numpy(w)
        facts = {"stride": stride, "padding": padding, "groups": groups}
        exact = torch.nn.functional.conv2d(p.double(), q.double(), **facts).numpy()
        theirs: dict[str, Callable[[], object]] = {
            "torch": lambda p=p, q=q, facts=facts: torch.nn.functional.conv2d(p, q, **facts)
        }
        with suppress(MissingPeer):
            theirs["onnxruntime"] = session(x, w, stride, padding, groups)
        ours = svod.Tensor(x).realize().conv2d(svod.Tensor(w).realize(), **facts)
        flops = 2.0 * exact.size * weights[1] * weights[2] * weights[3]
        with torch.no_grad():
            yield race(f"convolution {name}", limit, ours, exact, theirs, flops)


def session(x: Array, w: Array, stride: int, padding: int, groups: int) -> Callable[[], object]:
    """The convolution in onnxruntime, its weights constant."""
    runtime, onnx = peer("onnxruntime"), peer("onnx")
    helper = peer("onnx.helper")
    kind = onnx.TensorProto.FLOAT
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=[stride] * 2, pads=[padding] * 4, group=groups
    )
    inputs = [helper.make_tensor_value_info("x", kind, x.shape)]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    constants = [peer("onnx.numpy_helper").from_array(w, "w")]
    graph = helper.make_graph([node], "convolution", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 2
    made: Any = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu")
    return lambda: made.run_with_iobinding(binding)


def normal(seed: int, shape: tuple[int, ...]) -> Array:
    """Normally distributed values."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


CASES = (
    Case("products", "matmul of awkward sizes, transposed too, against torch and NumPy", products),
    Case("convolutions", "convolutions against torch and onnxruntime", convolutions),
)
