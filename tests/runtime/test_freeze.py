"""Frozen plans: values, constants of their own, bytes, files, and what stays live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import nn
from svod.base.errors import ConfigError
from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.runtime.caches import optimizer_machine
from svod.runtime.freeze import find_packing
from svod.runtime.instantiate import ScheduleItem
from svod.runtime.load import load_plan
from svod.runtime.ops import PreparedKernel
from svod.tensor.recording.constant_parts import constant_parts
from tests.schedule.graphs import bodies

Array = Any


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def frozen_linear(rows: int, inner: int, columns: int) -> tuple[Any, Any, Any, dict[str, Array]]:
    arrays = {"x": values(rows, inner), "w": values(columns, inner, seed=1)}
    arrays["b"] = values(columns, seed=2)
    x, w, b = [svod.Tensor(a) for a in arrays.values()]
    plan = svod.prepare(x.linear(w, b).relu(), inputs=[x], freeze=True)
    return plan, w, b, arrays


def expected(arrays: dict[str, Array]) -> Array:
    wide = {name: a.astype(np.float64) for name, a in arrays.items()}
    return np.maximum(wide["x"] @ wide["w"].T + wide["b"], 0)


def close(found: Array, wanted: Array) -> bool:
    return bool(np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max())


def stores_in_scratch(plan: Any) -> bool:
    return any("alloca" in kernel.source for kernel in plan.kernels())


@pytest.mark.parametrize(
    "sizes",
    [(64, 96, 256), (8, 8, 8), (17, 100, 1000), (9, 33, 77), (128, 40, 48), (1, 64, 96), (3, 5, 7)],
)
def test_values(sizes: tuple[int, int, int]) -> None:
    plan, _, _, arrays = frozen_linear(*sizes)
    assert close(plan(input0=arrays["x"]), expected(arrays))
    arrays["x"] = values(*sizes[:2], seed=5)
    assert close(plan(input0=arrays["x"]), expected(arrays))


FORMS: dict[str, Any] = {
    "as it is": lambda x, w: x @ w,
    "transposed": lambda x, w: x @ w.T,
    "batched": lambda x, w: x.reshape(4, 12, 48) @ w,
    "turned result": lambda x, w: (x @ w).T,
    "from the left": lambda x, w: w @ x.T,
    "heads": lambda x, w: x.reshape(4, 12, 48).permute(1, 0, 2).reshape(48, 48) @ w.T,
    "flipped": lambda x, w: x @ w.flip(0),
    "a part": lambda x, w: x[:, :40] @ w[8:, :40],
    "spread": lambda x, w: x.reshape(12, 4, 48) @ w.reshape(1, 48, 48).expand(12, 48, 48),
    "read twice": lambda x, w: x @ w + w,
    "squared": lambda x, w: x @ (w @ w),
    "rows of a softmax": lambda x, w: (x @ w).softmax(-1),
}


def in_numpy(form: str, x: Array, w: Array) -> Array:
    """The forms with NumPy's names for the same things."""
    if form == "heads":
        return x.reshape(4, 12, 48).transpose(1, 0, 2).reshape(48, 48) @ w.T
    if form == "flipped":
        return x @ w[::-1]
    if form == "spread":
        return x.reshape(12, 4, 48) @ w
    if form == "rows of a softmax":
        grown = np.exp(x @ w - (x @ w).max(-1, keepdims=True))
        return grown / grown.sum(-1, keepdims=True)
    return FORMS[form](x, w)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forms(form: str, dtype: Any) -> None:
    x, w = values(48, 48).astype(dtype), values(48, 48, seed=1).astype(dtype)
    given, weight = svod.Tensor(x), svod.Tensor(w)
    plan = svod.prepare(FORMS[form](given, weight), inputs={"x": given}, freeze=True)
    later = values(48, 48, seed=7).astype(dtype)
    wanted = in_numpy(form, later.astype(np.float64), w.astype(np.float64))
    assert close(plan(x=later), wanted)


def test_run_time_sizes() -> None:
    n = svod.Variable("n", 1, 64)
    x, w = svod.Tensor(values(64, 32)), svod.Tensor(values(48, 32, seed=1))
    plan = svod.prepare(x[: n.bind(10)].linear(w), inputs={"x": x}, freeze=True)
    whole = values(64, 32).astype(np.float64) @ values(48, 32, seed=1).T
    assert close(plan(n=10), whole[:10])
    assert close(plan(n=64), whole)


def test_a_frozen_matrix_is_packed_once() -> None:
    plan, _, _, arrays = frozen_linear(64, 1024, 1001)
    assert [type(op) for op in plan.prepared_ops()] == [PreparedKernel]
    assert not stores_in_scratch(plan)
    (kernel,) = plan.prepared_kernels()
    sizes = {plan.buffers()[place].size for place in kernel.buffer_indices}
    assert 1001 * 1024 not in sizes  # not the matrix itself, but whole panels of it
    assert any(size > 1001 * 1024 for size in sizes)
    live = svod.Tensor(arrays["x"]) @ svod.Tensor(np.ascontiguousarray(arrays["w"].T))
    assert stores_in_scratch(live.prepare())


