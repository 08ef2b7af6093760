"""What a body may hold beyond elementwise values: loops, sorts, attention, places by data."""

from __future__ import annotations

import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor
from svod.device.ref import RefProgram, argument_slots
from svod.runtime.caches import compiled_kernels
from svod.tensor.recording.scan import scan
from tests.schedule.graphs import bodies

RNG = np.random.default_rng(4)
ROAD_X = RNG.standard_normal((6, 8)).astype(np.float32)
PLACES = np.array([3, 0, 3, 5], np.int64)


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(t):
    q = t.reshape(1, 1, 6, 8)
    return F.scaled_dot_product_attention(q, q * 0.5, q + 1)


ROADS = {
    "sort": (lambda t: t.sort(1)[0], lambda a: np.sort(a, 1)),
    "order": (lambda t: t.argsort(1), lambda a: np.argsort(a, 1)),
    "topk": (lambda t: t.topk(3, 1)[0], lambda a: -np.sort(-a, 1)[:, :3]),
    "running sum": (lambda t: t.cumsum(1), lambda a: a.cumsum(1)),
    "running maximum": (lambda t: t.cummax(1)[0], lambda a: np.maximum.accumulate(a, 1)),
    "attention": (
        attention,
        lambda a: (softmax(a @ (a * 0.5).T / np.sqrt(8)) @ (a + 1))[None, None],
    ),
    "gather": (lambda t: t[Tensor(PLACES)], lambda a: a[PLACES]),
    "scatter": (
        lambda t: svod.zeros(6, 8).index_add(0, Tensor(PLACES), t[:4]),
        lambda a: np.add.at(z := np.zeros((6, 8), np.float32), PLACES, a[:4]) or z,
    ),
    "spectrum": (lambda t: svod.fft.rfft(t), np.fft.rfft),
    "inverse": (
        lambda t: svod.linalg.inv(t[:6, :6] + 3 * svod.eye(6)),
        lambda a: np.linalg.inv(a[:6, :6] + 3 * np.eye(6)),
    ),
    "loop": (
        lambda t: scan(lambda h, x: (h * 0.5 + x, h), svod.zeros(8), t)[0],
        lambda a: sum(0.5 ** (5 - i) * a[i] for i in range(6)),
    ),
}


@pytest.mark.parametrize("name", ROADS)
def test_ref_gives_the_values_of_numpy(name):
    build, exact = ROADS[name]
    t = Tensor(ROAD_X)
    found = build(t)
    assert found.device == "REF"
    np.testing.assert_allclose(found.numpy(), exact(ROAD_X), rtol=2e-5, atol=2e-5)


def test_a_result_goes_in_again_as_an_argument():
    """Plans that Python runs bind memory that was their result a call before."""

    @svod.jit
    def step(x, y):
        return x + y, y * 2

    x, y = Tensor(np.float32([1, 2])), Tensor(np.float32([3, 4]))
    for turn in range(4):
        x, y = step(x, y)
        total = sum(2**k for k in range(turn + 1))
        assert x.numpy().tolist() == [1 + 3 * total, 2 + 4 * total]
    first, second = step(y, x)  # the other way round
    assert first.numpy().tolist() == (x + y).numpy().tolist()
    assert second.numpy().tolist() == (x * 2).numpy().tolist()


def test_values_of_variables_decide_sizes_and_places():
    n = svod.Variable("n", 1, 6)
    (body,) = bodies((Tensor(ROAD_X).realize()[:n] * 2).sum(0))
    program = compiled_kernels([body], "REF")[body].program
    assert isinstance(program, RefProgram) and program.var_names == ("n",)
    assert "DEFINE_VAR" in compiled_kernels([body], "REF")[body].source
    slots, outs, _ = argument_slots(body)
    arrays = {slot: np.zeros(8, np.float32) if slot in outs else ROAD_X.copy() for slot in slots}
    for value in (1, 4, 6, 4):
        program([arrays[slot].ctypes.data for slot in slots], [value])
        np.testing.assert_allclose(arrays[outs[0]], ROAD_X[:value].sum(0) * 2, rtol=1e-5)
    with pytest.raises(svod.errors.SvodError, match=r"n=7 is outside bounds \[1, 6\]"):
        program([arrays[slot].ctypes.data for slot in slots], [7])
