"""scan: results and gradients equal the loop written out, and the loop is a few kernels."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import DTypeError, GraphError, ShapeError
from svod.tensor.core.tracing import TracedValueError

RNG = np.random.default_rng(7)
T, B, H = 9, 3, 5
X = RNG.standard_normal((T, B, H))
W = RNG.standard_normal((H, H)) / 2
V = RNG.standard_normal((H, H)) / 2
BIAS = RNG.standard_normal(H)
START = RNG.standard_normal((B, H))

Step = Callable[[Any, Any], tuple[Any, Any]]


def unrolled(step: Step, init: Any, xs: Any, length: int, reverse: bool = False) -> tuple[Any, Any]:
    """The reference: one step after the other in the graph."""
    ys: list[Any] = [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        init, ys[t] = step(init, _at(xs, t))
    return init, _stacked(ys)


def _at(xs: Any, t: int) -> Any:
    if xs is None:
        return None
    if isinstance(xs, (tuple, list)):
        return type(xs)([_at(x, t) for x in xs])
    return {k: _at(x, t) for k, x in xs.items()} if isinstance(xs, dict) else xs[t]


def _stacked(ys: list[Any]) -> Any:
    if ys[0] is None:
        return None
    if isinstance(ys[0], (tuple, list)):
        return tuple([_stacked([y[i] for y in ys]) for i in range(len(ys[0]))])
    if isinstance(ys[0], dict):
        return {k: _stacked([y[k] for y in ys]) for k in ys[0]}
    return svod.stack(ys, 0)


def leaves(tree: Any) -> list[Tensor]:
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for k in sorted(tree) for leaf in leaves(tree[k])]
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def rnn(w: Tensor, bias: Tensor) -> Step:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = (h @ w.T + x + bias).tanh()
        return h, h

    return step


def two_products(w: Tensor, bias: Tensor) -> Step:
    """Carries that need each other's old values, outputs that need new ones."""

    def step(state: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Any]:
        a, b = state["a"], state["b"]
        new = {"a": (b @ w + x).tanh(), "b": (a * bias).sigmoid() + b.mean()}
        return new, (new["a"] @ w, [a * x, new["b"].sum(1)])

    return step


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Step], Callable[[Tensor], Any]]] = {
    "rnn": (rnn, lambda h: h),
    "two carries": (two_products, lambda h: {"a": h, "b": h * 2}),
    "no y": (lambda w, b: lambda h, x: (h * 0.9 + (x @ w) * b, None), lambda h: h),
    "swapped carries": (
        lambda w, b: lambda s, x: ((s[1], s[0] * b + x), s[0] @ w),
        lambda h: (h, h + 1),
    ),
    "outputs that do not depend": (
        lambda w, b: lambda h, x: (h + x, (x, w.sum(0), svod.ones(2) * 3, h)),
        lambda h: h,
    ),
    "the counter as a carry": (
        lambda w, b: lambda s, x: ((s[0] + 1, s[1] + x * s[0]), s[0]),
        lambda h: (Tensor(0), h),
    ),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_scan_equals_the_loop_written_out(name: str, reverse: bool) -> None:
    make, start = CASES[name]
    step = make(Tensor(W), Tensor(BIAS))
    found = svod.scan(step, start(Tensor(START)), Tensor(X), reverse=reverse)
    wanted = unrolled(step, start(Tensor(START)), Tensor(X), T, reverse)
    svod.realize(*leaves(found))
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_those_of_the_loop_written_out(name: str, reverse: bool) -> None:
    make, start = CASES[name]

    def loss(p: list[Tensor], run: Callable[..., Any]) -> Tensor:
        result = run(make(p[2], p[3]), start(p[0]), p[1])
        total = Tensor(0.0, dtype=svod.float64)
        for number, leaf in enumerate(leaves(result)):
            if leaf.dtype.kind == "f":
                total = total + ((leaf * (number + 1)).sin()).sum()
        return total

    def scanned(*args: Any) -> Any:
        return svod.scan(*args, reverse=reverse)

    def written_out(*args: Any) -> Any:
        return unrolled(*args, T, reverse)

    given = [Tensor(a) for a in (START, X, W, BIAS)]
    found = svod.grad(lambda p: loss(p, scanned))(given)
    wanted = svod.grad(lambda p: loss(p, written_out))(given)
    svod.realize(*found)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-10)


