"""Views write through: what torch's users write, against NumPy's views, lazy and computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import WriteError

START = np.arange(12, dtype=np.float32).reshape(3, 4)
VALUE = np.full((2, 4), 50, np.float32)


def _each_row(x: Any) -> None:
    for row in x:
        row *= 2


def _grown_row(x: Any) -> None:
    row = x[0]
    row += 1


def _two_rows(x: Any) -> None:
    first, second = x[0], x[1]
    first += second
    second += first


def _put(x: Any, key: Any, value: Any) -> None:
    x[key] = value


PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any]]] = {
    "a row": (lambda x: x[0].zero_(), lambda a: _put(a, 0, 0)),
    "a row of data": (lambda x: x.data[1].fill_(7), lambda a: _put(a, 1, 7)),
    "rows by copy_": (lambda x: x[0:2].copy_(Tensor(VALUE)), lambda a: _put(a, slice(2), VALUE)),
    "rows by assign": (lambda x: x[0:2].assign(Tensor(VALUE)), lambda a: _put(a, slice(2), VALUE)),
    "chained keys": (lambda x: _put(x[0], 1, 5), lambda a: _put(a[0], 1, 5)),
    "a flat view": (lambda x: _put(x.view(-1), 0, 9), lambda a: _put(a.reshape(-1), 0, 9)),
    "the transpose": (lambda x: _put(x.T, 0, 9), lambda a: _put(a.T, 0, 9)),
    "a row with a name": (_grown_row, _grown_row),
    "every row": (_each_row, _each_row),
    "rows of each other": (_two_rows, _two_rows),
    "the diagonal": (lambda x: x.diagonal().fill_(1), lambda a: np.fill_diagonal(a, 1)),
    "a copy of rows": (lambda x: _put(x[[0, 1]], 0, 5), lambda a: _put(a[[0, 1]], 0, 5)),
    "a chunk": (lambda x: x.chunk(2, 1)[1].neg_(), lambda a: _put(a, np.s_[:, 2:], -a[:, 2:])),
    "an init": (lambda x: nn.init.ones_(x[1]), lambda a: _put(a, 1, 1)),
    "another shape": (lambda x: x.unsqueeze(0)[0, 2].mul_(3), lambda a: _put(a, 2, a[2] * 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", ["lazy", "computed", "jit", "jit outside"])
def test_a_write_through_a_view_shows_in_the_tensor_and_its_views(name: str, way: str) -> None:
    write, model = PROGRAMS[name]
    x, a = Tensor(START) + 0, START.copy()
    if way != "lazy":
        x.realize()
    column, before = x[:, 1], x * 2
    if way == "jit":
        svod.jit(lambda t: (write(t), t + 1)[1])(x)
    elif way == "jit outside":
        svod.jit(lambda t: (write(x), t + 1)[1])(Tensor([1.0]))
    else:
        write(x)
    model(a)
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(column.numpy(), a[:, 1])
    np.testing.assert_array_equal(before.numpy(), START * 2)


def test_views_see_each_other_when_the_tensor_is_gone() -> None:
    a = START.copy()
    x = Tensor(START) * 1
    row, columns = x[1], x[:, ::2]
    del x
    columns *= 10
    a[:, ::2] *= 10
    np.testing.assert_array_equal(row.numpy(), a[1])


def test_a_view_of_an_assigned_tensor_shows_the_assignment_whenever_it_is_read() -> None:
    x = Tensor(START).realize()
    early, late = x[0], x[1]
    x.assign(x + 1)
    assert early.tolist() == (START[0] + 1).tolist()
    x.realize()
    assert late.tolist() == (START[1] + 1).tolist()


def test_tensors_of_a_state_dict_are_aliases() -> None:
    model = nn.Linear(2, 2)
    state = model.state_dict()
    with svod.no_grad():
        model.weight.fill_(3)
        state["bias"].zero_()
    assert state["weight"].tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert model.bias.tolist() == [0.0, 0.0]
    model(svod.ones(1, 2)).sum().backward()
    svod.nn.optim.SGD(model.parameters(), lr=1.0).step()
    assert state["weight"].tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_rows_of_a_weight_are_written_and_it_stays_a_leaf() -> None:
    table = nn.Embedding(3, 2)
    table.weight[0].zero_()
    table.weight.data[1].fill_(7)
    assert table.weight[:2].tolist() == [[0.0, 0.0], [7.0, 7.0]]
    table(Tensor([0, 1, 1])).sum().backward()
    assert table.weight.is_leaf and table.weight.grad.tolist() == [[1, 1], [2, 2], [0, 0]]


def test_gradients_flow_through_writes_to_views() -> None:
    x = Tensor([1.0, 2.0, 3.0]).requires_grad_()
    y = x * 2
    y[1:].mul_(3)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 6.0, 6.0]


def test_a_view_of_a_leaf_follows_it_and_still_has_its_gradient() -> None:
    x = Tensor([1.0, 2.0]).requires_grad_()
    first = x[0]
    with svod.no_grad():
        x.mul_(5)
    (first * first).backward()
    assert x.grad is not None and x.grad.tolist() == [10.0, 0.0]


def test_parts_of_complex_numbers_write_through() -> None:
    a = START.astype(np.complex64)
    z = Tensor(a)
    z.real[0], z.imag[1] = 9.0, 4.0
    a.real[0], a.imag[1] = 9.0, 4.0
    svod.view_as_real(z)[2, 0] = 6.0
    a[2, 0] = 6 + 6j
    np.testing.assert_array_equal(z.numpy(), a)


def test_the_bits_of_a_tensor_write_through() -> None:
    x = Tensor([1.0, 2.0])
    x.bitcast(svod.int32)[0] = 0
    assert x.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    "stretched",
    [lambda x: x[0].expand(3, 4), lambda x: x.unfold(1, 3, 1), lambda x: x.as_strided((3,), (0,))],
)
def test_what_shows_an_element_twice_refuses_writes_and_follows_others(
    stretched: Callable[[Tensor], Tensor],
) -> None:
    x = Tensor(START) * 1
    seen = stretched(x)
    with pytest.raises(WriteError, match=r"clone\(\)"):
        seen += 1
    x += 1
    np.testing.assert_array_equal(seen.numpy(), stretched(Tensor(START + 1)).numpy())


# Methods without arguments that torch answers with the tensor's own elements.
SHARED = frozenset(
    {"H", "T", "adjoint", "bool", "conj", "conj_physical", "contiguous", "cpu", "data", "detach"}
    | {"diagonal", "flatten", "float", "int", "long", "mH", "mT", "positive", "ravel", "real"}
    | {
        "resolve_conj",
        "resize",
        "resolve_neg",
        "squeeze",
        "swapaxes",
        "swapdims",
        "t",
        "to",
        "transpose",
    }
    | {"unbind"}
)


@pytest.mark.parametrize("data", [[[1.0, 2.0], [3.0, 4.0]], [[1, 2], [3, 4]], [[True], [False]]])
def test_methods_give_copies_unless_torch_gives_the_elements_themselves(data: Any) -> None:
    names = [n for n in dir(Tensor) if not n.startswith("_") and not n.endswith("_")]
    for name in sorted(set(names) - SHARED - {"backward", "prepare", "realize"}):
        x = Tensor(data)
        try:
            found = getattr(x, name)
            found = found() if callable(found) else found
        except Exception:  # it needs arguments, or other numbers
            continue
        for t in found if isinstance(found, tuple) else (found,):
            if isinstance(t, Tensor):
                t.fill_(0 if t.dtype is not svod.bool else True)
        assert x.tolist() == data, name
