"""Tensors made by equal expressions are one node: writing to one must not show in the others."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.tensor.core.tensor_registry import buffer_of

START = np.arange(6, dtype=np.float32).reshape(2, 3)


def zeros() -> Tensor:
    return Tensor.zeros(2, 3) + 0


EXPRESSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda x: Tensor.zeros(2, 3),
    "constant plus zero": lambda x: zeros(),
    "elementwise": lambda x: x * 2 + 1,
    "sum": lambda x: x.sum(0, keepdim=True).repeat(2, 1),
    "matmul": lambda x: x @ x.T,
    "reshaped": lambda x: (x + 1).reshape(3, 2),
    "contiguous": lambda x: (x.T + 1).contiguous(),
    "scattered": lambda x: x.scatter(1, Tensor([[0], [2]]), Tensor([[7.0], [8.0]])),
}

WRITES: dict[str, Callable[[Tensor], Any]] = {
    "assign": lambda a: a.assign(a * 3 + 5).realize(),
    "assign a part": lambda a: a[0].assign(a[0] + 9).realize(),
    "twice": lambda a: a.assign(a + 1).assign(a * 2).realize(),
    "copyin": lambda a: a.copyin(a.numpy() + 4),
    "array_view": lambda a: a.array_view().fill(11),
    "dlpack": lambda a: np.from_dlpack(a).fill(12),
    "augmented": lambda a: a.__iadd__(1).realize(),
    "index": lambda a: a.__setitem__(0, 5),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("realized", ["first", "second", "both", "other"])
def test_writing_to_one_leaves_the_others(expression: str, write: str, realized: str) -> None:
    x = Tensor(START)
    make = EXPRESSIONS[expression]
    a, b, c = make(x), make(x), make(x)
    before = make(x).numpy()
    view = b.reshape(-1)[1:3]
    {"first": [a], "second": [b], "both": [a, b], "other": [c]}[realized][0].realize()
    if realized == "both":
        b.realize()
    a.realize()
    late = b.permute(1, 0)
    if write == "dlpack" and np.from_dlpack(a).flags.writeable is False:
        pytest.skip("NumPy exports read-only memory")
    WRITES[write](a)
    assert not np.array_equal(a.numpy(), before)
    for other in (b, c):
        np.testing.assert_array_equal(other.numpy(), before)
    np.testing.assert_array_equal(view.numpy(), before.reshape(-1)[1:3])
    np.testing.assert_array_equal(late.numpy(), before.T)
    np.testing.assert_array_equal(x.numpy(), START)


def test_memory_is_shared_until_somebody_writes() -> None:
    x = Tensor(START)
    a, b, c = x * 2, x * 2, x * 2
    svod.realize(a, b, c)
    assert buffer_of(a.uop) is buffer_of(b.uop) is buffer_of(c.uop)
    kept = buffer_of(a.uop)
    a.assign(a + 1).realize()
    assert buffer_of(a.uop) is kept
    assert buffer_of(b.uop) is buffer_of(c.uop) is not kept
    b.assign(b + 2).realize()
    for t, wanted in ((a, START * 2 + 1), (b, START * 2 + 2), (c, START * 2)):
        np.testing.assert_array_equal(t.numpy(), wanted)


def test_views_of_realised_memory_stay_views() -> None:
    x = Tensor(START)
    a, b = x * 2, x * 2
    svod.realize(a, b)
    part = b[1]
    part.assign(part * 0).realize()
    np.testing.assert_array_equal(b.numpy(), [[0, 2, 4], [0, 0, 0]])
    np.testing.assert_array_equal(a.numpy(), START * 2)


def test_views_of_a_leaf_follow_it() -> None:
    weight = (Tensor(START) + 0).requires_grad_()
    tied = weight.T
    optimizer = nn.optim.SGD([weight], lr=1.0)
    (tied * Tensor(START).T).sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(weight.numpy(), START - START)
    np.testing.assert_array_equal(tied.numpy(), weight.numpy().T)


@pytest.mark.parametrize("realized", [0, 1])
def test_gradients_flow_through_tensors_made_alike(realized: int) -> None:
    w = Tensor(START, requires_grad=True)
    pair = [w * w, w * w]
    view = pair[1].reshape(-1)[2:4]
    pair[realized].realize()
    (pair[0].sum() + pair[1].sum() * 2 + view.sum()).backward()
    wanted = 6 * START
    wanted.reshape(-1)[2:4] += 2 * START.reshape(-1)[2:4]
    np.testing.assert_array_equal(w.grad.numpy(), wanted)


def test_a_detached_value_made_alike_has_no_gradient() -> None:
    w = Tensor(START, requires_grad=True)
    a, b = w * 2, (w * 2).detach()
    svod.realize(a, b)
    assert a.requires_grad and not b.requires_grad
    (a * b).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), START * 4)
    b.assign(b + 1).realize()
    np.testing.assert_array_equal(a.numpy(), START * 2)


# -- plans and jit ---------------------------------------------------------------------------------


def test_a_plan_keeps_reading_the_tensor_it_was_made_with() -> None:
    x = Tensor(START)
    a, b = x * 2, x * 2
    svod.realize(a, b)
    total = b.sum()
    plan = total.prepare()
    a.assign(a + 100).realize()
    plan.execute()
    assert total.item() == (START * 2).sum()
    b.assign(b * 0 + 1).realize()
    plan.execute()
    assert total.item() == 6


def test_states_of_a_jit_made_alike() -> None:
    a, b = zeros(), zeros()
    c = zeros()

    @svod.jit(state=(a, b))
    def step(x: Tensor) -> Tensor:
        a.assign(a + x)
        b.assign(b + x * 10)
        return a.sum() + c.sum()

    for i in range(1, 4):
        assert step(Tensor(np.ones((2, 3), np.float32))).item() == 6 * i
    assert a.tolist() == [[3] * 3] * 2
    assert b.tolist() == [[30] * 3] * 2
    assert c.tolist() == [[0] * 3] * 2


def test_a_jit_function_reads_and_writes_tensors_made_alike() -> None:
    a, b = zeros(), zeros()
    svod.realize(a, b)

    @svod.jit
    def step(x: Tensor) -> Tensor:
        a.assign(a + x).realize()
        return a + b

    one = Tensor(np.ones((2, 3), np.float32))
    assert step(one).tolist() == [[1] * 3] * 2
    assert step(one).tolist() == [[2] * 3] * 2
    assert b.tolist() == [[0] * 3] * 2
    b.assign(b + 10).realize()
    assert step(one).tolist() == [[13] * 3] * 2


@pytest.mark.parametrize("donate", [(), (0,)])
def test_arguments_a_jit_function_writes_are_its_own(donate: tuple[int, ...]) -> None:
    def function(x: Tensor) -> Tensor:
        if donate:
            return x + 1
        x += 1
        return x * 1

    step = svod.jit(function, donate=donate)
    a, b = zeros(), zeros()
    svod.realize(a, b)
    assert step(a).tolist() == [[1] * 3] * 2
    assert a.tolist() == [[1] * 3] * 2
    assert b.tolist() == [[0] * 3] * 2


def test_results_of_a_jit_function_made_alike() -> None:
    @svod.jit
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, x + 1, y

    for _ in range(2):
        a, b, again = f(Tensor(START))
        assert a is again
        a.assign(a * 0).realize()
        np.testing.assert_array_equal(b.numpy(), START + 1)
        np.testing.assert_array_equal(again.numpy(), START * 0)


class Twice(nn.Module):
    """Two branches whose parameters start alike."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(3, 4)
        for branch in (self.left, self.right):
            nn.init.zeros_(branch.bias)
            nn.init.constant_(branch.weight, 0.25)
        self.scale, self.other = nn.Parameter(Tensor.ones(4) * 1), nn.Parameter(Tensor.ones(4) * 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) * self.scale - (self.right(x) * self.other).square()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop", "Lion"])
