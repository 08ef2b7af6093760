"""Indices out of range are errors on every road: at the call where their values are known, else
when a plan reads them; what is in range, and what the functions allow, stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import IndexRangeError
from svod.base.knobs import knobs
from svod.ir import ops as O
from svod.ir.guards import is_check
from svod.nn import functional as F

RNG = np.random.default_rng(3)
DEVICES = ["CPU", "REF"]


def floats(*shape: int, device: str = "CPU") -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype(np.float32)).to(device).realize()


def ints(*values: object, device: str = "CPU") -> Tensor:
    return Tensor(np.array(values)).to(device).realize()


def checks_in(*tensors: Tensor) -> int:
    return sum(is_check(node) for t in tensors for node in t.uop.toposort())


# What each function does with an index into an axis of size 3, and whether it takes negative ones.
READS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "x[index]": (lambda x, i: x[i], True),
    "gather": (lambda x, i: x.gather(0, i[:, None]), False),
    "take_along_dim": (lambda x, i: x.take_along_dim(i[:, None], 0), True),
    "index_select": (lambda x, i: x.index_select(0, i), False),
    "take": (lambda x, i: svod.take(x, i, axis=0), True),
    "embedding": (lambda x, i: i.embedding(x), False),
    "embedding_bag": (lambda x, i: F.embedding_bag(i[None], x), False),
    "one_hot": (lambda x, i: i.one_hot(3), False),
    "x[index] = value": (lambda x, i: _written(x, i), True),
    "scatter": (lambda x, i: x.scatter(0, i[:, None], 1.0), False),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[:, None], svod.ones(len(i), 1)), False),
    "scatter_reduce": (
        lambda x, i: x.scatter_reduce(0, i[:, None], svod.ones(len(i), 1), "amax"),
        False,
    ),
    "index_add": (lambda x, i: x.index_add(0, i, svod.ones(len(i), 4)), False),
    "index_copy": (lambda x, i: x.index_copy(0, i, svod.ones(len(i), 4)), False),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), True),
    "index_put": (lambda x, i: x.index_put((i,), svod.ones(4)), True),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, svod.ones(len(i), 4), "prod"), False),
    "put": (lambda x, i: x[:, 0].put(i, svod.ones(len(i))), True),
    "cross_entropy": (lambda x, i: x.T[: len(i)].cross_entropy(i), False),
    "nll_loss": (lambda x, i: x.T[: len(i)].nll_loss(i), False),
    "multi_margin_loss": (lambda x, i: x.T[: len(i)].multi_margin_loss(i), False),
    "max_unpool1d": (lambda x, i: F.max_unpool1d(x[:1, None, : len(i)], i[None, None], 1), False),
    "bincount": (lambda x, i: svod.bincount(i + 0, minlength=3), False),
}


def _written(x: Tensor, i: Tensor) -> Tensor:
    found = x + 0
    found[i] = 1.0
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", READS)
def test_an_index_out_of_range_is_an_error_that_names_the_function(name: str, device: str) -> None:
    function, takes_negative = READS[name]
    x = floats(3, 4, device=device)
    bad = [(-4 if takes_negative else -1, 0, 1)]
    if name not in ("bincount", "max_unpool1d"):  # the size of these results follows the index
        bad.append((0, 3, 1))
    for values in bad:
        with pytest.raises(IndexRangeError) as caught:
            function(x, ints(*values, device=device)).realize()
        wrong = next(v for v in values if not 0 <= v < 3)
        low = -3 if takes_negative else 0
        assert str(caught.value).startswith(
            f"{name}: {wrong} is out of range for an axis of size 3, which takes {low} to 2"
        )
        assert isinstance(caught.value, IndexError) and isinstance(caught.value, RuntimeError)
    function(x, ints(0, 2, 1, device=device)).realize()
    if takes_negative:
        found = function(x, ints(-1, -3, 0, device=device)).numpy()
        np.testing.assert_array_equal(found, function(x, ints(2, 0, 0, device=device)).numpy())


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_every_integer_dtype_is_checked_and_shows_its_value(kind: str) -> None:
    x = floats(100, 2)
    largest = np.iinfo(kind).max
    for wrong in (100, largest) + (() if kind[0] == "u" else (np.iinfo(kind).min,)):
        index = Tensor(np.array([0, wrong], kind)).realize()
        with pytest.raises(IndexRangeError, match=rf"\[index\]: {wrong} is"):
            x[index].realize()
        with pytest.raises(IndexRangeError, match=f"embedding: {wrong} is"):
            index.embedding(x).realize()


def test_lists_arrays_and_constants_are_checked_at_the_call() -> None:
    x = floats(3, 4)
    for function in (
        lambda: x[[0, 3]],
        lambda: x[np.array([0, -4])],
        lambda: x[Tensor(3)],
        lambda: x.index_select(0, [0, -1]),
        lambda: x.gather(0, np.array([[5]])),
        lambda: x.cross_entropy(Tensor(4).expand(3)),
        lambda: svod.zeros(0, 2)[ints(0)],
    ):
        with pytest.raises(IndexRangeError):
            function()


def test_what_is_in_range_by_its_making_is_not_looked_at() -> None:
    x, y = floats(9, 4), floats(9)
    n = svod.Variable("n", 1, 9)
    assert not checks_in(
        x[svod.arange(9)],
        x[svod.arange(2, 11) - 2],
        x[svod.arange(100) % 9],
        x[svod.arange(100).clamp(0, 8)],
        x[ints(3, 99, -5).clamp(-9, 8)],
        x[y.argmax()],
        x[y.argsort()],
        x.gather(0, x.argsort(0)),
        x[y.topk(3).indices],
        x[svod.randperm(9)],
        x[[0, 8, -9]],
        x[x[:, 0] > 0],
        *x.sort(0),
        *x.median(0),
        *x.kthvalue(2, 0),
        *x.mode(0),
        x.quantile(0.3, 0),
        *x.cummax(0),
        *F.max_pool1d(x[None], 2, return_indices=True),
        svod.arange(9)[: n.bind(5)].embedding(x),
        svod.unique(ints(1, 2, 1)),
        y.histc(4),
    )
    assert checks_in(x[ints(0, 1)]) == 1


def test_labels_that_are_ignored_are_legal() -> None:
    logits = floats(4, 5)
    target = ints(1, -100, 4, -100)
    assert np.isfinite(logits.cross_entropy(target).item())
    assert np.isfinite(logits.cross_entropy(ints(1, 7, 4, 7), ignore_index=7).item())
    assert np.isfinite(logits.cross_entropy(target, label_smoothing=0.1).item())
    for wrong in (5, -1, -99):
        with pytest.raises(IndexRangeError, match=f"cross_entropy: {wrong} is out of range"):
            logits.cross_entropy(ints(1, -100, wrong, 0)).item()
    with pytest.raises(IndexRangeError, match="multilabel_margin_loss: 5"):
        floats(1, 5).multilabel_margin_loss(ints([1, 5, -1, 0, 0])).item()
    floats(1, 5).multilabel_margin_loss(ints([1, 4, -1, 0, 0])).item()


def test_the_error_names_the_line() -> None:
    x, i = floats(3), ints(7)
    picked = x[i]
    line = sys._getframe().f_lineno - 1
    with pytest.raises(IndexRangeError, match=rf"test_index_range.py, line {line}\)"):
        (picked + 1).numpy()


def test_without_the_knob_nothing_is_checked() -> None:
    x = floats(3)
    with knobs.scope(CHECK_INDICES=0):
        found = x[ints(1, 9)]
        assert not checks_in(found)
        np.testing.assert_array_equal(found.numpy(), [x.numpy()[1], 0])
    with pytest.raises(IndexRangeError):
        x[ints(1, 9)].numpy()


def test_a_failed_run_leaves_everything_as_it_was_and_the_next_one_works() -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 5))
    optimizer = nn.optim.AdamW(model.parameters(), lr=0.1)

    @svod.jit(state=(model, optimizer))
    def step(tokens: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(tokens).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss

    good = ints(1, 2, 9), ints(0, 4, 3)
    first = step(*good).item()
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    for bad in ((ints(1, 2, 10), good[1]), (good[0], ints(0, 4, 5)), (good[0], ints(-1, 4, 3))):
        with pytest.raises(IndexRangeError):
            step(*bad)
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), before[name])
    assert step.plans == 1
    assert step(*good).item() < first


def test_eager_training_steps_fail_before_they_write() -> None:
    layer = nn.Linear(4, 3)
    optimizer = nn.optim.SGD(layer.parameters(), lr=0.5)
    x = floats(2, 4)
    before = layer.weight.numpy().copy()
    layer(x).cross_entropy(ints(0, 3)).backward()
    with pytest.raises(IndexRangeError):
        optimizer.step()
    optimizer.zero_grad()
    np.testing.assert_array_equal(layer.weight.detach().numpy(), before)
    layer(x).cross_entropy(ints(0, 2)).backward()
    optimizer.step()
    assert (layer.weight.detach().numpy() != before).any()


def test_gradients_are_checked_as_well() -> None:
    table = floats(6, 3).requires_grad_()
    (picked,) = svod.autograd.grad((table[ints(1, 6)] * 2).sum(), [table])
    with pytest.raises(IndexRangeError):
        picked.numpy()
    (picked,) = svod.autograd.grad((table[ints(1, -1)] * 2).sum(), [table])
    np.testing.assert_array_equal(picked.numpy()[:, 0], [0, 2, 0, 0, 0, 2])


def test_steps_of_a_scan_are_checked() -> None:
    table = floats(4, 2)

    def step(total: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        row = table[i]
        return total + row, row.sum()

    start = svod.zeros(2)
    with pytest.raises(IndexRangeError, match=r"x\[index\]: 4 is out of range"):
        svod.scan(step, start, ints(0, 1, 4, 2))[0].numpy()
    last, _ = svod.scan(step, start, ints(0, 1, -1, 2))
    np.testing.assert_allclose(last.numpy(), table.numpy().sum(0), rtol=1e-6)


def test_a_batch_of_indices_is_checked() -> None:
    table = floats(4, 2)
    pick = svod.func.vmap(lambda i: table[i] * 2)
    np.testing.assert_array_equal(pick(ints(0, 3)).numpy(), 2 * table.numpy()[[0, 3]])
    with pytest.raises(IndexRangeError):
        pick(ints(0, 4)).numpy()


def test_run_time_sizes_are_checked_at_their_value() -> None:
    n = svod.Variable("n", 1, 8)
    x = floats(8)
    with pytest.raises(IndexRangeError, match=r"5 is out of range for an axis of size 5, .* -5 to"):
        x[: n.bind(5)][ints(0, 5)].numpy()
    np.testing.assert_array_equal(x[: n.bind(6)][ints(0, -1)].numpy(), x.numpy()[[0, 5]])


def test_prepared_and_saved_plans_check_what_they_are_given(tmp_path: Path) -> None:
    table, index = floats(5, 3), ints(0, 1)
    plan = svod.prepare(table[index] * 2, inputs={"index": index})
    assert plan.is_native and list(plan.outputs) == ["output0"]
    for weights in (True, False):
        plan.save(tmp_path / "p.svod", weights=weights)
        loaded = svod.load_plan(tmp_path / "p.svod", **_trust())
        if not weights:
            assert len(loaded.inputs) == 2, "words of checks are not to be bound"
            (other,) = [name for name in loaded.inputs if name != "index"]
            loaded.bind(other, table.numpy().ravel())
        for each in (plan, loaded, plan.replicate()):
            np.testing.assert_array_equal(each(index=np.array([4, -5])), 2 * table.numpy()[[4, 0]])
            with pytest.raises(IndexRangeError, match="5 is out of range"):
                each(index=np.array([0, 5]))
            with pytest.raises(IndexRangeError):
                each.execute_profiled()


def _trust() -> dict[str, bool]:
    import inspect

    return {"trusted": True} if "trusted" in inspect.signature(svod.load_plan).parameters else {}


def test_frozen_indices_are_checked_when_the_plan_is_made() -> None:
    table, index, x = floats(5, 3), ints(0, 5), floats(2, 3)
    with pytest.raises(IndexRangeError):
        svod.prepare(table[index] * x, inputs={"x": x}, freeze=True)


def test_the_null_device_checks_nothing() -> None:
    x = svod.zeros(3, device="NULL")
    x[Tensor(np.array([9])).to("NULL")].realize()


def test_large_index_tensors_are_looked_at_as_a_whole() -> None:
    x = floats(1000)
    index = RNG.integers(0, 1000, 300_000)
    np.testing.assert_array_equal(x[Tensor(index)].numpy(), x.numpy()[index])
    for place in (0, 150_001, 299_999):
        wrong = index.copy()
        wrong[place] = 1000 + place
        with pytest.raises(IndexRangeError, match=f" {1000 + place} is out of range"):
            x[Tensor(wrong)].numpy()


def test_kernels_are_the_same_with_and_without_checks() -> None:
    x, index = floats(7, 3), ints(1, 2)
    plan = svod.prepare(x[index].exp())
    with knobs.scope(CHECK_INDICES=0):
        bare = svod.prepare(x[index].exp())
    own = {k.kernel.source for k in plan.prepared_kernels()}
    assert {k.kernel.source for k in bare.prepared_kernels()} < own
    assert len(own) == 2


def test_the_environment_leaves_checks_out() -> None:
    program = "import svod; print(svod.Tensor([1.0])[svod.Tensor([4])].tolist())"
    env = {**os.environ, "SVOD_CHECK_INDICES": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[0.0]", done.stderr


def test_a_mark_is_no_part_of_the_value() -> None:
    x, index = floats(4), ints(1, 2)
    node = x[index].uop
    assert any(is_check(n) for n in node.toposort())
    assert all(n.op != O.CUSTOM_FUNCTION for n in node.toposort())
