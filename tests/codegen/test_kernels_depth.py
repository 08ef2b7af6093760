"""Contractions whose depth is cut in parts, and those whose output lies across the lanes."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.codegen.pipeline import generate_from
from svod.codegen.targets.cpu import cpu_target
from svod.optimize import contraction
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.opts import Opt
from svod.runtime.config import OptimizerConfig, PrepareConfig
from tests.codegen.test_kernels_contraction import data, failure, make_narrow_case
from tests.schedule.graphs import MACHINE, bodies, code, loop_nest

FORMS = ("", "A", "B", "AB")


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "PART_STEPS", 8)


def product(m: int, k: int, n: int, form: str, dtype: str = "float32") -> tuple[Tensor, np.ndarray]:
    """A product of operands that lie in memory as the form says, and its value."""
    rng = np.random.default_rng(m * k + n)
    a = data(rng, (k, m) if "A" in form else (m, k), dtype)
    b = data(rng, (n, k) if "B" in form else (k, n), dtype)
    left, right = (Tensor(x).realize() for x in (a, b))
    x, y = (a.T if "A" in form else a), (b.T if "B" in form else b)
    left = left.permute(1, 0) if "A" in form else left
    right = right.permute(1, 0) if "B" in form else right
    return left @ right, x.astype(np.float64) @ y.astype(np.float64)


def names(x: Tensor) -> list[str]:
    (body,) = bodies(x)
    return [o.name for o in code(body, MACHINE).opts]


@pytest.mark.parametrize("first", range(0, 32, 8))
def test_random_contractions_in_parts(
    first: int, monkeypatch: pytest.MonkeyPatch, short_parts: None
) -> None:
    for seed in range(first, first + 8):
        wrong = failure(seed, monkeypatch)
        assert wrong is None, f"contraction {seed}, {wrong}"
    for seed in range(first, first + 4):
        wrong = failure(seed, monkeypatch, make_narrow_case)
        assert wrong is None, f"narrow contraction {seed}, {wrong}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ((40, 1100, 300), (129, 2049, 65), (9, 20_000, 33)))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_products_of_long_depth(shape: tuple[int, int, int], form: str, dtype: str) -> None:
    got, want = product(*shape, form, dtype)
    plan = got.prepare()
    for _ in range(2):  # sums of one run do not go on in the next
        plan.execute()
        assert (got.numpy() == want).all()


def test_rows_that_lie_across_the_depth_are_packed_for_all_columns() -> None:
    got, _ = product(1024, 1024, 1024, "A")
    assert names(got)[0] == "DEPTH"
    got, _ = product(1024, 1024, 1024, "")
    assert "DEPTH" not in names(got)


def test_operands_that_both_lie_the_other_way_are_multiplied_that_way() -> None:
    got, want = product(700, 600, 800, "AB")
    (body,) = bodies(got)
    assert next(o for o in code(body, MACHINE).opts if o.name == "TILE").axis == 0
    assert (got.numpy() == want).all()


@pytest.mark.parametrize("rows", (3, 4, 6, 8, 13, 16))
@pytest.mark.parametrize("dtype", ("float32", "float64", "int16", "int8"))
def test_stores_across_the_lanes(rows: int, dtype: str) -> None:
    """Blocks that are transposed in registers, the rest of them, and lanes past the end."""
    x = np.arange(45 * 37).reshape(45, 37).astype(dtype)
    opts = [Opt("UPCAST", 1, rows), Opt("LANE", 0, 16)]
    z = (Tensor(x).realize() + 1).permute(1, 0).contiguous()
    plan = z.prepare(config=PrepareConfig(OptimizerConfig(opts=opts)))
    plan.execute()
    assert (z.numpy() == (x + 1).astype(dtype).T).all()


def test_stores_across_lanes_that_end_within_a_vector() -> None:
    """Copies fill what is between two lanes, and the last lanes do not exist."""
    x = np.arange(455, dtype=np.float32)
    y = Tensor(x).realize() * 2
    opts = [Opt("UPCAST", 0, 8), Opt("LANE", 0, 32)]
    plan = y.prepare(config=PrepareConfig(OptimizerConfig(opts=opts)))
    plan.execute()
    assert (y.numpy() == 2 * x).all()
    (body,) = bodies(Tensor(x) * 2)
    kernel = apply_opts(loop_nest(body), opts, MACHINE)
    text = generate_from(body, kernel, (), cpu_target(MACHINE)).text().function
    assert text.count("store <8 x float>") == 56  # one for each lane that exists


def test_what_follows_a_sum_is_done_after_its_last_part(short_parts: None) -> None:
    got, want = product(64, 640, 96, "A")
    bias = np.arange(96, dtype=np.float32)
    out = (got + Tensor(bias).realize()).maximum(3)
    opts = [Opt("DEPTH", 2, 100), Opt("TILE", 1, 32), Opt("STAGE", 1, 3), Opt("UPCAST", 0, 8)]
    plan = out.prepare(config=PrepareConfig(OptimizerConfig(opts=opts)))
    plan.execute()
    assert (out.numpy() == np.maximum(want + bias, 3)).all()


def test_sums_do_not_wait_where_something_is_read(short_parts: None) -> None:
    got, want = product(64, 640, 96, "A")
    start = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
    x = Tensor(start).realize()
    (body,) = bodies(got + x)
    with pytest.raises(OptimizeError, match="may lie where the sums wait"):
        apply_opts(loop_nest(body), [Opt("DEPTH", 2, 100)], MACHINE)
    x.assign(x + got)
    assert (x.numpy() == start + want).all()


LISTS = (
    (Opt("DEPTH", 2, 3), Opt("UNROLL", 2, 3)),
    (Opt("DEPTH", 2, 32), Opt("LANE", 2, 16)),
    (Opt("DEPTH", 2, 50), Opt("UNROLL", 2, 4), Opt("UPCAST", 0, 3), Opt("LANE", 1, 16)),
    (Opt("DEPTH", 2, 7), Opt("TILE", 0, 16), Opt("STAGE", 0, 2), Opt("STRIP", 1, 5)),
    (Opt("DEPTH", 2, 40), Opt("TILE", 1, 48), Opt("STAGE", 1, 1), Opt("STRIP", 0, 8)),
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opts", LISTS, ids=lambda opts: " ".join(o.name for o in opts))
def test_lists_with_parts_of_the_depth(opts: tuple[Opt, ...], form: str) -> None:
    got, want = product(19, 96, 45, form)
    plan = got.prepare(config=PrepareConfig(OptimizerConfig(opts=list(opts))))
    plan.execute()
    assert (got.numpy() == want).all()


REFUSED = {
    "DEPTH takes a reduced axis": (lambda: product(16, 64, 32, "")[0], Opt("DEPTH", 1, 8)),
    "the axis has 64 steps": (lambda: product(16, 64, 32, "")[0], Opt("DEPTH", 2, 64)),
    "cannot wait in an output": (
        lambda: product(16, 64, 32, "")[0].cast(svod.bfloat16),
        Opt("DEPTH", 2, 8),
    ),
    "not one sum": (lambda: Tensor(np.ones((8, 64), np.float32)).amax(1), Opt("DEPTH", 1, 8)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_depth_that_cannot_be_cut(reason: str) -> None:
    make, opt = REFUSED[reason]
    (body,) = bodies(make())
    with pytest.raises(OptimizeError, match=reason):
        apply_opts(loop_nest(body), [opt], MACHINE)