def test_second_gradients() -> None:
    def penalty(w: Tensor, run: Callable[..., Any]) -> Tensor:
        def loss(w: Tensor) -> Tensor:
            return run(rnn(w, Tensor(BIAS)), Tensor(START), Tensor(X))[1].square().sum()

        return svod.grad(loss)(w).square().sum()

    found = svod.grad(lambda w: penalty(w, svod.scan))(Tensor(W)).numpy()
    wanted = svod.grad(lambda w: penalty(w, lambda *a: unrolled(*a, T)))(Tensor(W)).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_backward_fills_the_gradients_of_captured_parameters() -> None:
    w = Tensor(W, requires_grad=True)
    svod.scan(rnn(w, Tensor(BIAS)), Tensor(START), Tensor(X))[0].sum().backward()
    other = Tensor(W, requires_grad=True)
    unrolled(rnn(other, Tensor(BIAS)), Tensor(START), Tensor(X), T)[0].sum().backward()
    assert w.grad is not None and other.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), other.grad.numpy(), atol=1e-12)


def test_gradients_of_constants() -> None:
    def loss(w: Tensor, run: Callable[..., Any]) -> Tensor:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, None]:
            return (h @ w + x).tanh(), None

        return run(step, svod.zeros(1, 3), svod.ones(5, 1, 3))[0].sum()

    found = svod.grad(lambda w: loss(w, svod.scan))(svod.eye(3) * 0.5).numpy()
    wanted = svod.grad(lambda w: loss(w, lambda *a: unrolled(*a, 5)))(svod.eye(3) * 0.5).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_scans_inside_scans() -> None:
    def outer(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def inner(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            c = (c * row + h.mean(0)).tanh()
            return c, c

        last, ys = svod.scan(inner, Tensor(BIAS), x)
        return h + ys * last, ys.sum()

    def outer_unrolled(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def inner(c: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            c = (c * row + h.mean(0)).tanh()
            return c, c

        last, ys = unrolled(inner, Tensor(BIAS), x, B)
        return h + ys * last, ys.sum()

    found = svod.scan(outer, Tensor(START), Tensor(X))
    wanted = unrolled(outer_unrolled, Tensor(START), Tensor(X), T)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)
    a = svod.grad(lambda s: svod.scan(outer, s, Tensor(X))[0].square().sum())(Tensor(START))
    b = svod.grad(lambda s: unrolled(outer_unrolled, s, Tensor(X), T)[0].square().sum())(
        Tensor(START)
    )
    np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-9)


def test_a_scan_after_a_scan_and_an_input_computed_before() -> None:
    step = rnn(Tensor(W), Tensor(BIAS))
    x = Tensor(X).exp() @ Tensor(V)
    found = svod.scan(step, Tensor(START), svod.scan(step, Tensor(START) * 2, x)[1])[1]
    wanted = unrolled(
        step, Tensor(START), unrolled(step, Tensor(START) * 2, Tensor(X).exp() @ Tensor(V), T)[1], T
    )[1]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-12)


def test_lengths() -> None:
    last, ys = svod.scan(lambda c, _: (c * 2, c), Tensor(1.0), None, length=5)
    assert (last.item(), ys.tolist()) == (32.0, [1.0, 2.0, 4.0, 8.0, 16.0])
    last, ys = svod.scan(lambda c, x: (c + x, c * x), Tensor(1.0), Tensor([3.0]))
    assert (last.item(), ys.tolist()) == (4.0, [3.0])
    last, ys = svod.scan(lambda c, x: (c + x, c * x), Tensor(1.0), svod.zeros(0))
    assert last.item() == 1.0 and ys.shape == (0,)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_plan_serves_run_time_lengths_and_batches(reverse: bool) -> None:
    steps, rows = svod.Variable("steps", 0, T), svod.Variable("rows", 1, B)
    xs = Tensor.empty((T, B, H), dtype="float64").realize()[:steps, :rows]
    start = Tensor.empty((B, H), dtype="float64").realize()[:rows]
    shift = Tensor.empty((B, H), dtype="float64").realize()[:rows]
    w = Tensor(W)

    def step(state: Any, x: Any) -> Any:
        new = (x + state @ w + shift).tanh()
        return new, (new * 2, state)

    last, (twice, before) = svod.scan(step, start, xs, reverse=reverse)
    given = {"xs": xs, "start": start, "shift": shift}
    plan = svod.prepare(last, twice, before, inputs=given)
    for t, b in ((4, 2), (T, B), (1, 1), (0, 3)):
        state, found = START[:b], []
        for x in X[:t, :b][:: -1 if reverse else 1]:
            found.append(state)
            state = np.tanh(x + state @ W + START[:b])
        found.append(state)
        results = plan(xs=X[:t, :b], start=START[:b], shift=START[:b])
        order = slice(None, None, -1 if reverse else 1)
        np.testing.assert_allclose(results[0], state)
        np.testing.assert_allclose(results[1], 2 * np.array(found[1:]).reshape(t, b, H)[order])
        np.testing.assert_allclose(results[2], np.array(found[:-1]).reshape(t, b, H)[order])


def test_gradients_of_a_run_time_length() -> None:
    steps = svod.Variable("steps", 1, T)
    xs = Tensor.empty((T, B, H), dtype="float64").realize()[:steps]
    w = Tensor(W).realize().requires_grad_(True)

    def loss(xs: Any, length: Any) -> Any:
        _, ys = svod.scan(lambda s, x: ((x + s @ w).tanh(),) * 2, Tensor(START), xs, length)
        return (ys * ys).sum()

    plan = svod.prepare(svod.autograd.grad(loss(xs, steps), [w])[0], inputs={"xs": xs})
    for t in (4, 1, T):
        (wanted,) = svod.autograd.grad(loss(Tensor(X[:t]), t), [w])
        np.testing.assert_allclose(plan(xs=X[:t]), wanted.numpy(), rtol=1e-12)


def test_a_carry_may_be_overwritten_after_the_loop_has_read_it() -> None:
    state = Tensor(START).realize()
    before = state.clone().realize()
    last, ys = svod.scan(rnn(Tensor(W), Tensor(BIAS)), state, Tensor(X))
    state.assign(last)
    svod.realize(state, ys)
    wanted = unrolled(rnn(Tensor(W), Tensor(BIAS)), before, Tensor(X), T)
    np.testing.assert_allclose(state.numpy(), wanted[0].numpy(), atol=1e-12)
    np.testing.assert_allclose(ys.numpy(), wanted[1].numpy(), atol=1e-12)


# -- cost ------------------------------------------------------------------------------------


def test_a_loop_is_a_handful_of_kernels() -> None:
    lstm = nn.LSTM(8, 16)
    plan = lstm(svod.ones(512, 2, 8))[0].prepare()
    assert len({id(k.program) for k in plan.kernels()}) <= 8
    assert len(plan.prepared_kernels()) <= 3 * 512 + 5
    assert plan.is_native


def test_an_equal_scan_is_found_in_the_schedule_cache() -> None:
    from svod.schedule.schedule import schedules

    def run() -> Tensor:
        return svod.scan(rnn(Tensor(W), Tensor(BIAS)), Tensor(START), Tensor(X))[1].realize()

    run()
    before = schedules.misses
    run()
    assert schedules.misses == before


# -- what is refused -------------------------------------------------------------------------


def test_values_inside_the_body_are_refused() -> None:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return (c + x, x) if c.sum() > 0 else (c, x)

    with pytest.raises(TracedValueError, match="scan: the function asks for the values"):
        svod.scan(step, Tensor(0.0), svod.ones(3))
    with pytest.raises(TracedValueError, match="while it is being recorded"):
        svod.scan(lambda c, x: (c + x.item(), x), Tensor(0.0), svod.ones(3))
    assert svod.scan(lambda c, x: (c + x, x), Tensor(0.0), svod.ones(3))[0].item() == 3.0


def test_values_from_outside_may_be_read() -> None:
    y = svod.ones(3) * 2
    assert svod.scan(lambda c, x: (c + x * y.sum().item(), x), Tensor(0.0), y)[0].item() == 36.0


def test_bad_arguments_are_refused() -> None:
    one = Tensor(1.0)
    with pytest.raises(ShapeError, match=r"comes out as float32\[2\]"):
        svod.scan(lambda c, x: (svod.ones(2), x), one, svod.ones(3))
    with pytest.raises(ShapeError, match=r"goes in as int32\[\] and comes out as float32\[\]"):
        svod.scan(lambda c, x: (c + x, x), Tensor(1, dtype="int32"), svod.ones(3))
    with pytest.raises(ShapeError, match=r"the form \(\*, \*\), the function returned \*"):
        svod.scan(lambda c, x: (c[0], x), (one, one), svod.ones(3))
    with pytest.raises(DTypeError, match=r"must return \(carry, y\)"):
        svod.scan(lambda c, x: c, one, svod.ones(3))
    with pytest.raises(ShapeError, match="without sequences it needs a length"):
        svod.scan(lambda c, x: (c, x), one)
    with pytest.raises(ShapeError, match=r"the length differ: \[3, 4\]"):
        svod.scan(lambda c, x: (c, x), one, (svod.ones(3), svod.ones(4)))
    with pytest.raises(ShapeError, match="needs an axis of time"):
        svod.scan(lambda c, x: (c, x), one, one)
    with pytest.raises(DTypeError, match="init holds a str"):
        svod.scan(lambda c, x: (c, x), "one", one)


def test_assignment_inside_the_body_is_refused() -> None:
    cache = svod.zeros(3).realize()

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return c + x, cache.assign(x.expand(3))

    with pytest.raises(GraphError, match="make it a carry"):
        svod.scan(step, Tensor(0.0), svod.ones(3))[1].numpy()


# -- recurrent modules -----------------------------------------------------------------------


def test_an_lstm_learns_a_sine_wave() -> None:
    example = Path(__file__).parents[2] / "examples" / "lstm_sine.py"
    losses = runpy.run_path(str(example))["main"](steps=60, length=32)
    assert losses[-1] < 0.1 * losses[0]


def test_each_step_draws_new_random_numbers() -> None:
    def step(carry, x):
        return carry, svod.rand(3)

    svod.manual_seed(3)
    _, found = svod.scan(step, Tensor(0.0), length=5)
    svod.manual_seed(3)
    wanted = svod.rand(5, 3)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    later = svod.rand(3)
    svod.manual_seed(3)
    svod.scan(step, Tensor(0.0), length=5)
    np.testing.assert_array_equal(svod.rand(3).numpy(), later.numpy())


def test_random_numbers_in_loops_inside_loops_and_plans() -> None:
    def inner(carry, x):
        drawn = svod.rand(4)
        return carry + drawn.sum(), drawn

    def outer(carry, x):
        last, drawn = svod.scan(inner, carry, length=3)
        return last, (drawn, svod.randn(2))

    run = svod.jit(lambda start: svod.scan(outer, start, length=2))
    seen = []
    for _ in range(3):
        last, (drawn, others) = run(Tensor(0.0))
        np.testing.assert_allclose(last.item(), drawn.numpy().sum(), rtol=1e-5)
        seen += [*drawn.numpy().reshape(-1), *others.numpy().reshape(-1)]
    assert run.plans == 1
    assert len(set(seen)) == len(seen) == 3 * 2 * (3 * 4 + 2)


def test_gradients_see_the_random_numbers_of_their_step() -> None:
    w = Tensor(np.ones(4, np.float32), requires_grad=True)

    def step(carry, x):
        return carry, (w * x).dropout(0.5, True)

    _, dropped = svod.scan(step, Tensor(0.0), Tensor(np.ones((6, 4), np.float32)))
    dropped.sum().backward()
    found = dropped.numpy()
    assert len({tuple(row) for row in found.tolist()}) > 1
    np.testing.assert_array_equal(w.grad.numpy(), found.sum(0))
