"""Modules over a mesh train as they do on one device, in every way they are split"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import ConfigError
from svod.distributed import (
    BatchesOfRank,
    DataParallel,
    Mesh,
    from_own_rows,
    layout_of,
    mesh,
    own_rows,
    shard_module,
    tensor_parallel,
    zero,
)

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((6, 5, 8)).astype(np.float32)
Y = RANDOM.standard_normal((6, 5, 8)).astype(np.float32)
STEPS = 4


def _model() -> nn.Module:
    svod.manual_seed(5)
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


def _train(way: str, grid: Mesh | None, is_recorded: bool) -> tuple[list[float], Any]:
    model = _model()
    called: Any = model
    optimizer = svod.optim.AdamW(model.parameters(), lr=1e-2)
    if grid is not None:
        if way == "tensor":
            tensor_parallel(model, grid, "model")
        elif way.startswith("zero"):
            zero(model, optimizer, grid, int(way[4:]))
        called = DataParallel(model, grid)

    def step(x: Any, y: Any) -> Tensor:
        optimizer.zero_grad()
        y = Tensor(y) if grid is None else called.split(y)
        loss = ((called(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = svod.jit(step, state=(model, optimizer)) if is_recorded else step
    losses = [run(Tensor(X + i), Tensor(Y)).item() for i in range(STEPS)]
    return losses, optimizer


ALONE = []


def _alone() -> list[float]:
    if not ALONE:
        ALONE.extend(_train("alone", None, False)[0])
    return ALONE


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("way", ["data", "zero1", "zero2", "zero3", "tensor"])
def test_a_module_over_a_mesh_trains_as_on_one_device(way: str, is_recorded: bool) -> None:
    losses, optimizer = _train(way, mesh({"data": 2, "model": 2}), is_recorded)
    assert losses == pytest.approx(_alone(), rel=1e-5)
    sizes = {t.uop.src[0].arg.buffer.size / t.numel() for t in optimizer.state[0].values()}
    # Four ranks are in this process: what is whole is there once, what is split is there twice
    # as each half is on two ranks.
    assert sizes == {2.0 if way != "data" else 1.0}


def test_gradients_reach_a_split_state_by_one_fold_each() -> None:
    grid = mesh({"data": 4})
    model = nn.Linear(8, 8, bias=False)
    optimizer = svod.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    zero(model, optimizer, grid, 1)
    before = model.weight.numpy()
    x = Tensor(X.reshape(-1, 8)[:16])
    (model(x.shard(grid, ("data",))) ** 2).sum().backward()
    optimizer.step()
    alone = nn.Linear(8, 8, bias=False)
    alone.load_state_dict({"weight": before})
    (alone(x) ** 2).sum().backward()
    np.testing.assert_allclose(
        model.weight.numpy(), before - 0.1 * alone.weight.grad.numpy(), rtol=1e-4, atol=1e-6
    )


def test_a_layout_splits_layers_by_columns_and_rows() -> None:
    found = layout_of(nn.TransformerEncoder(_model(), 2), "model")
    assert found["layers.1.self_attn.in_proj_weight"] == ("model", None)
    assert found["layers.0.self_attn.out_proj.weight"] == (None, "model")
    assert found["layers.0.linear1.bias"] == ("model",)
    assert found["layers.0.linear2.weight"] == (None, "model")
    assert "layers.0.norm1.weight" not in found


def test_a_module_is_sharded_by_patterns() -> None:
    grid = mesh({"data": 2})
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    wanted = model(Tensor(X[0, :, :5])).numpy()
    shard_module(model, grid, {"0.*": ("data",)})
    placed = {name: p.uop for name, p in model.named_parameters()}
    assert placed["0.weight"].src[0].arg.placed.dims == ("data", None)
    assert placed["1.bias"].arg.placed is None
    found = model(Tensor(X[0, :, :5]).shard(grid)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_wrong_use_is_refused() -> None:
    grid = mesh({"data": 2})
    model = _model()
    optimizer = svod.optim.AdamW(model.parameters())
    with pytest.raises(ConfigError, match="stages of zero are"):
        zero(model, optimizer, grid, 4)
    with pytest.raises(ConfigError, match="no axis 'rows'"):
        DataParallel(model, grid, "rows")


def test_batches_are_the_same_whatever_the_number_of_ranks() -> None:
    data = range(10)
    one = [*BatchesOfRank(data, 4, mesh({"data": 1}), seed=7)]
    four = [*BatchesOfRank(data, 4, mesh({"data": 4}), seed=7)]
    assert one == four and len(one) == 2
    sampler = BatchesOfRank(data, 4, mesh({"data": 2}), seed=7)
    first = [*sampler]
    assert [*sampler] != first  # the next pass
    sampler.set_epoch(0)
    sampler.first = 1
    assert [*sampler] == first[1:]


def test_each_rank_reads_its_own_rows() -> None:
    grid = mesh({"data": 2, "model": 2})
    apart = [Mesh("MESH:0", grid.axes, grid.devices, (rank,)) for rank in range(4)]
    assert [own_rows([0, 1, 2, 3, 4], m) for m in apart] == [[0, 1, 2], [0, 1, 2], [3, 4], [3, 4]]
    x = from_own_rows(own_rows(X, grid), grid)
    np.testing.assert_array_equal((x * 2).numpy(), X * 2)