def test_few_rows_read_the_matrix_as_it_is() -> None:
    plan, _, _, arrays = frozen_linear(1, 256, 512)
    held = sorted(b.size for b in plan.buffers())
    assert 256 * 512 in held
    assert plan.memory.constant_bytes == arrays["w"].nbytes + arrays["b"].nbytes


def test_the_plan_keeps_its_values() -> None:
    plan, w, b, arrays = frozen_linear(32, 64, 96)
    before = plan(input0=arrays["x"])
    w.assign(w * 0).realize()
    b.assign(b + 100).realize()
    assert (plan(input0=arrays["x"]) == before).all()


def test_shared_memory_is_copied() -> None:
    arrays = {"x": values(2, 8), "w": values(4, 8)}
    x, w = [svod.Tensor.from_numpy(a) for a in arrays.values()]
    plan = svod.prepare(x.linear(w), inputs=[x], freeze=True)
    before = plan(input0=arrays["x"])
    arrays["w"][:] = 0
    assert (plan(input0=arrays["x"]) == before).all()


def test_a_live_plan_sees_changes() -> None:
    x, w = svod.Tensor(values(32, 64)), svod.Tensor(values(96, 64, seed=1))
    plan = svod.prepare(x.linear(w), inputs=[x])
    plan.execute()
    w.assign(w * 0).realize()
    assert not plan(input0=values(32, 64)).any()
    assert plan.memory.constant_bytes == 0


def test_only_inputs_have_names() -> None:
    plan, *_ = frozen_linear(16, 32, 48)
    assert list(plan.inputs) == ["input0"]
    assert plan.memory.constant_bytes == 32 * 48 * 4 + 48 * 4
    assert plan.memory.constant_bytes <= plan.memory.fixed_bytes


def test_constant_parts_are_computed_at_build() -> None:
    x, scale = svod.Tensor(values(4, 8, 5, 5)), svod.Tensor(values(8))
    mean, shift = svod.Tensor(values(8, seed=1)), svod.Tensor(values(8, seed=2))
    variance = svod.Tensor(np.abs(values(8, seed=3)) + 1)
    y = x.batch_norm(mean, variance, scale, shift)
    plan = svod.prepare(y, inputs={"x": x}, freeze=True)
    (kernel,) = plan.prepared_kernels()
    ops = {n.op for n in kernel.ast.toposort()}
    assert not ops & {O.RSQRT, O.SQRT, O.DIV, O.RECIP}
    wide = [t.numpy().astype(np.float64).reshape(8, 1, 1) for t in (mean, variance, scale, shift)]
    wanted = (values(4, 8, 5, 5) - wide[0]) / np.sqrt(wide[1] + 1e-5) * wide[2] + wide[3]
    assert close(plan(x=values(4, 8, 5, 5)), wanted)


def test_what_would_grow_is_not_folded() -> None:
    x = svod.Tensor(values(4, 300))
    narrow = svod.Tensor(np.arange(300 * 200, dtype=np.int8).reshape(300, 200))
    scales = svod.Tensor(values(200))
    wide = narrow.cast("float32") * scales
    parts = constant_parts([(x @ wide).uop], [x.uop])
    assert wide.uop not in parts
    plan = svod.prepare(x @ wide, inputs=[x], freeze=True)
    assert plan.memory.constant_bytes < 300 * 200 * 4
    weights = narrow.numpy().astype(np.float64) * scales.numpy()
    assert close(plan(input0=values(4, 300)), values(4, 300) @ weights)


def test_assigned_memory_stays_live() -> None:
    x, w = svod.Tensor(values(8, 16)), svod.Tensor(values(16, 16, seed=1))
    count = svod.Tensor(np.zeros(1, np.float32)).realize()
    y = x @ w + count
    plan = svod.prepare(y, count.assign(count + 1), inputs=[x], freeze=True)
    first, second = plan(input0=values(8, 16))[0], plan(input0=values(8, 16))[0]
    assert np.allclose(second - first, 1, atol=1e-4)


def test_one_matrix_in_two_kernels() -> None:
    """A tied table: rows are picked from it, and it is multiplied by."""
    table = svod.Tensor(values(64, 48))
    ids = svod.Tensor(np.arange(16) % 64)
    rows = table[ids].contiguous()
    plan = svod.prepare(rows.layer_norm(48).linear(table), inputs={"ids": ids}, freeze=True)
    arrays = values(64, 48).astype(np.float64)
    picked = arrays[np.arange(16)[::-1]]
    normed = (picked - picked.mean(1, keepdims=True)) / np.sqrt(picked.var(1, keepdims=True) + 1e-5)
    found = plan(ids=np.arange(16)[::-1].copy())
    assert close(found, normed @ arrays.T)


