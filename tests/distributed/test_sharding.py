"""Programs over meshes of 1, 2 and 4 ranks give what one device gives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ConfigError, DeviceError
from svod.distributed import Mesh, mesh, placement
from svod.nn import functional as F

RANDOM = np.random.default_rng(7)
A = RANDOM.standard_normal((4, 8, 12)).astype(np.float32)
B = RANDOM.standard_normal((4, 8, 12)).astype(np.float32)
W = RANDOM.standard_normal((12, 8)).astype(np.float32)
ROWS = RANDOM.integers(0, 4, (8,))
IMAGE = RANDOM.standard_normal((4, 8, 8)).astype(np.float32)
KERNEL = RANDOM.standard_normal((4, 4, 3, 3)).astype(np.float32)

Function = Callable[..., Any]
# No sum is regrouped: equal bit for bit.
EXACT: dict[str, tuple[Function, list[np.ndarray[Any, Any]]]] = {
    "add": (lambda a, b: a + b, [A, B]),
    "chain": (lambda a, b: (a * 2 - b).exp().where(a > b, a.abs()), [A, B]),
    "permute": (lambda a: a.permute(2, 0, 1), [A]),
    "reshape": (lambda a: a.reshape(32, 12).reshape(4, 2, 48), [A]),
    "regroup": (lambda a: a.reshape(4, 96).reshape(6, 64), [A]),
    "flatten": (lambda a: a.flatten(), [A]),
    "slice": (lambda a: a[1:3, :, 2:], [A]),
    "pad": (lambda a: a.pad((1, 1, 0, 2)), [A]),
    "flip": (lambda a: a.flip(1), [A]),
    "expand": (lambda a: a.unsqueeze(1).expand(4, 4, 8, 12) + 1, [A]),
    "cat": (lambda a, b: svod.cat([a, b, a], 1), [A, B]),
    "stack": (lambda a, b: svod.stack([a, b], 2), [A, B]),
    "max": (lambda a: a.amax(1), [A]),
    "min of all": (lambda a: a.amin(), [A]),
    "argmax": (lambda a: a.argmax(-1), [A]),
    "sort": (lambda a: a.sort(1).values, [A]),
    "topk": (lambda a: a.topk(3, -1).indices, [A]),
    "gather rows": (lambda a, i: a[i], [A, ROWS]),
    "gather": (lambda a: a.gather(1, (a[:, :2] > 0).cast(svod.int64)), [A]),
    "scatter": (lambda a, b: a.scatter(1, (b[:, :1] > 0).cast(svod.int64), b[:, :1]), [A, B]),
    "cast": (lambda a: a.cast(svod.float16).cast(svod.float32), [A]),
    "tril": (lambda a: a.tril(), [A]),
    "any": (lambda a: (a > 2).any(1), [A]),
    "count": (lambda a: (a > 0).sum(0), [A]),
    "one hot": (lambda i: F.one_hot(i, 4), [ROWS]),
}  # fmt: skip
# Sums of parts are added up: within a few units in the last place.
NEAR: dict[str, tuple[Function, list[np.ndarray[Any, Any]]]] = {
    "sum": (lambda a: a.sum(1), [A]),
    "mean": (lambda a: a.mean(), [A]),
    "var": (lambda a: a.var(2), [A]),
    "prod": (lambda a: a.prod(1), [A]),
    "cumsum": (lambda a: a.cumsum(1), [A]),
    "softmax": (lambda a: a.softmax(-1), [A]),
    "logsumexp": (lambda a: a.logsumexp(1), [A]),
    "matmul": (lambda a, w: a @ w, [A, W]),
    "batched": (lambda a, b: a @ b.transpose(1, 2), [A, B]),
    "layer norm": (lambda a: F.layer_norm(a, (12,)), [A]),
    "attention": (F.scaled_dot_product_attention, [A, B, A]),
    "convolution": (lambda x, k: F.conv2d(x.unsqueeze(0), k, padding=1), [IMAGE, KERNEL]),
    "pooling": (lambda x: F.max_pool2d(x.unsqueeze(0), 2), [IMAGE]),
    "solve": (lambda a: svod.linalg.inv(a[:, :, :8] + 9 * svod.eye(8)), [A]),
}  # fmt: skip


def _spec(ndim: int, axis: int) -> tuple[str | None, ...]:
    return tuple(["data" if a == axis else None for a in range(ndim)])


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", [*EXACT, *NEAR])
def test_an_operator_over_shards_is_what_one_device_gives(name: str, ranks: int) -> None:
    function, arrays = (EXACT | NEAR)[name]
    wanted = np.asarray(function(*[Tensor(a) for a in arrays]).numpy())
    found_mesh = mesh({"data": ranks})
    choices = [[None, *[i for i, n in enumerate(a.shape) if n % ranks == 0]] for a in arrays]
    for axes in list(product(*choices))[:: 1 if ranks == 2 else 3]:
        given = [
            Tensor(a).shard(found_mesh, _spec(a.ndim, -1 if axis is None else axis))
            for a, axis in zip(arrays, axes, strict=True)
        ]
        found = function(*given).numpy()
        assert found.dtype == wanted.dtype
        if name in EXACT:
            np.testing.assert_array_equal(found, wanted, err_msg=f"{axes}")
        else:
            np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-6, err_msg=f"{axes}")


@pytest.fixture(name="grid")
def _grid() -> Mesh:
    return mesh({"data": 2, "model": 2})


def _step(place: Callable[[Tensor, tuple[str | None, ...]], Tensor], specs: Any) -> list[Any]:
    """Losses of a small network that is trained for ten steps, and its weights."""
    first = place(Tensor(W), specs[0]).realize().requires_grad_()
    second = place(Tensor(W.T.copy()), specs[1]).realize().requires_grad_()
    optimizer = svod.optim.AdamW([first, second], lr=1e-2)
    losses = []
    for step in range(10):
        x = place(Tensor(A[step % 4]), specs[2])
        optimizer.zero_grad()
        loss = (((x @ first).gelu() @ second - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, first.numpy(), second.numpy()]


@pytest.mark.parametrize(
    "specs",
    [
        ((), (), ("data",)),  # data parallel
        (("data",), ("data",), ("data",)),  # parameters and state of the optimizer are split
        ((None, "model"), ("model",), ("data",)),  # columns, then rows
    ],
)
def test_training_over_a_mesh_follows_one_device(grid: Mesh, specs: Any) -> None:
    alone = _step(lambda t, spec: t, specs)
    found = _step(lambda t, spec: t.shard(grid, spec), specs)
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


def test_rows_and_columns_need_one_sum_over_the_model_axis(grid: Mesh) -> None:
    x = Tensor(A[0]).shard(grid, ("data",)).realize()
    up = Tensor(W).shard(grid, (None, "model")).realize()
    down = Tensor(W.T.copy()).shard(grid, ("model",)).realize()
    report = placement((x @ up).relu() @ down)
    assert [(c.kind, c.axis) for c in report.collectives] == [("distributed.all_reduce", "model")]
    assert report.collectives[0].nbytes == 4 * 12 * 4  # half of 4 x 12 floats, there and back
    assert report.results[0][1].dims == ("data", None)
    assert "all-reduce     over model" in str(report)


def test_the_gradient_of_an_all_gather_is_a_reduce_scatter(grid: Mesh) -> None:
    x = Tensor(A[0]).shard(grid, ("data",)).realize()
    weight = Tensor(W).shard(grid, ("data",)).realize().requires_grad_()
    whole = weight.shard(grid)
    ((x @ whole) ** 2).sum().backward()
    assert weight.grad is not None
    forward = placement(x @ whole).collectives
    backward = placement(weight.grad.shard(grid, ("data",))).collectives
    assert [c.kind for c in forward] == ["distributed.all_gather"]
    kinds = [c.kind for c in backward]  # what the product was is computed again
    assert kinds == ["distributed.all_gather", "distributed.reduce_scatter"]


def test_the_smaller_operand_is_moved_where_two_disagree(grid: Mesh) -> None:
    large = Tensor(A).shard(grid, ("data",)).realize()
    small = Tensor(A[:1]).shard(grid, (None, "data")).realize()
    report = placement(large + small)
    assert [(c.kind, c.nbytes) for c in report.collectives] == [
        ("distributed.all_gather", A[:1].nbytes // 2)
    ]
    assert report.results[0][1].dims == ("data", None, None)


def test_what_cannot_be_placed_is_refused(grid: Mesh) -> None:
    with pytest.raises(ConfigError, match="no axis 'rows'"):
        Tensor(A).shard(grid, ("rows",))
    with pytest.raises(ConfigError, match="not two"):
        Tensor(A).shard(grid, ("data", "data"))
    with pytest.raises(ConfigError, match="needs as many devices"):
        mesh({"data": 2}, devices=["CPU:0"])
    with pytest.raises(DeviceError, match="move one with"):
        _ = Tensor(A).shard(grid, ("data",)) + Tensor(A).realize()
    other = mesh({"data": 2})
    with pytest.raises(DeviceError, match="move one with"):
        _ = Tensor(A).shard(grid, ("data",)) + Tensor(A).shard(other, ("data",))


def test_one_seed_gives_the_same_numbers_over_any_number_of_ranks(grid: Mesh) -> None:
    def masked(place: Callable[[Tensor], Tensor]) -> np.ndarray[Any, Any]:
        svod.manual_seed(3)
        return F.dropout(place(Tensor(A)), 0.5).numpy()

    alone = masked(lambda t: t)
    assert (alone == 0).any()
    np.testing.assert_array_equal(masked(lambda t: t.shard(grid, ("data", "model"))), alone)
