"""Shapes that hold variables: one plan for every value, nothing compiled again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import VariableError
from svod.device.cpu.compiler import counters
from svod.ir.node import largest

RNG = np.random.default_rng(0)
X = RNG.random((64, 128), dtype=np.float32)
W = RNG.random((128, 40), dtype=np.float32)
VALUES = (1, 2, 7, 16, 33, 64)


def softmax(a: Any, axis: int) -> Any:
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum over it": (lambda t: t.sum(0), lambda a: a.sum(0)),
    "sum of all": (lambda t: (t * 2).sum(), lambda a: (a * 2).sum()),
    "mean": (lambda t: t.mean(0), lambda a: a.mean(0)),
    "matmul rows": (lambda t: t @ Tensor(W), lambda a: a @ W),
    "matmul of both": (lambda t: t @ t.T, lambda a: a @ a.T),
    "matmul depth": (lambda t: t.T @ t, lambda a: a.T @ a),
    "softmax over it": (lambda t: t.softmax(0), lambda a: softmax(a, 0)),
    "softmax beside it": (lambda t: t.softmax(1), lambda a: softmax(a, 1)),
    "attention": (lambda t: (t @ t.T).softmax(-1) @ t, lambda a: softmax(a @ a.T, -1) @ a),
    "reshape": (lambda t: t.reshape(-1) + 1, lambda a: a.reshape(-1) + 1),
    "heads": (
        lambda t: t.reshape(-1, 8, 16).permute(1, 0, 2) @ t.reshape(-1, 8, 16).permute(1, 2, 0),
        lambda a: a.reshape(-1, 8, 16).transpose(1, 0, 2) @ a.reshape(-1, 8, 16).transpose(1, 2, 0),
    ),
    "pad": (lambda t: t.pad((1, 2, 3, 0)), lambda a: np.pad(a, ((3, 0), (1, 2)))),
    "flip": (lambda t: t.flip(0), lambda a: a[::-1]),
    "argmax": (lambda t: t.argmax(0), lambda a: a.argmax(0)),
    "shrink": (lambda t: t[:, 3:50] * 2, lambda a: a[:, 3:50] * 2),
    "cat along it": (
        lambda t: svod.concat([t, Tensor(X[:5])], axis=0),
        lambda a: np.concatenate([a, X[:5]]),
    ),
    "cat beside it": (
        lambda t: svod.concat([t, t * 2], axis=1),
        lambda a: np.concatenate([a, a * 2], 1),
    ),
    "layernorm": (
        lambda t: t.layernorm(-1),
        lambda a: (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5),
    ),
}


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=3e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_one_plan_serves_every_value(name: str) -> None:
    build, reference = CASES[name]
    n = svod.Variable("n", 1, 64)
    result = build(Tensor(X)[:n])
    shape = tuple([largest(s) for s in result.shape])
    plan = result.prepare()
    compiled = dict(counters)
    for value in VALUES:
        plan.execute_with_vars({"n": value})
        wanted = reference(X[:value])
        buffer = plan.output_buffer()
        assert buffer is not None
        whole = buffer.numpy().reshape(shape)
        close(whole[tuple([slice(0, k) for k in wanted.shape])], wanted)
    assert counters == compiled


@pytest.mark.parametrize("name", CASES)
def test_a_bound_variable_gives_a_plain_result(name: str) -> None:
    build, reference = CASES[name]
    n = svod.Variable("n", 1, 64)
    for value in (5, 48):
        found = build(Tensor(X)[: n.bind(value)]).numpy()
        wanted = reference(X[:value])
        assert found.shape == wanted.shape
        close(found, wanted)


def test_a_variable_as_an_index() -> None:
    i = svod.Variable("i", 0, 63)
    row = Tensor(X)[i] * 2
    assert row.shape == (128,)
    plan = row.prepare()
    for value in (0, 5, 63):
        plan.execute_with_vars({"i": value})
        buffer = plan.output_buffer()
        assert buffer is not None
        close(buffer.numpy(), X[value] * 2)


def test_values_outside_the_bounds_are_refused() -> None:
    n = svod.Variable("n", 1, 64)
    with pytest.raises(VariableError, match=r"n=65 is outside bounds \[1, 64\]"):
        n.bind(65)
    plan = Tensor(X)[:n].sum(0).prepare()
    with pytest.raises(VariableError, match=r"n=0 is outside bounds \[1, 64\]"):
        plan.execute_with_vars({"n": 0})


def test_a_slice_past_the_axis_is_refused() -> None:
    n = svod.Variable("n", 1, 65)
    with pytest.raises(VariableError, match="depends on the value of a variable"):
        Tensor(X)[:n]


def test_reading_needs_a_value() -> None:
    n = svod.Variable("n", 1, 64)
    with pytest.raises(VariableError, match=r"n\.bind"):
        (Tensor(X)[:n] + 1).numpy()


def test_bad_variables_are_refused() -> None:
    with pytest.raises(VariableError, match="0 <= lo <= hi"):
        svod.Variable("n", 5, 1)
    with pytest.raises(VariableError, match="plain name"):
        svod.Variable("not a name", 0, 1)


@pytest.mark.parametrize("value", [3, 5, 8])
def test_ends_are_counted_from_the_run_time_size(value: int) -> None:
    n = svod.Variable("n", 3, 8).bind(value)
    x = Tensor(X[0, :8])[:n]
    close((x[:-2] * 2).numpy(), X[0, :8][:value][:-2] * 2)
    close((x[-3:] * 2).numpy(), X[0, :8][:value][-3:] * 2)


INNER: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "as it is": (lambda t: t * 2, lambda a: a * 2),
    "matmul": (lambda t: t @ Tensor(W[:8]), lambda a: a @ W[:8]),
    "folded": (lambda t: t.reshape(-1, 8) + 1, lambda a: a.reshape(-1, 8) + 1),
    "heads": (
        lambda t: t.reshape(*t.shape[:2], -1, 4).sum(3),
        lambda a: a.reshape(*a.shape[:2], -1, 4).sum(3),
    ),
    "scores": (lambda t: t @ t.transpose(1, 2), lambda a: a @ a.transpose(0, 2, 1)),
}


@pytest.mark.parametrize("name", INNER)
def test_arrays_with_run_time_sizes_behind_the_first_axis(name: str) -> None:
    build, reference = INNER[name]
    b, s = svod.Variable("b", 1, 4), svod.Variable("s", 1, 16)
    x = Tensor.zeros(4, 16, 8).contiguous().realize()[:b, :s]
    plan = svod.prepare(build(x), inputs={"x": x}, outputs=["y"])
    compiled = dict(counters)
    for shape in ((1, 1, 8), (2, 5, 8), (4, 16, 8), (3, 7, 8)):
        array = RNG.random(shape, dtype=np.float32)
        wanted = reference(array)
        close(plan(x=array), wanted)
        target = np.empty_like(wanted)
        assert plan(x=array, y=target) is target
        close(target, wanted)
    assert counters == compiled


def test_a_view_of_an_input_can_be_all_of_a_plan() -> None:
    x = Tensor(X)
    plan = svod.prepare(x.reshape(128, 64), inputs={"x": x}, outputs=["y"])
    close(plan(x=X * 2), X.reshape(128, 64) * 2)


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_rows_of_several_run_time_sizes_are_stored_in_the_shape_they_get(name: str) -> None:
    """Memory has room for the largest sizes, so a reshape of a stored value is not free."""
    n, m = svod.Variable("n", 2, 16), svod.Variable("m", 2, 8)
    rows = Tensor(np.zeros(128, np.float32))[: m * n].realize()
    square = rows.reshape(m, n)
    found = square.softmax(-1) if name == "softmax" else square.layernorm(-1)
    plan = svod.prepare(found.reshape(m * n), inputs={"rows": rows}, outputs=["y"])
    for rows_now, columns_now in ((3, 5), (7, 16), (8, 2)):
        a = RNG.random((rows_now, columns_now), dtype=np.float32)
        got = plan(rows=a.reshape(-1), m=rows_now, n=columns_now).reshape(a.shape)
        if name == "softmax":
            want = softmax(a, -1)
        else:
            want = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_stored_value_is_stored_again_under_a_shape_that_lies_elsewhere() -> None:
    n, m = svod.Variable("n", 2, 16), svod.Variable("m", 2, 8)
    rows = Tensor(np.zeros(128, np.float32))[: m * n].realize()
    grown = rows.reshape(m, n).exp().contiguous()
    sums = grown.sum(1)
    plan = svod.prepare(grown.reshape(m * n), sums, inputs={"rows": rows}, outputs=["y", "s"])
    a = RNG.random((3, 5), dtype=np.float32)
    got, total = plan(rows=a.reshape(-1), m=3, n=5)
    np.testing.assert_allclose(got, np.exp(a).reshape(-1), rtol=1e-5)
    np.testing.assert_allclose(total, np.exp(a).sum(1), rtol=1e-5)