@pytest.mark.parametrize("jitted", [False, True])
def test_parameters_that_start_alike_are_trained_apart(kind: str, jitted: bool) -> None:
    def weights(net: Twice, steps: int) -> dict[str, Any]:
        options = {"momentum": 0.9} if kind == "SGD" else {}
        optimizer = getattr(nn.optim, kind)(net.parameters(), lr=0.01, **options)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (net(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = svod.jit(step, state=(net, optimizer)) if jitted else step
        for i in range(steps):
            run(Tensor(np.linspace(-1, i, 15, dtype=np.float32).reshape(5, 3)))
        return {k: v.numpy() for k, v in net.state_dict().items()}

    alike = Twice()
    svod.realize(*alike.parameters())
    apart = Twice()
    for p in apart.parameters():
        p.copyin(p.numpy().copy())
    found, wanted = weights(alike, 5), weights(apart, 5)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
    assert not np.array_equal(found["left.weight"], found["right.weight"])


@pytest.mark.parametrize("is_realized", [False, True])
def test_copies_of_a_leaf_have_memory_of_their_own(is_realized: bool) -> None:
    weight = (Tensor(START) + 0).requires_grad_()
    if is_realized:
        weight.realize()
    cloned, copied = weight.clone(), deepcopy(weight)
    assert copied.is_leaf and copied.requires_grad and not cloned.is_leaf
    svod.realize(weight, cloned, copied)
    for t, value in ((weight, 1), (cloned, 2), (copied, 3)):
        t.assign(Tensor(START) * 0 + value).realize()
    assert [t.numpy()[0, 0] for t in (weight, cloned, copied)] == [1, 2, 3]


@pytest.mark.parametrize("is_realized", [False, True])
def test_gradients_flow_through_a_clone(is_realized: bool) -> None:
    weight = (Tensor(START) + 0).requires_grad_()
    inner = weight * 2
    if is_realized:
        svod.realize(weight, inner)
    (weight.clone() * 3 + inner.clone().reshape(2, 3)).sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), START * 0 + 5)


def test_a_copied_module_is_trained_apart() -> None:
    first = nn.Linear(3, 2)
    second = deepcopy(first)
    assert isinstance(second.weight, nn.Parameter) and second.weight.requires_grad
    before = first.weight.numpy()
    np.testing.assert_array_equal(second.weight.numpy(), before)
    optimizer = nn.optim.SGD(second.parameters(), lr=0.1)
    second(Tensor(START)).square().sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(first.weight.numpy(), before)
    assert first.weight.grad is None
    assert not np.array_equal(second.weight.numpy(), before)


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(None, None, -1)])
@pytest.mark.parametrize("write", ["source", "copy", "memory"])
def test_a_copy_in_place_is_no_view(part: slice, write: str) -> None:
    source = Tensor(START).realize()
    wanted = START[part]
    copy = svod.zeros(*wanted.shape).realize()
    copy.copy_(source[part])
    if write == "source":
        source.assign(source + 1).realize()
    elif write == "memory":
        source.copyin(START + 1)
    else:
        copy.assign(copy + 1).realize()
    one = 1 if write == "copy" else 0
    np.testing.assert_array_equal(copy.numpy(), wanted + one)
    np.testing.assert_array_equal(source.numpy(), START + 1 - one)
