"""Programs that run under torch and under Svod: each gives arrays, None and errors by name.

``python -m tests.autograd.record`` writes what torch gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

X = np.array([0.5, -1.25, 2.0])
W = np.array([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]])
Case = Callable[[Any], list[Any]]
CASES: dict[str, Case] = {}


def case(program: Case) -> Case:
    CASES[program.__name__] = program
    return program


def leaf(lib: Any, values: Any) -> Any:
    return lib.tensor(np.array(values)).requires_grad_()


def outcome(program: Callable[[], Any]) -> Any:
    """What a program gives, or that it raises one of torch's kinds of errors."""
    try:
        return program()
    except ValueError as error:
        return "RuntimeError" if isinstance(error, RuntimeError) else "ValueError"
    except RuntimeError:
        return "RuntimeError"


# -- grad and backward -----------------------------------------------------------------------------


@case
def grad_of_several_outputs(lib: Any) -> list[Any]:
    x, w = leaf(lib, X), leaf(lib, W)
    outputs = [(w @ x).sin(), (x * x).sum()]
    found = lib.autograd.grad(outputs, [x, w], [lib.tensor(np.array([1.0, -2.0])), None])
    return [*found, x.grad, w.grad]


@case
def grad_of_inner_tensors(lib: Any) -> list[Any]:
    x, w = leaf(lib, X), leaf(lib, W)
    hidden = w @ x
    shaped = (w * 2).reshape(3, 2)
    loss = (hidden.tanh().sum() + shaped.reshape(6).exp().sum()) ** 2
    return list(lib.autograd.grad(loss, [hidden, shaped, x]))


@case
def grad_penalty(lib: Any) -> list[Any]:
    x, w = leaf(lib, X), leaf(lib, W)
    (slope,) = lib.autograd.grad((w @ x).tanh().sum(), x, create_graph=True)
    ((slope.norm() - 1) ** 2).backward()
    return [w.grad, x.grad]


@case
def third_derivative(lib: Any) -> list[Any]:
    x = leaf(lib, X)
    found = []
    value = (x**5).sum() + x.sin().sum()
    for _ in range(3):
        (g,) = lib.autograd.grad(value, x, create_graph=True)
        found.append(g)
        value = g.sum()
    return found


@case
def grad_unused(lib: Any) -> list[Any]:
    x, other = leaf(lib, X), leaf(lib, W)
    loss = (x * x).sum()

    def grad(*args: Any, **options: Any) -> Any:
        return lib.autograd.grad(*args, retain_graph=True, **options)

    return [
        outcome(lambda: grad(loss, [x, other])),
        *grad(loss, [x, other], allow_unused=True),
        *grad(loss, [x, other], materialize_grads=True),
        outcome(lambda: grad(loss, [other], materialize_grads=True, allow_unused=False)),
    ]


@case
def grad_refusals(lib: Any) -> list[Any]:
    x, plain = leaf(lib, X), lib.tensor(X.copy())
    grad, backward = lib.autograd.grad, lib.autograd.backward
    return [
        outcome(lambda: grad(x * 2, x)),
        outcome(lambda: grad((x * 2).sum(), plain)),
        outcome(lambda: grad((plain * 2).sum(), x)),
        outcome(lambda: grad(x * 2, x, lib.tensor(np.ones(4)))),
        outcome(lambda: grad([x.sum(), x], x, [None])),
        outcome(lambda: backward(x * 2)),
        outcome(lambda: backward((plain * 2).sum())),
        outcome(lambda: plain.register_hook(print)),
        outcome(lambda: plain.retain_grad()),
    ]


@case
def grad_of_batched_seeds(lib: Any) -> list[Any]:
    x, w = leaf(lib, X), leaf(lib, W)
    seeds = lib.tensor(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]))
    return list(lib.autograd.grad((w @ x).exp(), [x, w], seeds, is_grads_batched=True))


@case
def backward_of_several(lib: Any) -> list[Any]:
    x, w = leaf(lib, X), leaf(lib, W)
    lib.autograd.backward([w @ x, x.sum()], [lib.tensor(np.array([1.0, 3.0])), None])
    lib.autograd.backward((x * x).sum(), inputs=[x])
    return [x.grad, w.grad]


