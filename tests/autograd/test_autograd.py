"""svod.autograd where torch has no say: recorded functions, loops, realised values, lazy graphs."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.autograd import Function, functional, grad, gradcheck, gradgradcheck
from svod.base.errors import ConfigError, DTypeError, ShapeError, UnsupportedError
from svod.ir.sweep import sweep
from svod.schedule.cache import cache_statistics
from svod.tensor.gradients.reverse_mode import GradientError

X = np.array([0.5, -1.25, 2.0])


def leaf(values: Any = X) -> Tensor:
    return Tensor(np.array(values)).requires_grad_()


class Cubed(Function):
    """x**3, with a gradient that is a third of the true one, to be told from it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * x * ctx.scale, None


class Halves(Function):
    """Two results whose gradients must come together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x * 0.5, x + 1.0

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
        return g * h


# -- functions -------------------------------------------------------------------------------------


def test_function_inside_jit() -> None:
    @svod.jit
    def slope(x: Tensor) -> Tensor:
        x = x.requires_grad_()
        (g,) = svod.autograd.grad(Cubed.apply(x, 2.0).sum(), x)
        return g

    for k in (1.0, 2.0, 3.0):
        assert np.allclose(slope(Tensor(X * k)).numpy(), 2 * (X * k) ** 2)


def test_function_in_a_training_step_of_jit() -> None:
    w = leaf([1.0, 2.0])
    optimizer = svod.nn.optim.SGD([w], lr=0.1)

    @svod.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = Cubed.apply(w * x, 1.0).sum()
        loss.backward()
        optimizer.step()
        return loss

    expected = np.array([1.0, 2.0])
    for k in (1.0, 0.5, 2.0):
        step(Tensor(np.array([k, k])))
        expected = expected - 0.1 * (expected * k) ** 2 * k
        assert np.allclose(w.numpy(), expected)


def test_function_inside_scan() -> None:
    x = leaf(np.array([1.0, 2.0]))
    xs = Tensor(np.array([[1.0, 2.0], [0.5, 0.25], [2.0, 1.0]]))

    def step(carry: Tensor, t: Tensor) -> Any:
        carry = Cubed.apply(carry * t, 0.5)
        return carry, carry

    last, _ = svod.scan(step, x, xs)
    last.sum().backward()
    value, slope = np.array([1.0, 2.0]), np.ones(2)
    for t in xs.numpy():
        slope = slope * (value * t) ** 2 * 0.5 * t
        value = (value * t) ** 3 * 0.5
    assert np.allclose(last.numpy(), value)
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), slope)


def test_function_inside_grad_of_a_function() -> None:
    found = svod.grad(lambda x: Cubed.apply(x, 3.0).sum())(Tensor(X))
    assert np.allclose(found.numpy(), 3 * X**2)


@pytest.mark.parametrize("which", [(), (0,), (1,), (0, 1)])
def test_results_received_together_though_some_are_realised(which: tuple[int, ...]) -> None:
    x = leaf()
    results = Halves.apply(x * 2)
    for i in which:
        results[i].realize()
    (3 * results[0] + results[1] * results[1]).sum().backward()
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), 2 * 3 * 2 * (2 * X + 1))


def test_equal_calls_keep_their_contexts() -> None:
    x = leaf()
    a, b = Cubed.apply(x, 1.0), Cubed.apply(x, 1.0)
    (a * 2 + b * 3).sum().backward()
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), 5 * X**2)


def test_function_need_not_depend_on_an_argument() -> None:
    class Constant(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return y * 1.0

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g * 7, g

    x, y = leaf(), leaf()
    Constant.apply(x, y).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [7.0, 7.0, 7.0]


def test_function_of_complex_numbers() -> None:
    class Turned(Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return z * 1j

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            assert g.dtype.is_complex
            return g * -1j

    values = np.array([1 + 2j, -0.5j])
    z, direct = leaf(values), leaf(values)
    (Turned.apply(z) * Tensor(np.array([2 - 1j, 1j]))).real.sum().backward()
    (direct * 1j * Tensor(np.array([2 - 1j, 1j]))).real.sum().backward()
    assert z.grad is not None and direct.grad is not None
    assert np.allclose(z.grad.numpy(), direct.grad.numpy())


def test_calls_are_forgotten() -> None:
    seen: list[Any] = []

    class Watched(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append(ref(ctx))
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 2

    x = leaf()
    Watched.apply(x).sum().backward()
    x.grad = None
    sweep()
    gc.collect()
    assert seen[0]() is None


def test_schedules_are_shared_by_calls() -> None:
    x = leaf()
    misses = []
    for _ in range(3):
        Cubed.apply(x, 2.0).sum().backward()
        assert x.grad is not None
        x.grad.realize()
        x.grad = None
        misses.append(cache_statistics()["schedules"].misses)
    assert misses[1] == misses[2]


# -- tensors inside a graph ------------------------------------------------------------------------


def test_grad_of_a_realised_tensor_inside() -> None:
    x = leaf()
    y = (x * 2).realize()
    z = (y * y).realize()
    (found,) = svod.autograd.grad(z.sum(), y)
    assert np.allclose(found.numpy(), 4 * X)


def test_a_view_whose_uses_cannot_be_told_apart_is_refused() -> None:
    x = leaf()
    y = x.reshape(3, 1)
    loss = (y.reshape(1, 3) * 2).sum() + x.sum()
    with pytest.raises(GradientError, match="retain_grad"):
        svod.autograd.grad(loss, y)
    part = (x * 2)[:2]
    with pytest.raises(GradientError, match="retain_grad"):
        svod.autograd.grad(part[0], part)
    y = x.reshape(3, 1)
    y.retain_grad()
    loss = (y.reshape(1, 3) * 2).sum() + x.sum()
    (found,) = svod.autograd.grad(loss, y)
    assert found.tolist() == [[2.0], [2.0], [2.0]]


def test_grad_of_the_result_of_a_convolution() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 6, 6)))
    w = leaf(np.random.default_rng(1).normal(size=(4, 3, 3, 3)))
    features = x.conv2d(w)
    (found,) = svod.autograd.grad((features.flatten(1) ** 2).sum(), features)
    assert np.allclose(found.numpy(), 2 * features.numpy())


# -- hooks -----------------------------------------------------------------------------------------


def test_hook_runs_though_its_tensor_is_gone() -> None:
    seen: list[Any] = []
    x = leaf()

    def inner() -> Tensor:
        y = x * 2
        y.register_hook(lambda g: seen.append(g.tolist()))
        return y.exp()

    loss = inner().sum()
    gc.collect()
    loss.backward()
    assert np.allclose(seen, [np.exp(2 * X)])


def test_hook_of_a_tensor_realised_before_and_after() -> None:
    for first in (True, False):
        x = leaf()
        y = x * 2
        if first:
            y.realize()
        y.register_hook(lambda g: g * 5)
        y.retain_grad()
        if not first:
            y.realize()
        (y * y).realize().sum().backward()
        assert x.grad is not None and y.grad is not None
        assert np.allclose(y.grad.numpy(), 5 * 4 * X)
        assert np.allclose(x.grad.numpy(), 2 * 5 * 4 * X)


def test_hook_belongs_to_one_of_equal_tensors() -> None:
    x = leaf()
    a, b = x * 2, x * 2
    a.register_hook(lambda g: g * 10)
    (a + b).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [22.0, 22.0, 22.0]


def test_hook_of_a_leaf_that_is_used_under_another_name() -> None:
    x = leaf()
    same = x.reshape(3)
    same.register_hook(lambda g: g * 10)
    (x + same).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [11.0, 11.0, 11.0]


def test_hook_must_keep_the_shape() -> None:
    x = leaf()
    x.register_hook(lambda g: g[:2])
    with pytest.raises(ShapeError, match="hook"):
        x.sum().backward()
    with pytest.raises(DTypeError, match="function"):
        x.register_hook(3)  # type: ignore[arg-type]


def test_handle_is_a_block() -> None:
    x = leaf()
    with x.register_hook(lambda g: g * 2):
        x.sum().backward()
    x.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_module_hooks_of_a_model_inside_jit() -> None:
    model = svod.nn.Sequential(svod.nn.Linear(3, 4), svod.nn.Tanh(), svod.nn.Linear(4, 2))
    model[2].register_full_backward_hook(lambda m, given, received: (given[0] * 0,))

    @svod.jit
    def slopes(x: Tensor) -> Any:
        model.zero_grad()
        model(x).sum().backward()
        return model[0].weight.grad, model[2].weight.grad

    first, last = slopes(Tensor(np.ones((5, 3), np.float32)))
    assert not first.numpy().any()
    assert last.numpy().any()


# -- modes -----------------------------------------------------------------------------------------


def test_set_grad_enabled_off_and_on_again_cuts_what_was_made() -> None:
    w = leaf()
    svod.set_grad_enabled(False)
    try:
        y = w * 2
        w -= 1
    finally:
        svod.set_grad_enabled(True)
    (w * y).sum().backward()
    assert w.grad is not None
    assert np.allclose(w.grad.numpy(), 2 * X)
    assert np.allclose(w.numpy(), X - 1)


# -- empty tensors ---------------------------------------------------------------------------------


def test_gradients_of_what_has_no_elements() -> None:
    w = leaf(np.ones((3, 2)))
    layer = svod.nn.BatchNorm2d(3)
    for make in (
        lambda: (svod.zeros(0, 3).double() @ w).sum(),
        lambda: (svod.zeros(0, 3).double() @ w).sum(0).sum(),
        lambda: w[:0].sum(),
        lambda: w[:0].pad(((1, 1), (0, 0))).sum(),
        lambda: w[:0].prod() * 2,
    ):
        w.grad = None
        make().backward()
        assert w.grad is not None
        assert w.grad.shape == (3, 2)
        assert not w.grad.numpy().any()
    layer.eval()
    layer(svod.zeros(0, 3, 4, 4)).sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.numpy().any()


def test_empty_complex_tensor() -> None:
    z = leaf(np.zeros((0, 2), np.complex128))
    z.sum(0).abs().sum().backward()
    assert z.grad is not None
    assert z.grad.shape == (0, 2)


# -- derivatives of functions ----------------------------------------------------------------------


def test_jacobian_goes_row_by_row_where_a_loop_cannot_be_batched() -> None:
    def running(x: Tensor) -> Tensor:
        _, ys = svod.scan(lambda c, t: (c * 0.5 + t * t, c + t), Tensor(np.array(0.0)), x)
        return ys

    found = functional.jacobian(running, Tensor(X)).numpy()
    wanted = np.zeros((3, 3))
    for i in range(3):
        for j in range(i):
            wanted[i, j] = 2 * X[j] * 0.5 ** (i - 1 - j)
        wanted[i, i] = 1
    assert np.allclose(found, wanted)


def test_jacobian_of_a_function_with_its_own_gradient() -> None:
    found = functional.jacobian(lambda x: Cubed.apply(x, 1.0), Tensor(X))
    assert np.allclose(found.numpy(), np.diag(X**2))
    kept = functional.jacobian(lambda x: Cubed.apply(x, 1.0), leaf(), create_graph=True)
    assert np.allclose(kept.numpy(), np.diag(X**2))


def test_functional_inside_jit() -> None:
    @svod.jit
    def curvature(x: Tensor) -> Tensor:
        return functional.hessian(lambda a: (a**3).sum() * a[0], x)

    for k in (1.0, 2.0):
        x = X * k
        wanted = np.diag(6 * x * x[0])
        wanted[0] += 3 * x**2
        wanted[:, 0] += 3 * x**2
        assert np.allclose(curvature(Tensor(x)).numpy(), wanted)


def test_jacobian_refuses_integers_and_complex_numbers() -> None:
    with pytest.raises(DTypeError, match="int64"):
        functional.jacobian(lambda x: x, Tensor(np.array([1, 2])))
    with pytest.raises(DTypeError, match="real"):
        functional.jacobian(lambda x: x * 1j, Tensor(X))


def test_gradcheck_and_gradgradcheck() -> None:
    a, b = leaf(np.random.default_rng(0).normal(size=(2, 3))), leaf()
    assert gradcheck(lambda a, b: (a.exp() @ b, a.sum()), (a, b))
    assert gradgradcheck(lambda a, b: (a.exp() @ b, a.sum()), (a, b))
    assert gradgradcheck(lambda a, b: a.exp() @ b, (a, b), leaf(np.array([1.0, -2.0])))
    with pytest.raises(svod.autograd.GradcheckError, match="output 0 by input 0"):
        gradcheck(lambda x: Cubed.apply(x, 1.0), leaf())
    assert not gradcheck(lambda x: Cubed.apply(x, 1.0), leaf(), raise_exception=False)
    with pytest.raises(ConfigError, match="requires"):
        gradcheck(lambda x: x, Tensor(X))


# -- batches ---------------------------------------------------------------------------------------


def test_vmap_scatters_and_gathers_with_indices_of_the_batch() -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 3))
    rows = np.array([[0, 2], [1, 1], [4, 3], [2, 0]])
    values = np.random.default_rng(1).normal(size=(4, 2, 3))
    vmap = svod.func.vmap
    added = vmap(lambda a, i, v: a.index_add(0, i, v))(Tensor(x), Tensor(rows), Tensor(values))
    wanted = x.copy()
    for n in range(4):
        np.add.at(wanted[n], rows[n], values[n])
    assert np.allclose(added.numpy(), wanted)
    shared = vmap(lambda v: Tensor(x[0]).index_add(0, Tensor(rows[0]), v))(Tensor(values))
    wanted = np.repeat(x[:1], 4, 0)
    for n in range(4):
        np.add.at(wanted[n], rows[0], values[n])
    assert np.allclose(shared.numpy(), wanted)
    taken = vmap(lambda i: Tensor(x[0])[i])(Tensor(rows))
    assert np.allclose(taken.numpy(), x[0][rows])


def test_vmap_lets_gradients_through() -> None:
    x = leaf(np.random.default_rng(0).normal(size=(4, 3)))
    svod.func.vmap(lambda a: (a**3).sum())(x).sum().backward()
    assert x.grad is not None
    assert np.allclose(x.grad.numpy(), 3 * x.numpy() ** 2)


def test_vmap_refuses_what_it_cannot_batch() -> None:
    vmap = svod.func.vmap
    x = leaf(np.ones((2, 3)))
    with pytest.raises(UnsupportedError, match="own"):
        vmap(lambda a: Cubed.apply(a, 1.0))(x)
    with pytest.raises(ShapeError, match="batches"):
        vmap(lambda a, b: a + b)(x, Tensor(np.ones((3, 3))))
    with pytest.raises(TypeError, match="vmap"):
        vmap(lambda a: a * 2 if a.sum() > 0 else a)(x)
    with pytest.raises(ConfigError, match="randomness"):
        vmap(lambda a: a, randomness="different")


def test_a_leaf_is_no_other_tensor_over_the_same_memory() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    triple = x * 3
    leaf = x.detach().requires_grad_()
    for other, wanted in ((x, [1, 2, 3]), (triple, [3, 6, 9]), (x.reshape(3, 1)[:, 0], [1, 2, 3])):
        assert grad((leaf * other).sum(), [leaf])[0].tolist() == wanted
    assert x.requires_grad_() is x and not triple.requires_grad
    assert grad((x * triple).sum(), [x])[0].tolist() == [3, 6, 9]


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_leaf_that_is_written_shows_in_what_it_is_an_alias_of(is_copied: bool) -> None:
    x = Tensor([1.0, 2.0]).realize()
    leaf = (x.clone() if is_copied else x.detach()).requires_grad_()
    (leaf * leaf).sum().backward()
    svod.nn.optim.SGD([leaf], lr=0.5).step()
    assert leaf.tolist() == [0.0, 0.0]
    assert x.tolist() == ([1.0, 2.0] if is_copied else [0.0, 0.0])
