"""Gradients: every op by finite differences in float64, what compiled kernels give in float32,
torch where it is installed, and what backward, grad, no_grad and detach mean."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DTypeError, ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.tensor.core import history
from svod.tensor.core.tensor_core import wrap
from svod.tensor.gradients.autograd import GradientError
from svod.tensor.gradients.gradient_rules import RULES
from svod.testing import assert_close, gradcheck

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def uniform(low: float, high: float, *shape: int) -> Any:
    return np.random.default_rng([7, *shape]).uniform(low, high, shape)


# name: function, then the inputs
UNARY: dict[str, tuple[Callable[..., Any], Any]] = {
    "neg": (lambda x: -x, normal(3, 4)),
    "reciprocal": (lambda x: x.reciprocal(), uniform(0.5, 2, 3, 4)),
    "sqrt": (lambda x: x.sqrt(), uniform(0.5, 2, 3, 4)),
    "rsqrt": (lambda x: x.rsqrt(), uniform(0.5, 2, 3, 4)),
    "exp": (lambda x: x.exp(), normal(3, 4)),
    "exp2": (lambda x: x.exp2(), normal(3, 4)),
    "expm1": (lambda x: x.expm1(), normal(3, 4)),
    "log": (lambda x: x.log(), uniform(0.5, 2, 3, 4)),
    "log2": (lambda x: x.log2(), uniform(0.5, 2, 3, 4)),
    "log1p": (lambda x: x.log1p(), uniform(0.5, 2, 3, 4)),
    "sin": (lambda x: x.sin(), normal(3, 4)),
    "cos": (lambda x: x.cos(), normal(3, 4)),
    "tan": (lambda x: x.tan(), uniform(-1, 1, 3, 4)),
    "asin": (lambda x: x.asin(), uniform(-0.9, 0.9, 3, 4)),
    "acos": (lambda x: x.acos(), uniform(-0.9, 0.9, 3, 4)),
    "atan": (lambda x: x.atan(), normal(3, 4)),
    "sinh": (lambda x: x.sinh(), normal(3, 4)),
    "cosh": (lambda x: x.cosh(), normal(3, 4)),
    "tanh": (lambda x: x.tanh(), normal(3, 4)),
    "asinh": (lambda x: x.asinh(), normal(3, 4)),
    "acosh": (lambda x: x.acosh(), uniform(1.5, 3, 3, 4)),
    "atanh": (lambda x: x.atanh(), uniform(-0.9, 0.9, 3, 4)),
    "erf": (lambda x: x.erf(), normal(3, 4)),
    "abs": (lambda x: x.abs(), normal(3, 4)),
    "sigmoid": (lambda x: x.sigmoid(), normal(3, 4)),
    "frac": (lambda x: x - x.floor(), normal(3, 4)),
}

BINARY: dict[str, tuple[Callable[..., Any], ...]] = {
    "add": (lambda a, b: a + b, normal(3, 4), normal(4)),
    "sub": (lambda a, b: a - b, normal(3, 1), normal(1, 4)),
    "mul": (lambda a, b: a * b, normal(3, 4), normal(3, 1)),
    "div": (lambda a, b: a / b, normal(3, 4), uniform(0.5, 2, 4)),
    "pow": (lambda a, b: a**b, uniform(0.5, 2, 3, 4), normal(4)),
    "pow constant": (lambda a: a**2.5, uniform(0.5, 2, 3, 4)),
    "constant pow": (lambda a: 2.0**a, normal(3, 4)),
    "fmod": (lambda a, b: a.fmod(b), uniform(2, 9, 3, 4), uniform(1.2, 1.7, 4)),
    "remainder": (lambda a, b: a % b, uniform(-9, 9, 3, 4), uniform(1.2, 1.7, 4)),
    "atan2": (lambda a, b: a.atan2(b), normal(3, 4), normal(4, seed=1)),
    "maximum": (lambda a, b: a.maximum(b), normal(3, 4), normal(4, seed=1)),
    "minimum": (lambda a, b: a.minimum(b), normal(3, 4), normal(4, seed=1)),
    "where": (lambda a, b: svod.where(a > 0.1, a * b, b), normal(3, 4), normal(4, seed=1)),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), normal(3, 4)),
    "rank 0": (lambda a, s: a * s + s, normal(3, 4), np.array(1.5)),
    "hypot": (lambda a, b: a.hypot(b), normal(3, 4), normal(4, seed=1)),
    "logaddexp": (lambda a, b: a.logaddexp(b), normal(3, 4), normal(4, seed=1)),
    "lerp": (lambda a, b, c: a.lerp(b, c), normal(3, 4), normal(4), normal(3, 1)),
}

MOVEMENT: dict[str, tuple[Callable[..., Any], ...]] = {
    "reshape": (lambda x: x.reshape(4, 3) ** 2, normal(3, 4)),
    "permute": (lambda x: x.permute(2, 0, 1) ** 2, normal(2, 3, 4)),
    "expand": (lambda x: x.expand(5, 3, 4) ** 2, normal(3, 1)),
    "pad": (lambda x: x.pad(((1, 2), (0, 3))) ** 2, normal(3, 4)),
    "pad value": (lambda x: x.pad(((1, 2), (0, 3)), value=2.0) ** 2, normal(3, 4)),
    "shrink": (lambda x: x[1:3, ::2] ** 2, normal(4, 5)),
    "reversed": (lambda x: x[::-1, 3::-2] ** 2, normal(4, 5)),
    "flip": (lambda x: x.flip(0) * x, normal(3, 4)),
    "cat": (lambda a, b: svod.cat([a, b, a * 2], 1) ** 2, normal(3, 2), normal(3, 4)),
    "many parts": (lambda x: svod.cat([x * i for i in range(12)], 0) ** 2, normal(1, 3)),
    "stack": (lambda a, b: svod.stack([a, b], 1) ** 2, normal(3, 2), normal(3, 2, seed=1)),
    "unbind": (lambda x: sum(p * i for i, p in enumerate(x.unbind(0))) ** 2, normal(5, 3)),
    "roll": (lambda x: x.roll(1, 0) * x, normal(4, 3)),
    "tril": (lambda x: x.tril() ** 2, normal(4, 4)),
    "diagonal": (lambda x: x.diagonal() ** 2, normal(4, 4)),
    "repeat": (lambda x: x.repeat(2, 3) ** 2, normal(3, 2)),
}

REDUCTION: dict[str, tuple[Callable[..., Any], ...]] = {
    "sum": (lambda x: x.sum(1) ** 2, normal(3, 4)),
    "mean": (lambda x: x.mean((0, 2)) ** 2, normal(2, 3, 4)),
    "var": (lambda x: x.var(1), normal(3, 4)),
    "std": (lambda x: x.std(0), normal(3, 4)),
    "prod": (lambda x: x.prod(1), normal(3, 4)),
    "prod with a zero": (lambda x: x.prod(1), normal(3, 4) * [1, 0, 1, 1]),
    "prod with two zeros": (lambda x: x.prod(1), normal(3, 4) * [1, 0, 0, 1]),
    "prod of several axes": (lambda x: x.prod((0, 2)), uniform(0.8, 1.2, 2, 3, 4)),
    "long prod": (lambda x: x.prod(0), uniform(0.9, 1.1, 80, 2)),
    "amax": (lambda x: x.amax(1), normal(3, 4)),
    "amin": (lambda x: x.amin((0, 1)), normal(3, 4)),
    "max and place": (lambda x: x.max(1).values ** 2, normal(3, 4)),
    "logsumexp": (lambda x: x.logsumexp(1), normal(3, 4)),
    "norm": (lambda x: x.norm(2, 1), normal(3, 4)),
    "3-norm": (lambda x: x.norm(3, 1), normal(3, 4)),
    "cumsum": (lambda x: x.cumsum(1) ** 2, normal(3, 4)),
    "cumprod": (lambda x: x.cumprod(1), uniform(0.5, 2, 3, 4)),
    "sort": (lambda x: x.sort(1).values * Tensor(np.arange(4.0)), normal(3, 4)),
    "topk": (lambda x: x.topk(2, 1).values ** 2, normal(3, 4)),
    "median": (lambda x: x.median(1).values ** 2, normal(3, 5)),
}

ROWS = np.array([0, 2, 2, -1])
PLACES = np.array([[0, 1], [2, 2]])
INDEXED: dict[str, tuple[Callable[..., Any], ...]] = {
    "rows": (lambda x: x[ROWS] ** 2, normal(4, 3)),
    "rows and columns": (lambda x: x[Tensor(PLACES), Tensor(PLACES.T)] ** 2, normal(3, 4)),
    "middle axis": (lambda x: x[:, Tensor(ROWS)] ** 2, normal(2, 4, 3)),
    "gather": (lambda x: x.gather(1, Tensor(PLACES)) ** 2, normal(2, 4)),
    "index_select": (lambda x: x.index_select(1, Tensor(np.array([0, 0, 3]))) ** 2, normal(2, 4)),
    "embedding": (lambda x: Tensor(PLACES).embedding(x) ** 2, normal(4, 3)),
    "scatter": (lambda x, v: x.scatter(1, Tensor(PLACES), v) ** 2, normal(2, 4), normal(2, 2)),
    "scatter_add": (
        lambda x, v: x.scatter_add(1, Tensor(PLACES), v) ** 2,
        normal(2, 4),
        normal(2, 2),
    ),
    "index_add": (
        lambda x, v: x.index_add(0, Tensor(np.array([1, 1, 3])), v) ** 2,
        normal(4, 2),
        normal(3, 2),
    ),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 2.0) ** 2, normal(3, 4)),
    "setitem": (lambda x, v: _written(x, v) ** 2, normal(4, 3), normal(2, 3)),
    "set rows": (lambda x, v: _written_rows(x, v) ** 2, normal(4, 3), normal(3, 3)),
}


def _written(x: Tensor, v: Tensor) -> Tensor:
    y = x * 1.0
    y[1:3] = v
    return y


def _written_rows(x: Tensor, v: Tensor) -> Tensor:
    y = x * 1.0
    y[Tensor(np.array([1, 3, 1]))] = v  # row 1 is written twice: the last value stays
    return y


ACTIVATIONS = (
    "relu", "gelu", "silu", "elu", "selu", "softplus", "logsigmoid", "mish", "hardswish",
    "softsign", "leaky_relu", "hardsigmoid", "tanhshrink", "softshrink", "quick_gelu",
)  # fmt: skip

LAYERS: dict[str, tuple[Callable[..., Any], ...]] = {
    "matmul": (lambda a, b: a @ b, normal(2, 3, 4), normal(4, 2)),
    "vectors": (lambda a, b: a @ b, normal(4), normal(4, seed=1)),
    "linear": (lambda x, w, b: x.linear(w, b), normal(3, 4), normal(2, 4), normal(2)),
    "einsum": (lambda a, b: svod.einsum("bij,bjk->bik", a, b), normal(2, 3, 4), normal(2, 4, 2)),
    "conv1d": (lambda x, w: x.conv1d(w, stride=2, padding=1), normal(2, 3, 7), normal(4, 3, 3)),
    "conv2d": (
        lambda x, w, b: x.conv2d(w, b, padding=1, dilation=2),
        normal(1, 2, 5, 5),
        normal(2, 2, 2, 2),
        normal(2),
    ),
    "grouped conv2d": (
        lambda x, w: x.conv2d(w, groups=2, stride=2),
        normal(1, 4, 5, 5),
        normal(4, 2, 3, 3),
    ),
    "conv_transpose2d": (
        lambda x, w: x.conv_transpose2d(w, stride=2, padding=1),
        normal(1, 2, 3, 3),
        normal(2, 2, 3, 3),
    ),
    "max_pool2d": (lambda x: x.max_pool2d(2), normal(1, 2, 4, 4)),
    "overlapping max_pool2d": (lambda x: x.max_pool2d(3, 1, 1), normal(1, 1, 4, 4)),
    "avg_pool2d": (lambda x: x.avg_pool2d(3, 2, 1) ** 2, normal(1, 2, 5, 5)),
    "adaptive pool": (lambda x: x.adaptive_avg_pool2d(2) ** 2, normal(1, 2, 5, 4)),
    "softmax": (lambda x: x.softmax(-1) ** 2, normal(3, 4)),
    "log_softmax": (lambda x: x.log_softmax(0), normal(3, 4)),
    "layer_norm": (lambda x, w, b: x.layer_norm(4, w, b), normal(3, 4), normal(4), normal(4)),
    "rms_norm": (lambda x, w: x.rms_norm(4, w, 1e-5), normal(3, 4), normal(4)),
    "group_norm": (lambda x: x.group_norm(2) ** 3, normal(2, 4, 3)),
    "batch_norm": (
        lambda x, w, b: x.batch_norm(None, None, w, b, training=True) ** 3,
        normal(4, 2, 3),
        normal(2),
        normal(2, seed=1),
    ),
    "attention": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        normal(2, 3, 4),
        normal(2, 3, 4, seed=1),
        normal(2, 3, 4, seed=2),
    ),
    "cross_entropy": (lambda x: x.cross_entropy(Tensor(np.array([1, 0, 3]))), normal(3, 4)),
    "mse_loss": (lambda x, y: x.mse_loss(y), normal(3, 4), normal(3, 4, seed=1)),
    "bce": (
        lambda x, y: x.binary_cross_entropy_with_logits(y.sigmoid()),
        normal(3, 4),
        normal(3, 4, seed=1),
    ),
    **{name: (lambda x, name=name: getattr(x, name)(), normal(3, 4)) for name in ACTIVATIONS},
}

CASES = {
    f"{family}: {name}": case
    for family, cases in (
        ("unary", UNARY), ("binary", BINARY), ("movement", MOVEMENT), ("reduction", REDUCTION),
        ("indexed", INDEXED), ("layer", LAYERS),
    )
    for name, case in cases.items()
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradient_equals_finite_differences(name: str) -> None:
    function, *inputs = CASES[name]
    assert gradcheck(function, inputs, compiled=False, rtol=1e-4, atol=1e-6)


def test_every_rule_is_exercised_by_the_cases() -> None:
    seen: set[int] = set()
    for function, *inputs in CASES.values():
        tensors = [Tensor(np.asarray(x)) for x in inputs]
        seen |= {n.op for n in function(*tensors).uop.toposort()}
    # FMA comes from the compiler alone; shards have tests in tests/distributed, the others below
    assert set(RULES) - seen <= {O.FMA, O.SHARD, O.CAST, O.COPY, O.ASSIGN}


def test_fused_multiply_add_has_a_gradient() -> None:
    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        from svod.ir.node import make

        return wrap(make(O.FMA, a.dtype, (a.uop, b.uop, c.uop)), "CPU")

    assert gradcheck(function, [normal(5), normal(5, seed=1), normal(5, seed=2)], compiled=False)


# -- compiled ----------------------------------------------------------------------------------


def evaluated_gradients(function: Callable[..., Any], tensors: list[Tensor]) -> list[Any]:
    from svod.ir.evaluate import evaluate
    from svod.tensor.core.tensor_registry import buffer_of
    from svod.tensor.gradients.reverse_mode import gradient

    loss = function(*tensors).sum()
    found = gradient(loss.uop, B.full((), 1.0, loss.dtype), [t.uop for t in tensors])
    values = []
    for node in found:
        assert node is not None
        memory = {n: buffer_of(n).numpy() for n in node.toposort() if n.op == O.BUFFER}
        values.append((node, evaluate(node, memory)))
    return values


COMPILED = (
    "unary: tanh", "unary: sigmoid", "unary: erf", "binary: div", "binary: maximum",
    "movement: cat", "movement: shrink", "movement: unbind", "reduction: prod", "reduction: amax",
    "reduction: cumsum", "indexed: rows", "indexed: scatter", "indexed: set rows",
    "layer: conv2d", "layer: max_pool2d", "layer: softmax", "layer: layer_norm",
    "layer: attention", "layer: cross_entropy", "layer: gelu",
)  # fmt: skip


def test_compiled_gradients_equal_their_meaning() -> None:
    pending = []
    for name in COMPILED:
        function, *inputs = CASES[name]
        tensors = [Tensor(np.asarray(x, np.float32)) for x in inputs]
        for node, wanted in evaluated_gradients(function, tensors):
            pending.append((name, wrap(node, "CPU"), wanted))
    svod.realize(*[t for _, t, _ in pending])
    for name, found, wanted in pending:
        assert_close(found, wanted, rtol=1e-4, atol=1e-5, name=name)


# -- pooling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [(8, 3, 2, 1), (9, 3, 2, 0), (7, 2, 2, 0), (10, 5, 3, 2), (6, 3, 1, 1), (11, 2, 4, 1)],
)
def test_max_pooling_gives_its_gradient_to_the_first_largest_element(
    size: int, kernel: int, stride: int, padding: int
) -> None:
    random = np.random.default_rng(size)
    a = random.integers(0, 4, (2, 3, size, size + 1)).astype(np.float32)  # with ties
    x = Tensor(a)
    y = x.requires_grad_().max_pool2d(kernel, stride, padding)
    g = random.standard_normal(y.shape).astype(np.float32)
    padded = np.pad(a, ((0, 0), (0, 0), *[(padding, padding)] * 2), constant_values=-np.inf)
    received = np.zeros(padded.shape, np.float32)
    for n, c, i, j in np.ndindex(*y.shape):
        window = np.s_[n, c, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
        part = padded[window]
        received[window][np.unravel_index(part.argmax(), part.shape)] += g[n, c, i, j]
    wanted = received[..., padding : padding + size, padding : padding + size + 1]
    (found,) = svod.autograd.grad((y * Tensor(g)).sum(), [x])
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)


# -- torch -------------------------------------------------------------------------------------

TORCH: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "ties of amax": (lambda x: x.amax(1), lambda x: x.amax(1), np.array([[1.0, 2, 2], [3, 3, 3]])),
    "ties of maximum": (
        lambda x: x.maximum(Tensor(np.array([1.0, 2, 3]))),
        lambda x: x.maximum(torch.tensor([1.0, 2, 3], dtype=torch.float64)),
        np.array([1.0, 3, 2]),
    ),
    "relu at zero": (lambda x: x.relu(), lambda x: x.relu(), np.array([-1.0, 0, 1])),
    "clamp at its limit": (
        lambda x: x.clamp(-1.5, 1),
        lambda x: x.clamp(-1.5, 1),
        np.array([-1.5, 0, 1, 2]),
    ),
    "abs at zero": (lambda x: x.abs(), lambda x: x.abs(), np.array([-1.0, 0, 1])),
    "large sigmoid": (
        lambda x: x.sigmoid(),
        lambda x: x.sigmoid(),
        np.array([-1000.0, -50, 50, 1000]),
    ),
    "large softplus": (
        lambda x: x.softplus(),
        lambda x: torch.nn.functional.softplus(x),
        np.array([-1000.0, -50, 50, 1000]),
    ),
    "large logsigmoid": (
        lambda x: x.logsigmoid(),
        lambda x: torch.nn.functional.logsigmoid(x),
        np.array([-1000.0, -50, 50, 1000]),
    ),
    "large log_softmax": (
        lambda x: x.log_softmax(0)[0],
        lambda x: x.log_softmax(0)[0],
        np.array([-1000.0, 0, 1000]),
    ),
    "atan2 at the origin": (
        lambda x: x.atan2(x),
        lambda x: torch.atan2(x, x),
        np.array([0.0, 1, -1]),
    ),
    "powers of zero": (lambda x: x**x, lambda x: x**x, np.array([0.0, 1, 2])),
    "zero to a number": (lambda x: x**0.0, lambda x: x**0.0, np.array([0.0, 1, 2])),
    "prod of zeros": (lambda x: x.prod(1), lambda x: x.prod(1), np.array([[0.0, 2, 3], [0, 0, 1]])),
}


@needs_torch
@pytest.mark.parametrize("name", TORCH)
def test_gradient_at_special_points_equals_torch(name: str) -> None:
    ours, theirs, x = TORCH[name]
    ((_, found),) = evaluated_gradients(ours, [Tensor(x)])
    t = torch.tensor(x, requires_grad=True)
    theirs(t).sum().backward()
    assert_close(found, t.grad.numpy(), name=name)


@needs_torch
def test_second_order_gradients_equal_torch() -> None:
    x = uniform(0.5, 1.5, 3, 4)
    for name in ("tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt", "sin", "reciprocal"):

        def function(t: Tensor, name: str = name) -> Tensor:
            return (svod.grad(lambda y: (getattr(y, name)() ** 2).sum())(t) ** 2).sum()

        ((_, found),) = evaluated_gradients(function, [Tensor(x)])
        t = torch.tensor(x, requires_grad=True)
        (first,) = torch.autograd.grad((getattr(t, name)() ** 2).sum(), t, create_graph=True)
        (first**2).sum().backward()
        assert_close(found, t.grad.numpy(), rtol=1e-9, name=name)


# -- higher order ------------------------------------------------------------------------------

SECOND: dict[str, tuple[Callable[..., Any], ...]] = {
    "cube": (lambda x: x**3, normal(4)),
    "matmul tanh": (lambda x: (x @ x).tanh(), normal(3, 3)),
    "softmax": (lambda x: x.softmax(-1) ** 2, normal(2, 3)),
    "prod with a zero": (lambda x: x.prod(1) * x.sum(1), normal(2, 3) * [1, 0, 1]),
    "conv": (lambda x: x.conv1d(x[:, :, :2].transpose(0, 1)), normal(2, 2, 4)),
    "rows": (lambda x: x[ROWS] ** 3, normal(4, 2)),
    "scatter": (lambda x: x.scatter(1, Tensor(PLACES), x[:, :2] ** 2) ** 3, normal(2, 4)),
    "logsumexp": (lambda x: x.logsumexp(0), normal(4)),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_order_gradient_equals_finite_differences(name: str) -> None:
    function, *inputs = SECOND[name]

    def first(*args: Tensor) -> Any:
        return svod.grad(lambda *a: (function(*a) ** 2).sum())(*args)

    assert gradcheck(first, inputs, compiled=False, rtol=1e-4, atol=1e-5)


def test_third_order_gradient() -> None:
    f = svod.grad(svod.grad(svod.grad(lambda x: (x**4).sum())))
    # grad needs one number: sums appear between the orders
    g = svod.grad(
        lambda x: svod.grad(lambda y: svod.grad(lambda z: (z**4).sum())(y).sum())(x).sum()
    )
    x = Tensor([1.0, 2.0, -3.0])
    assert_close(g(x), np.float32([24, 48, -72]))
    with pytest.raises(GradientError, match="one number"):
        f(x)


# -- backward ----------------------------------------------------------------------------------


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(normal(*shape, seed=seed).astype(np.float32), requires_grad=True)


def test_backward_fills_and_adds_up_the_gradient_of_leaves() -> None:
    w, x = leaf(3, 2), Tensor(normal(4, 3).astype(np.float32))
    (x @ w).sum().backward()
    wanted = x.numpy().T @ np.ones((4, 2), np.float32)
    assert_close(w.grad, wanted)
    (x @ w).sum().backward()
    assert_close(w.grad, 2 * wanted)
    assert x.grad is None
    w.grad = None
    assert w.grad is None


def test_backward_works_after_the_loss_was_realised() -> None:
    w, x = leaf(3, 2), Tensor(normal(4, 3).astype(np.float32))
    loss = ((x @ w).tanh() ** 2).sum()
    assert isinstance(loss.item(), float)
    assert loss.is_realized
    loss.backward()
    t = np.tanh(x.numpy() @ w.numpy())
    assert_close(w.grad, x.numpy().T @ (2 * t * (1 - t * t)), rtol=1e-4)


def test_backward_goes_through_realised_tensors_that_are_gone() -> None:
    w, x = leaf(3, 2), Tensor(normal(4, 3).astype(np.float32))

    def forward() -> Tensor:
        hidden = (x @ w).tanh()
        hidden.realize()
        squared = (hidden * hidden).realize()
        return squared.sum() * 3

    loss = forward()
    gc.collect()
    loss.realize()
    loss.backward()
    t = np.tanh(x.numpy() @ w.numpy())
    assert_close(w.grad, x.numpy().T @ (6 * t * (1 - t * t)), rtol=1e-4)


def test_realised_values_are_read_not_computed_again() -> None:
    w = leaf(4)
    hidden = w.exp().realize()
    loss = hidden.sum()
    loss.backward(create_graph=True)
    assert O.EXP not in {n.op for n in w.grad.uop.toposort()}
    assert_close(w.grad, np.exp(w.numpy()), rtol=1e-5)


def test_a_history_ends_with_its_tensor() -> None:
    from weakref import ref

    from svod.ir.sweep import sweep
    from svod.tensor.core import history

    w = leaf(4)
    loss = (w * 2).sum()
    loss.item()
    memory = ref(history.leaf_node(loss.uop).arg)
    assert memory() in history._origins
    del loss
    sweep()
    assert memory() is None


def test_leaves_with_equal_values_are_different_leaves() -> None:
    a, b = svod.zeros(3).requires_grad_(), svod.zeros(3).requires_grad_()
    loss = (a * 2 + b * 3).sum()
    loss.item()
    a.realize()
    loss.backward()
    assert_close(a.grad, np.full(3, 2, np.float32))
    assert_close(b.grad, np.full(3, 3, np.float32))


def test_a_leaf_over_the_memory_of_another_is_its_own() -> None:
    a = leaf(3)
    b = a.detach().requires_grad_()
    (a * 2 + b * 3).sum().backward()
    assert_close(a.grad, np.full(3, 2, np.float32))
    assert_close(b.grad, np.full(3, 3, np.float32))


def test_backward_with_a_seed() -> None:
    w = leaf(3)
    seed = Tensor([1.0, 2.0, 3.0])
    (w * 2).backward(seed)
    assert_close(w.grad, np.float32([2, 4, 6]))
    with pytest.raises(ShapeError, match="seed"):
        (w * 2).backward(Tensor([1.0]))


def test_backward_explains_what_is_missing() -> None:
    w = leaf(3)
    with pytest.raises(GradientError, match="one number"):
        (w * 2).backward()
    with pytest.raises(GradientError, match="requires_grad"):
        Tensor([1.0, 2.0]).sum().backward()
    with pytest.raises(GradientError, match="floats"):
        Tensor([1, 2]).sum().backward()
    with pytest.raises(DTypeError, match="only floats"):
        Tensor([1, 2]).requires_grad_()


def test_requires_grad_follows_the_graph() -> None:
    w, x = leaf(3), Tensor([1.0, 2.0, 3.0])
    assert w.requires_grad and w.is_leaf
    assert (w * x).requires_grad and not (w * x).is_leaf
    assert not (x * 2).requires_grad
    assert not (w > 0).requires_grad
    assert not w.detach().requires_grad
    y = (w * x).realize()
    assert y.requires_grad
    w.requires_grad = False
    assert not w.requires_grad


def test_gradients_are_plain_data_unless_asked_otherwise() -> None:
    w = leaf(3)
    (w**3).sum().backward()
    assert not w.grad.requires_grad
    w.grad = None
    (w**3).sum().backward(create_graph=True)
    first = w.grad
    w.grad = None
    first.sum().backward()
    assert_close(w.grad, 6 * w.numpy(), rtol=1e-5)


def test_detach_cuts() -> None:
    w = leaf(3)
    (w * w.detach()).sum().backward()
    assert_close(w.grad, w.numpy())
    w.grad = None
    h = w * 2
    (h * h.detach() + h.detach().exp()).sum().backward()
    assert_close(w.grad, 4 * w.numpy(), rtol=1e-6)


def test_no_grad_cuts_what_is_made_inside() -> None:
    w = leaf(3)
    kept = w * 2
    with svod.no_grad():
        assert not svod.is_grad_enabled()
        inside = w * 3
        assert not inside.requires_grad
        value = kept.sum().item()
    assert svod.is_grad_enabled()
    assert not inside.requires_grad
    assert kept.requires_grad
    (kept + inside).sum().backward()
    assert_close(w.grad, np.full(3, 2, np.float32))
    assert abs(value - 2 * w.numpy().sum()) < 1e-5

    @svod.no_grad()
    def evaluate() -> Tensor:
        return w * 5

    assert not evaluate().requires_grad


def test_a_leaf_updated_in_no_grad_stays_a_leaf() -> None:
    w = leaf(3)
    start = w.numpy()
    for _ in range(3):
        w.grad = None
        (w * w).sum().backward()
        with svod.no_grad():
            w -= 0.1 * w.grad
    assert w.requires_grad and w.is_leaf
    assert_close(w, start * np.float32(0.8) ** 3, rtol=1e-5)


def test_values_of_float16_and_casts() -> None:
    w = leaf(3)
    (w.half() * 2).float().sum().backward()
    assert w.grad.dtype is svod.float32
    assert_close(w.grad, np.full(3, 2, np.float32))
    h = Tensor(np.ones((4, 300), np.float16), requires_grad=True)
    b = Tensor(np.ones((1, 300), np.float16), requires_grad=True)
    (h * b).sum().backward()
    assert b.grad.dtype is svod.float16
    assert_close(b.grad, np.full((1, 300), 4, np.float16))


def test_an_assigned_value_passes_gradients() -> None:
    w = leaf(3)
    y = svod.zeros(3).contiguous().realize()
    y.assign(w * 2)
    (y * 3).sum().backward()
    assert_close(w.grad, np.full(3, 6, np.float32))


def test_a_copy_brings_the_gradient_back() -> None:
    w = leaf(3)
    (w.to("CPU:1") * 2).sum().backward()
    assert w.grad.device == w.device
    assert O.COPY in {n.op for n in w.grad.uop.toposort()}
    assert_close(w.grad, np.full(3, 2, np.float32))


# -- functional --------------------------------------------------------------------------------


def test_grad_and_value_and_grad() -> None:
    x = Tensor([1.0, 2.0])
    assert_close(svod.grad(lambda t: (t * t).sum())(x), np.float32([2, 4]))
    value, found = svod.value_and_grad(lambda t: (t * t).sum())(x)
    assert value.item() == 5
    assert_close(found, np.float32([2, 4]))


def test_grad_of_several_arguments_and_of_the_same_tensor_twice() -> None:
    x = Tensor([1.0, 2.0])
    a, b = svod.grad(lambda s, t: (s * s * t).sum(), argnums=(0, 1))(x, x)
    assert_close(a, np.float32([2, 8]))
    assert_close(b, np.float32([1, 4]))


def test_grad_of_trees() -> None:
    parameters = {"w": Tensor([[1.0, 2.0]]), "b": [Tensor([3.0]), Tensor([4.0])]}

    def loss(p: Any, x: Tensor) -> Tensor:
        return (x @ p["w"] + p["b"][0]).sum()

    found = svod.grad(loss)(parameters, Tensor([[2.0], [3.0]]))
    assert_close(found["w"], np.float32([[5, 5]]))
    assert_close(found["b"], [np.float32([4]), np.float32([0])])


def test_grad_with_auxiliary_values() -> None:
    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y.sum(), y

    found, aux = svod.grad(loss, has_aux=True)(Tensor([1.0, 2.0]))
    assert_close(found, np.float32([2, 2]))
    assert_close(aux, np.float32([2, 4]))


def test_grad_of_a_function_that_realises_on_the_way() -> None:
    def loss(x: Tensor) -> Tensor:
        y = x * x
        if y.sum().item() > 0:
            y = (y * 2).realize()
        return y.sum()

    alive = history.leaves()
    for t in alive:  # other tests may have left some; without any it must work as well
        t.requires_grad_(False)
    try:
        assert_close(svod.grad(loss)(Tensor([1.0, 2.0])), np.float32([4, 8]))
    finally:
        for t in alive:
            t.requires_grad_()


def test_custom_gradient() -> None:
    @svod.custom_gradient
    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * 1.0

    @scaled.backward
    def _(grad: Tensor, output: Tensor, x: Tensor, factor: float) -> Tensor:
        return grad * factor

    w = leaf(3)
    loss = (scaled(w, 2.0) + scaled(scaled(w, 3.0), 5.0)).sum()
    loss.item()
    loss.backward()
    assert_close(w.grad, np.full(3, 17, np.float32))


def test_custom_gradient_of_two_arguments_uses_its_output() -> None:
    @svod.custom_gradient
    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @product.backward
    def _(grad: Tensor, output: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return grad * output, grad * x

    a, b = leaf(3), leaf(3, seed=1)
    product(a, b).sum().backward()
    assert_close(a.grad, a.numpy() * b.numpy(), rtol=1e-6)
    assert_close(b.grad, a.numpy())


def test_gradcheck_finds_a_wrong_gradient() -> None:
    with pytest.raises(AssertionError, match="gradient of input 0"):
        gradcheck(lambda x: x * x.detach(), [normal(3)], compiled=False)


def test_assert_close_knows_dtypes() -> None:
    assert_close(Tensor([1.0]), np.float32([1.000001]))
    assert_close({"a": [Tensor([1])]}, {"a": [np.array([1])]})
    with pytest.raises(AssertionError, match=r"1 of 2 differ; at \(1,\)"):
        assert_close(Tensor([1.0, 2.0]), np.float32([1, 2.1]))
    with pytest.raises(AssertionError, match="shape"):
        assert_close(Tensor([1.0]), np.float32([[1]]))
    with pytest.raises(AssertionError, match="float32"):
        assert_close(Tensor([1.0]), np.float64([1]))