@case
def empty_batch(lib: Any) -> list[Any]:
    x = lib.tensor(np.zeros((0, 3, 5, 5))).requires_grad_()
    w = leaf(lib, np.ones((2, 3, 3, 3)))
    b = leaf(lib, np.ones(2))
    found = lib.nn.functional.conv2d(x, w, b)
    found.sum().backward()
    y = leaf(lib, np.zeros((0, 3)))
    v = leaf(lib, X)
    ((y @ v).sum() * 2 + (v * v).sum()).backward()
    return [x.grad, w.grad, b.grad, y.grad, v.grad]


@case
def modes(lib: Any) -> list[Any]:
    x = leaf(lib, X)
    seen = []
    with lib.set_grad_enabled(False):
        seen += [lib.is_grad_enabled(), (x * 2).requires_grad]
        with lib.set_grad_enabled(True):
            seen += [lib.is_grad_enabled(), (x * 2).requires_grad]
        y = x * 3
    seen += [y.requires_grad, (x * 2).requires_grad]
    lib.set_grad_enabled(False)
    y = x * 3
    lib.set_grad_enabled(False)
    z = y * 2
    lib.set_grad_enabled(True)
    seen += [y.requires_grad, z.requires_grad, lib.is_grad_enabled()]

    @lib.set_grad_enabled(False)
    def plain(t: Any) -> Any:
        return t * 2

    seen += [lib.is_grad_enabled(), plain(x).requires_grad]
    with lib.no_grad():
        lib.set_grad_enabled(True)
        seen += [(x * 2).requires_grad]
    seen += [lib.is_grad_enabled(), (x * 2).requires_grad]
    return [np.array(seen)]


# -- hooks -----------------------------------------------------------------------------------------


@case
def tensor_hooks(lib: Any) -> list[Any]:
    x = leaf(lib, X)
    seen: list[Any] = []
    y = x * 2
    z = (y * y).sum()
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: seen.append(g))
    (inner,) = lib.autograd.grad(z, y, retain_graph=True)
    y.retain_grad()
    handle = x.register_hook(lambda g: g + 1)
    z.backward(retain_graph=True)
    first = x.grad
    x.grad = None
    handle.remove()
    z.backward()
    return [*seen, y.grad, first, x.grad, inner]


@case
def hooks_on_views(lib: Any) -> list[Any]:
    x = leaf(lib, W)
    turned = x.T
    turned.retain_grad()
    part = x[0]
    part.retain_grad()
    (
        turned.T.exp().sum() + x.sin().sum() + (part[1:] ** 2).sum() + (turned[0] ** 3).sum()
    ).backward()
    return [turned.grad, part.grad, x.grad]


@case
def accumulated_hooks(lib: Any) -> list[Any]:
    x = leaf(lib, X)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    (x * x).sum().backward()
    (x * 3).sum().backward()
    return seen


@case
def module_hooks(lib: Any) -> list[Any]:
    layer = lib.nn.Linear(3, 2).double()
    layer.load_state_dict({"weight": lib.tensor(W.copy()), "bias": lib.tensor(np.zeros(2))})
    seen: list[Any] = []

    def full(module: Any, given: Any, received: Any) -> Any:
        seen.extend([*given, *received])
        return None if given[0] is None else (given[0] * 2,)

    def before(module: Any, received: Any) -> Any:
        return (received[0] * 10,)

    handle = layer.register_full_backward_hook(full)
    layer.register_full_backward_pre_hook(before)
    x = leaf(lib, X[None])
    layer(x).sin().sum().backward()
    layer(lib.tensor(X[None].copy())).sum().backward()
    handle.remove()
    layer(x).sum().backward()
    return [*seen, x.grad, layer.weight.grad, layer.bias.grad]


# -- functions with their own gradient -------------------------------------------------------------