def test_save_and_load(tmp_path: Path) -> None:
    plan, w, _, arrays = frozen_linear(24, 64, 130)
    plan.save(tmp_path / "plan.svod")
    w.assign(w * 0).realize()
    loaded = load_plan(tmp_path / "plan.svod")
    assert (loaded(input0=arrays["x"]) == plan(input0=arrays["x"])).all()
    assert loaded.memory == plan.memory
    with pytest.raises(ConfigError, match="frozen"):
        plan.save(tmp_path / "bare.svod", weights=False)


def test_freeze_needs_inputs() -> None:
    x = svod.Tensor(values(4, 4))
    with pytest.raises(ConfigError, match="needs inputs"):
        svod.prepare(x + 1, freeze=True)


def test_without_loops_chosen_nothing_is_packed() -> None:
    x, w = svod.Tensor(values(32, 64)), svod.Tensor(values(96, 64, seed=1))
    plan = svod.prepare(x.linear(w), config="none", inputs=[x], freeze=True)
    assert close(plan(input0=values(32, 64)), values(32, 64) @ values(96, 64, seed=1).T)


def test_replicas_share_constants() -> None:
    plan, _, _, arrays = frozen_linear(16, 64, 96)
    twin = plan.replicate()
    assert (twin(input0=arrays["x"]) == plan(input0=arrays["x"])).all()


def test_jit() -> None:
    w = svod.Tensor(values(96, 64))
    steps = svod.Tensor(np.zeros(1, np.float32)).realize()

    @svod.jit(freeze=True)
    def frozen(x: Any) -> Any:
        steps.assign(steps + 1)
        return x.linear(w) + steps

    x = svod.Tensor(values(16, 64))
    first = frozen(x).numpy()
    w.assign(w * 0).realize()
    assert np.allclose(frozen(x).numpy(), first + 1, atol=1e-4)
    assert frozen.plan(x).memory.constant_bytes == 96 * 64 * 4


def test_jit_draws_anew() -> None:
    scale = svod.Tensor(np.ones(8, np.float32))
    drawn = svod.jit(lambda x: x + svod.rand(8) * scale, freeze=True)
    x = svod.zeros(8)
    assert (drawn(x).numpy() != drawn(x).numpy()).any()


def test_inference_wrapper() -> None:
    model = nn.Sequential(
        nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10)
    )
    model[0].train(False)
    x = svod.Tensor(values(8, 32))
    model.train()
    run = nn.inference(model, x)
    assert model.training
    assert run.plans == 1
    model.eval()
    wanted = model(x).numpy()
    for p in model.parameters():
        p.assign(p.detach() * 0).realize()
    assert np.allclose(run(x).numpy(), wanted, atol=1e-5)
    assert not run(values(8, 32)).numpy().any()  # arrays are another signature, met only now


def test_a_loop_over_time_with_frozen_weights() -> None:
    layer = nn.GRU(8, 16).realize()
    x = svod.Tensor(values(12, 3, 8))
    run = nn.inference(layer, x)
    wanted = layer(x)[0].numpy()
    for p in layer.parameters():
        p.assign(p.detach() * 0).realize()
    assert np.allclose(run(x)[0].numpy(), wanted, atol=1e-5)


def test_a_matrix_that_is_read_in_another_way_too_stays_as_it_is() -> None:
    x, w = (svod.Tensor(values(256, 256, seed=n)).realize() for n in range(2))
    for result, is_packed in [(x @ w, True), (x @ w + x, False), (x @ w * x.T, False)]:
        (body,) = bodies(result)
        memory = [Buffer.new("CPU", 256 * 256, dt.float32) for _ in range(3)]
        item = ScheduleItem(body, body, memory, [0, 1, 2])
        assert (find_packing(item, [1, 2]) is not None) is is_packed


def integers(dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(3).integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("sizes", [(128, 256, 192), (9, 40, 1000), (17, 44, 900), (33, 37, 1000)])
@pytest.mark.parametrize(
    "kinds", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "int16")]
)
def test_narrow_weights_are_packed_in_words(
    sizes: tuple[int, int, int], kinds: tuple[str, str]
) -> None:
    rows, depth, columns = sizes
    x, w = integers(kinds[0], rows, depth), integers(kinds[1], columns, depth)
    given, weight = svod.Tensor(x), svod.Tensor(w)
    result = given.cast("int32") @ weight.T.cast("int32")
    plan = svod.prepare(result, inputs=[given], freeze=True)
    wanted = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.int32)
    assert np.array_equal(plan(input0=x), wanted)
    if "u8s8" in getattr(optimizer_machine("CPU"), "dots", ()) and kinds == ("uint8", "int8"):
        # words that the depth does not fill are made in every run
        assert stores_in_scratch(plan) == (depth % 4 != 0)


@pytest.mark.timeout(60)
def test_shared_parts_that_are_too_large_are_looked_at_once() -> None:
    x = svod.Tensor(np.zeros((1, 4), np.float32)).realize()
    table = svod.Tensor(np.arange(4, dtype=np.float32)).realize().expand(1 << 15, 4)
    for _ in range(40):  # 2 ** 40 ways through the graph
        table = (table + 1) * (table - 1)
    assert constant_parts([(x + table).uop], [x.uop]) == []
