"""Products of narrow numbers, two threads, against torch and onnxruntime; checked in float64.

bfloat16, float16, int8 and float64 of 1024³, our own float32 beside them, products with operands
that are converted on the way, and sizes that divide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import svod
from svod import Tensor
from svod.tools.bench.bar import Case, Line, at_least, at_most, peer, times, whole
from svod.tools.bench.measure import alternate
from svod.tools.bench.models import Array

SIZE = 1024
ODD = (777, 333, 555)
Run = Callable[[], object]


def operands(dtype: str, rows: int, depth: int, columns: int) -> tuple[Tensor, Tensor]:
    """Two matrices of a dtype, the same in every process."""
    rng = np.random.default_rng(0)
    if dtype in ("int8", "uint8"):
        limits = np.iinfo(dtype)
        make = lambda *s: rng.integers(limits.min, limits.max + 1, s).astype(dtype)  # noqa: E731
        return Tensor(make(rows, depth)), Tensor(make(depth, columns))
    kind = getattr(svod, dtype)
    a, b = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    return Tensor(a).cast(kind).realize(), Tensor(b).cast(kind).realize()


def product(a: Tensor, b: Tensor) -> Tensor:
    """Integers are summed in int32, as the peers do."""
    return a.matmul(b, dtype=svod.int32) if a.dtype.is_int else a @ b


def check(name: str, found: Tensor, a: Array, b: Array) -> None:
    """The values against float64: one rounding of the result, one of float32 per step."""
    want, size = a @ b, np.abs(a) @ np.abs(b)
    got = found.cast(svod.float64).numpy()
    result = {svod.bfloat16: 2.0**-8, svod.float16: 2.0**-11, svod.float32: 2.0**-24}
    step = 0.0 if found.dtype.is_int else 2.0**-53 if found.dtype is svod.float64 else 2.0**-24
    room = result.get(found.dtype, step) * np.abs(want) + a.shape[-1] * step * size
    if not (np.abs(got - want) <= room).all():
        raise RuntimeError(f"{name} differs from float64 by {np.abs(got - want).max():.3g}")


def compare(dtype: str, shape: tuple[int, int, int], bar: float, theirs: dict[str, Run]) -> Line:
    """Our product against the quickest of theirs."""
    a, b = operands(dtype, *shape)
    output = product(a, b)
    plan = output.prepare()
    rounds = alternate({"svod": plan.execute, **theirs}, rounds=15)
    name = f"{dtype} matmul " + "×".join(map(str, shape))
    check(name, output, *(t.cast(svod.float64).numpy() for t in (a, b)))
    ratio = min(rounds.speed("svod", other) for other in theirs)
    best = min(theirs, key=rounds.median)
    rate = 2.0 * np.prod(shape) / rounds.median("svod") / 1e9
    note = f"{rate:.0f} Gop/s; {best} {2.0 * np.prod(shape) / rounds.median(best) / 1e9:.0f}"
    return at_least(f"{name}, speed of the best peer", ratio, bar, times, note)


def torch_pair(dtype: str, shape: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    """torch and the operands as its tensors."""
    torch = peer("torch")
    torch.set_num_threads(2)
    narrow = {"bfloat16": "float32", "float16": "float32"}.get(dtype, dtype)
    arrays = [t.cast(getattr(svod, narrow)).numpy() for t in operands(dtype, *shape)]
    x, y = (torch.from_numpy(array.copy()).to(getattr(torch, dtype)) for array in arrays)
    return torch, x, y


def against_peers() -> Iterator[Line]:
    """Each dtype against the peers that have a good product for it."""
    square = (SIZE, SIZE, SIZE)
    for dtype, shape, bar in (
        ("bfloat16", square, 0.8),
        ("bfloat16", ODD, 0.8),
        ("float64", square, 0.9),
    ):
        _, x, y = torch_pair(dtype, shape)
        yield compare(dtype, shape, bar, {"torch": lambda x=x, y=y: x @ y})
    torch, x, y = torch_pair("int8", square)
    yield compare("int8", square, 0.8, {"torch": lambda: torch._int_mm(x, y)})
    yield compare("uint8", square, 0.8, {"onnxruntime": onnx_product("uint8", square)})


def onnx_product(dtype: str, shape: tuple[int, int, int]) -> Run:
    """MatMulInteger."""
    runtime, onnx = peer("onnxruntime"), peer("onnx")
    helper, kind = onnx.helper, getattr(onnx.TensorProto, dtype.upper())
    rows, depth, columns = shape
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["c"])],
        "product",
        [value("a", kind, [rows, depth]), value("b", kind, [depth, columns])],
        [value("c", onnx.TensorProto.INT32, [rows, columns])],
    )
    version = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[version], ir_version=8)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 2
    session = runtime.InferenceSession(model.SerializeToString(), options)
    a, b = (t.numpy() for t in operands(dtype, *shape))
    return lambda: session.run(None, {"a": a, "b": b})


def against_float32() -> Iterator[Line]:
    """Narrow products against our own float32, which they must beat, or at least keep up with."""
    plans, outputs = {}, {}
    for dtype in ("float32", "bfloat16", "int8", "float16"):
        outputs[dtype] = product(*operands(dtype, SIZE, SIZE, SIZE))
        plans[dtype] = outputs[dtype].prepare().execute
    rounds = alternate(plans, rounds=15)
    for dtype, bar in (("bfloat16", 1.5), ("int8", 2.5), ("float16", 0.9)):
        arrays = (t.cast(svod.float64).numpy() for t in operands(dtype, SIZE, SIZE, SIZE))
        check(dtype, outputs[dtype], *arrays)
        speed = rounds.speed(dtype, "float32")
        yield at_least(f"{dtype} matmul 1024³, speed of our float32", speed, bar, times)


def converted() -> Iterator[Line]:
    """A matmul that turns int8 weights into floats itself, against one of floats."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((SIZE, SIZE)).astype(np.float32))
    codes = Tensor(rng.integers(-128, 128, (SIZE, SIZE)).astype(np.int8))
    scale = Tensor(rng.random(SIZE).astype(np.float32))
    output = x @ (codes.cast(svod.float32) * scale)
    plan, plain = output.prepare(), (x @ x).prepare()
    rounds = alternate({"converted": plan.execute, "plain": plain.execute}, rounds=15)
    weights = codes.numpy().astype(np.float64) * scale.numpy().astype(np.float64)
    size = np.abs(x.numpy().astype(np.float64)) @ np.abs(weights)
    error = np.abs(output.numpy() - x.numpy().astype(np.float64) @ weights) / size
    if not error.max() <= SIZE * 2.0**-23:
        raise RuntimeError(f"the converted product differs from float64 by {error.max():.3g}")
    kernels = len(list(plan.kernels()))
    yield at_most("kernels of x @ (int8 weights * scale)", kernels, 1, whole)
    speed = rounds.speed("converted", "plain")
    yield at_least("x @ (int8 weights * scale), speed of x @ floats", speed, 0.9, times)


CASES = (
    Case("narrow-peers", "bfloat16, float64 and int8 products against torch", against_peers),
    Case("narrow-float32", "narrow products against our own float32", against_float32),
    Case("narrow-converted", "int8 weights that become floats on the way", converted),
)