@case
def function_with_context(lib: Any) -> list[Any]:
    class Scaled(lib.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, factor: float) -> Any:
            product = a * b * factor
            ctx.save_for_backward(a, b, product)
            ctx.factor = factor
            ctx.needs = ctx.needs_input_grad
            return product, (a > 0), a + b

        @staticmethod
        def backward(ctx: Any, g: Any, unused: Any, h: Any) -> Any:
            a, b, product = ctx.saved_tensors
            assert ctx.needs == (True, True, False)
            # not linear in the gradients: both must come together
            return g * b * ctx.factor + h * g, g * a * ctx.factor + product * h, None

    a, b = leaf(lib, X), leaf(lib, X[::-1].copy())
    product, positive, total = Scaled.apply(a, b, 1.5)
    flags = [product.requires_grad, positive.requires_grad, total.requires_grad]
    ((product**2).sum() + (total * 3).sum()).backward()
    return [product, positive, total, np.array(flags), a.grad, b.grad]


@case
def function_differentiated_twice(lib: Any) -> list[Any]:
    class Exponential(lib.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return x.exp()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (output,) = ctx.saved_tensors
            return g * output

    x = leaf(lib, X)
    (first,) = lib.autograd.grad((Exponential.apply(x * 2) ** 2).sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    return [first, second]


@case
def function_options(lib: Any) -> list[Any]:
    class Both(lib.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, materializes: bool) -> Any:
            ctx.set_materialize_grads(materializes)
            ctx.save_for_backward(None, x)
            rounded = x.round()
            ctx.mark_non_differentiable(rounded)
            return x * 2, x * 3, rounded

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any, r: Any) -> Any:
            assert ctx.saved_tensors[0] is None
            missing = 100.0 if h is None else float(h.abs().sum()) + float(r.abs().sum())
            return g * 2 + missing, None

    found = []
    for materializes in (True, False):
        x = leaf(lib, X)
        twice, _, rounded = Both.apply(x, materializes)
        found.append(np.array([twice.requires_grad, rounded.requires_grad]))
        twice.sum().backward()
        found.append(x.grad)
    with lib.no_grad():
        found.append(np.array([Both.apply(x, True)[0].requires_grad]))
    return found


@case
def function_refusals(lib: Any) -> list[Any]:
    class Wrong(lib.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, kind: str) -> Any:
            ctx.kind = kind
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if ctx.kind == "count":
                return g
            if ctx.kind == "no tensor":
                return g, g
            return (
                (g.reshape(1, 3, 1).expand(2, 3, 4), None) if ctx.kind == "wide" else (g[:2], None)
            )

    found: list[Any] = []
    for kind in ("count", "no tensor", "shape"):
        x = leaf(lib, X)
        found.append(outcome(lambda x=x, kind=kind: Wrong.apply(x, kind).sum().backward()))
    y = leaf(lib, X[None, :, None])
    Wrong.apply(y, "wide").sum().backward()
    return [*found, y.grad]


@case
def once_differentiable(lib: Any) -> list[Any]:
    class Once(lib.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @lib.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = leaf(lib, X)
    (g,) = lib.autograd.grad((Once.apply(x) ** 2).sum(), x, create_graph=True)
    return [g, outcome(lambda: lib.autograd.grad(g.sum(), x))]


@case
def function_changes_in_place(lib: Any) -> list[Any]:
    class Doubled(lib.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = leaf(lib, X)
    y = x * 3
    z = Doubled.apply(y)
    (y * z).sum().backward()
    return [z, np.array([z is y]), x.grad]


# -- functions of functions ------------------------------------------------------------------------


def _two(x: Any, w: Any) -> Any:
    return (w @ x).tanh(), (x * x).sum() * w[0]


@case
def jacobians(lib: Any) -> list[Any]:
    x, w = lib.tensor(X.copy()), lib.tensor(W.copy())
    functional = lib.autograd.functional
    found = [functional.jacobian(lambda a: a.exp() * a.sum(), x)]
    for row in functional.jacobian(_two, (x, w)):
        found += row
    for row in functional.jacobian(_two, (x, w), vectorize=True, strategy="forward-mode"):
        found += row
    return found


@case
def hessians(lib: Any) -> list[Any]:
    x, w = lib.tensor(X.copy()), lib.tensor(W.copy())
    functional = lib.autograd.functional

    def loss(a: Any, b: Any) -> Any:
        return ((b @ a).tanh() ** 2).sum() + (a**3).sum()

    found = [functional.hessian(lambda a: (a**4).sum() + a.prod(), x)]
    for row in functional.hessian(loss, (x, w)):
        found += row
    vectors = (lib.tensor(X[::-1].copy()), lib.tensor(W[::-1].copy()))
    for product in (functional.vhp, functional.hvp):
        value, parts = product(loss, (x, w), vectors)
        found += [value, *parts]
    return found


@case
def products(lib: Any) -> list[Any]:
    x, w = lib.tensor(X.copy()), lib.tensor(W.copy())
    functional = lib.autograd.functional
    seeds = (lib.tensor(np.array([1.0, -2.0])), lib.tensor(X[::-1].copy()))
    value, given = functional.vjp(_two, (x, w), seeds)
    found = [*value, *given]
    value, given = functional.jvp(_two, (x, w), (seeds[1], lib.tensor(W[::-1].copy())))
    found += [*value, *given]
    value, given = functional.vjp(lambda a: (a * a).sum(), x)
    return [*found, value, given]


@case
def functional_graphs(lib: Any) -> list[Any]:
    x = leaf(lib, X)
    functional = lib.autograd.functional
    plain = functional.jacobian(lambda a: a**3, x)
    kept = functional.jacobian(lambda a: a**3, x, create_graph=True)
    flags = np.array([plain.requires_grad, kept.requires_grad])
    kept.sum().backward()
    return [flags, x.grad]


@case
def functional_refusals(lib: Any) -> list[Any]:
    x, w = lib.tensor(X.copy()), lib.tensor(W.copy())
    functional = lib.autograd.functional

    def first(a: Any, b: Any) -> Any:
        return a * 2

    return [
        outcome(lambda: functional.jacobian(first, (x, w), strict=True)),
        *functional.jacobian(first, (x, w)),
        outcome(lambda: functional.hessian(lambda a: a * 2, x)),
        outcome(lambda: functional.vjp(lambda a: a * 2, x)),
        outcome(lambda: functional.vjp(lambda a: a * 2, x, lib.tensor(np.ones(4)))),
        outcome(lambda: functional.jvp(lambda a: a * 2, x)),
    ]


@case
def transformations(lib: Any) -> list[Any]:
    x, w = lib.tensor(X.copy()), lib.tensor(W.copy())
    func = lib.func

    def loss(a: Any, b: Any) -> Any:
        return ((b * a).sin() ** 2).sum()

    value, back = func.vjp(_two, x, w)
    found = [*value, *back((lib.tensor(np.array([1.0, 2.0])), x))]
    found += [*func.jvp(loss, (x, w), (x, w))]
    found += [func.jacrev(_two)(x, w)[0], func.jacfwd(_two, 1)(x, w)[1]]
    found += [func.hessian(loss)(x, w), func.grad(loss, 1)(x, w)]
    found += [*func.jacrev(loss, (0, 1))(x, w)]
    return found


@case
def mapped(lib: Any) -> list[Any]:
    vmap = lib.func.vmap
    x = lib.tensor(np.arange(24.0).reshape(2, 3, 4) / 7 - 1)
    w = lib.tensor(np.arange(12.0).reshape(4, 3) / 5)
    rows = lib.tensor(np.array([1, 0]))

    def loss(weights: Any, row: Any) -> Any:
        return ((row @ weights).tanh() ** 2).sum()

    return [
        vmap(lambda a: a.softmax(-1) @ w)(x),
        vmap(lambda a, b: a @ b, in_dims=(1, None), out_dims=1)(x, w),
        vmap(lambda a, b: a @ b, in_dims=(0, 0))(x, x.transpose(1, 2)),
        vmap(lambda a: (a.sum(), a.amax(1), a.reshape(-1)[2:5]))(x)[2],
        vmap(lambda a, i: a.index_select(0, i.reshape(1)))(x, rows),
        vmap(lambda a: a.index_select(1, rows))(x),
        vmap(lambda a: lib.cat([a, a * 2], 1).flip(0))(x),
        vmap(vmap(lambda a, s: a * s, in_dims=(0, None)))(x, rows),
        vmap(lib.func.grad(loss), in_dims=(None, 0))(w, x[0]),
        vmap(lib.func.jacrev(lambda a: a.cumsum(0) ** 2))(x[0]),
        vmap(lambda t: t["a"] + t["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": w.T}),
    ]
