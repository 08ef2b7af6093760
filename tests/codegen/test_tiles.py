"""Matmul tiles for tensor cores, run by the emulator: layouts, borders, batches, types.

Panels of bytes and of 32-bit elements that lie across the summed axis are turned on their way into
shared memory; what comes out is compared with NumPy, and the emulator watches shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.targets.cuda import cuda_target
from svod.device.cuda.compiler import architecture, emit_ptx
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import ASSEMBLER, assemble, bodies, stored

Array = np.ndarray[Any, Any]
NUMPY = {
    dt.int8: np.int8, dt.uint8: np.uint8, dt.int16: np.int16, dt.int32: np.int32,
    dt.int64: np.int64, dt.float32: np.float32, dt.float16: np.float16,
    dt.bfloat16: ml_dtypes.bfloat16, dt.float8_e4m3: ml_dtypes.float8_e4m3fn,
    dt.float8_e5m2: ml_dtypes.float8_e5m2,
}  # fmt: skip
# Operands, the result, and how far off its norm may be.
CASES = {
    "bytes": (dt.int8, dt.int32, 0.0),
    "tf32": (dt.float32, dt.float32, 1e-3),
    "float8": (dt.float8_e4m3, dt.bfloat16, 2.5e-3),
    "float8 in full": (dt.float8_e5m2, dt.float32, 1e-7),
}
HALVES = {"half": (dt.float16, dt.float32, 1e-6), "bfloat": (dt.bfloat16, dt.bfloat16, 5e-3)}
LAYOUTS = ["", "a", "b", "ab"]
Product = Callable[[Any, Any], Any]


def machine(cores: str = "auto", columns: int = 0) -> GpuMachine:
    return GpuMachine(tensor_cores=cores, uses_tf32=True, tile_columns=columns)


def random(kind: dt.DType, *shape: int) -> Array:
    rng = np.random.default_rng(prod(shape))
    if kind.kind in "iu":
        return rng.integers(0, 256, shape).astype(NUMPY[kind])
    return rng.standard_normal(shape).astype(NUMPY[kind])


def kernel(found: Tensor, gpu: GpuMachine) -> KernelCode:
    (body,) = bodies(found)
    return generate(body, cuda_target(gpu))


def tile_of(code: KernelCode) -> tuple[Any, ...]:
    """The arguments of a kernel's tile."""
    (found,) = [n.arg for n in code.kernel.toposort() if is_tile(n)]
    return found  # type: ignore[no-any-return]


def emulate(code: KernelCode, result: Array, *operands: Array, aligned: bool = True) -> Emulator:
    """Tiles that the copy engine feeds run in the form where threads copy."""
    aligned = aligned and not tile_of(code)[1].startswith("tma")
    arrays = dict(enumerate((result, *operands)))
    found = Emulator(code.text(aligned).source, arrays, code.threads)
    x, y, z = (int(s.arg) for s in derive_metadata(code.kernel).global_size)
    found.run((x, y, z))
    return found


def exact(kind: dt.DType, *operands: Array) -> list[Array]:
    return [o.astype(np.int64 if kind.kind in "iu" else np.float64) for o in operands]


def compare(found: Array, wanted: Array, limit: float) -> None:
    if limit == 0:
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))
        return
    error = np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < limit, f"relative error {error}"


def layout(
    name: str, turned: str, size: tuple[int, int, int], gpu: GpuMachine, aligned: bool = True
) -> tuple[KernelCode, Emulator]:
    kind, result, limit = CASES[name]
    m, n, k = size
    a = random(kind, *((k, m) if "a" in turned else (m, k)))
    b = random(kind, *((n, k) if "b" in turned else (k, n)))

    def operands(x: Any, y: Any) -> tuple[Any, Any]:
        return x.T if "a" in turned else x, y.T if "b" in turned else y

    x, y = operands(stored(*a.shape, dtype=kind), stored(*b.shape, dtype=kind))
    left, right = operands(*exact(kind, a, b))
    code = kernel(x.matmul(y, dtype=result), gpu)
    found = np.zeros((m, n), NUMPY[result])
    emulator = emulate(code, found, a, b, aligned=aligned)
    compare(found, left @ right, limit)
    return code, emulator


@pytest.mark.parametrize("columns", [64, 256])
@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("name", CASES)
def test_layouts_with_borders(name: str, cores: str, turned: str, columns: int) -> None:
    depth = 208 // CASES[name][0].itemsize
    code, emulator = layout(name, turned, (132, 260, depth), machine(cores, columns))
    unit, _, element = tile_of(code)[1].partition(".")
    if cores == "mma" or name == "float8 in full":
        assert unit == "mma"
    else:
        assert unit == ("tma" if turned == "b" else "wgmma")
    assert element in ("s8", "tf32", "e4m3", "e5m2")
    is_narrow = (unit == "mma" and turned != "b") or (unit != "mma" and name == "float8")
    assert tile_of(code)[3] == columns if columns < 256 or not is_narrow else 128
    assert emulator.conflicts == 0


@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("name", CASES)
def test_whole_tiles_over_many_steps(name: str, cores: str, turned: str) -> None:
    depth = 768 // CASES[name][0].itemsize
    _, emulator = layout(name, turned, (128, 128, depth), machine(cores, 128))
    assert emulator.conflicts == 0


@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_no_vector_divides(name: str, cores: str, turned: str) -> None:
    layout(name, turned, (131, 127, 77), machine(cores, 128))


@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("cores", ["auto", "mma"])
def test_sixteen_bits_are_read_as_they_lie(cores: str, turned: str) -> None:
    kind, size = dt.float16, (132, 136, 72)
    m, n, k = size
    a = random(kind, *((k, m) if "a" in turned else (m, k)))
    b = random(kind, *((n, k) if "b" in turned else (k, n)))
    x, y = stored(*a.shape, dtype=kind), stored(*b.shape, dtype=kind)
    x, y = x.T if "a" in turned else x, y.T if "b" in turned else y
    found = np.zeros((m, n), np.float32)
    emulate(kernel(x.matmul(y, dtype=dt.float32), machine(cores, 128)), found, a, b)
    left, right = exact(kind, a, b)
    left, right = left.T if "a" in turned else left, right.T if "b" in turned else right
    compare(found, left @ right, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_arguments_that_are_not_aligned(name: str) -> None:
    layout(name, "", (128, 136, 80), machine(), aligned=False)


def run(
    name: str, a: Array, b: Array, product: Product, gpu: GpuMachine, has_tile: bool = True
) -> None:
    """A product written for tensors and arrays alike, where a tile is made of it."""
    kind, result, limit = CASES[name]
    wanted = product(*exact(kind, a, b))
    code = kernel(product(stored(*a.shape, dtype=kind), stored(*b.shape, dtype=kind)), gpu)
    assert any(is_tile(n) for n in code.kernel.toposort()) == has_tile
    if has_tile:
        found = np.zeros(wanted.shape, NUMPY[result])
        emulate(code, found, a, b)
        compare(found, wanted, limit)


def multiply(x: Any, y: Any, result: dt.DType) -> Any:
    return x @ y if isinstance(x, np.ndarray) else x.matmul(y, dtype=result)


def permute(x: Any, *order: int) -> Any:
    return x.transpose(order) if isinstance(x, np.ndarray) else x.permute(*order)


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("name", ["bytes", "tf32"])
def test_batches(name: str, cores: str) -> None:
    kind, result, _ = CASES[name]
    gpu = machine(cores)
    one = random(kind, 96, 132)
    run(name, random(kind, 3, 96, 96), one, lambda x, y: multiply(x, y, result), gpu)

    def between(x: Any, y: Any) -> Any:
        return multiply(permute(x, 1, 0, 2), y, result)

    run(name, random(kind, 96, 3, 96), random(kind, 3, 96, 132), between, gpu)
    run(name, random(kind, 96, 2, 91), random(kind, 2, 91, 131), between, gpu)

    def across(x: Any, y: Any) -> Any:
        return multiply(permute(x, 1, 2, 0), y, result)

    run(name, random(kind, 96, 3, 128), random(kind, 3, 96, 132), across, gpu)

    innermost = stored(96, 96, 3, dtype=kind).permute(2, 0, 1)  # is stored in another order
    assert len(bodies(innermost.matmul(stored(3, 96, 132, dtype=kind), dtype=result))) == 2


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("name", ["bytes", "tf32"])
def test_axes_that_are_two_in_memory(name: str, cores: str) -> None:
    kind, result, _ = CASES[name]

    def steps(x: Any, y: Any) -> Any:
        return multiply(permute(x, 2, 1, 0).reshape(132, 256), y, result)

    run(name, random(kind, 128, 2, 132), random(kind, 256, 64), steps, machine(cores))

    def rows(x: Any, y: Any) -> Any:
        return multiply(permute(x, 0, 2, 1).reshape(160, 128), y, result)

    run(name, random(kind, 4, 128, 40), random(kind, 128, 64), rows, machine(cores))


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("inner", [8, 9, 13, 49, 60, 196])
@pytest.mark.parametrize("name", [*CASES, *HALVES])
def test_rows_of_two_axes_whose_inner_one_ends_inside_a_part(
    name: str, inner: int, cores: str
) -> None:
    """Neighbours in memory are rows here, and a part of sixteen bytes may have some of two."""
    kind, result, limit = (CASES | HALVES)[name]
    count = -(-150 // inner)
    a, b = random(kind, count, 80, inner), random(kind, 80, 128)
    x, y = stored(*a.shape, dtype=kind), stored(*b.shape, dtype=kind)
    rows = x.permute(0, 2, 1).reshape(count * inner, 80)
    (body,) = bodies(rows.matmul(y, dtype=result))
    code = generate(body, cuda_target(machine(cores)))
    kinds = [n.arg[1] for n in code.kernel.toposort() if is_tile(n)]
    if kinds in ([], ["fma"]):  # there every element is placed by itself
        assert kind.itemsize != 2 and inner % 4, "what is turned is turned by fours"
        return
    found = np.zeros((count * inner, 128), NUMPY[result])
    emulate(code, found, a, b)
    left, right = exact(kind, a, b)
    compare(found, left.transpose(0, 2, 1).reshape(count * inner, 80) @ right, limit)


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("rows", [3, 8, 17])
@pytest.mark.parametrize("turned", ["", "b"])
def test_few_rows_or_columns_of_sixteen_bits(rows: int, turned: str, cores: str) -> None:
    kind, result, limit = HALVES["bfloat"]
    a, b = random(kind, rows, 520), random(kind, 712, 520)
    x, y = (stored(*o.shape, dtype=kind) for o in (a, b))
    left, right = exact(kind, a, b)
    code = kernel(y @ x.T if turned else x @ y.T, machine(cores))
    wanted = right @ left.T if turned else left @ right.T
    found = np.zeros(wanted.shape, NUMPY[result])
    emulate(code, found, *((b, a) if turned else (a, b)))
    compare(found, wanted, limit)
    assert tile_of(code)[5] > 4  # copies in flight


@pytest.mark.parametrize("kind", [dt.bfloat16, dt.float32])
def test_results_that_are_stored_as_pieces_of_rows(kind: dt.DType) -> None:
    a, b, scale, more = (random(kind, *s) for s in ((128, 96), (96, 128), (64,), (256, 64)))
    x, y, z, w = (stored(*o.shape, dtype=kind) for o in (a, b, scale, more))
    code = kernel((x @ y).reshape(256, 64) * z + w, GpuMachine())
    found = np.zeros((256, 64), NUMPY[kind])
    emulate(code, found, a, b, scale, more)
    left, right, factor, other = exact(kind, a, b, scale, more)
    compare(found, (left @ right).reshape(256, 64) * factor + other, 1e-2)


def test_factors_of_two_types() -> None:
    def product(x: Any, y: Any) -> Any:
        return x @ y

    signs = (dt.uint8, dt.int8)
    a, b = random(dt.uint8, 128, 96), random(dt.int8, 96, 132)
    code = kernel(stored(128, 96, dtype=signs[0]) @ stored(96, 132, dtype=signs[1]), machine())
    assert tile_of(code)[1] == "wgmma.u8.s8"
    found = np.zeros((128, 132), np.int16)
    emulate(code, found, a, b)
    compare(found, product(*exact(dt.int8, a, b)), 0)
    for cores, limit in (("auto", 1e-3), ("mma", 1e-3)):
        a, b = random(dt.float8_e4m3, 128, 96), random(dt.float8_e5m2, 96, 132)
        x, y = stored(128, 96, dtype=dt.float8_e4m3), stored(96, 132, dtype=dt.float8_e5m2)
        code = kernel(x @ y, machine(cores))
        assert tile_of(code)[1] == f"{'wgmma' if cores == 'auto' else 'mma'}.e4m3.e5m2"
        half = np.zeros((128, 132), np.float16)
        emulate(code, half, a, b)
        compare(half, product(*exact(dt.float16, a, b)), limit)


@pytest.mark.parametrize("result", [dt.int8, dt.int32, dt.int64])
def test_sums_of_bytes_have_the_width_asked_for(result: dt.DType) -> None:
    a, b = random(dt.int8, 128, 300), random(dt.int8, 300, 64)
    x, y = stored(128, 300, dtype=dt.int8), stored(300, 64, dtype=dt.int8)
    code = kernel(x.matmul(y, dtype=result), machine())
    assert tile_of(code)[1] == "wgmma.s8"
    found = np.zeros((128, 64), NUMPY[result])
    emulate(code, found, a, b)
    compare(found, a.astype(np.int64) @ b.astype(np.int64), 0)


def test_sums_that_may_not_fit_are_not_made_in_fewer_bits() -> None:
    x, y = stored(1024, 40_000, dtype=dt.int8), stored(40_000, 1024, dtype=dt.int8)
    assert not units(x.matmul(y, dtype=dt.int64))
    assert units(x.matmul(y, dtype=dt.int32)), "which wraps there anyway"
    assert units(x.matmul(y, dtype=dt.float32)) == ["tma.tf32"], "of converted bytes"
    assert units(x[:64].matmul(y[:, :64], dtype=dt.int64)), "split into sums that fit"


def units(found: Tensor) -> list[str]:
    """The kinds of the tiles that compute a tensor."""
    nodes = [n for b in bodies(found) for n in generated(b).kernel.toposort()]
    return list(dict.fromkeys([n.arg[1] for n in nodes if is_tile(n)]))


def generated(body: Any) -> KernelCode:
    return generate(body, cuda_target(machine()))


def test_float8_sums_are_short_only_where_they_are_rounded() -> None:
    x, y = (stored(256, 256, dtype=dt.float8_e4m3) for _ in range(2))
    scale = stored(1)

    def unit(found: Tensor) -> str:
        return str(tile_of(kernel(found, machine()))[1])

    full = x.matmul(y, dtype=dt.float32)
    assert unit(x @ y) == "wgmma.e4m3"
    assert unit(x.matmul(y, dtype=dt.bfloat16)) == "wgmma.e4m3"
    assert unit((full * scale * 3).cast(dt.bfloat16)) == "wgmma.e4m3"
    assert unit(full) == "mma.e4m3"
    assert unit((full - 1).cast(dt.bfloat16)) == "mma.e4m3", "a difference shows what is missing"
    assert unit((full * full.exp()).cast(dt.bfloat16)) == "mma.e4m3"


@pytest.mark.parametrize("kind", [dt.float8_e4m3, dt.float8_e5m2])
def test_no_number_stays_none(kind: dt.DType) -> None:
    a, b = random(kind, 64, 128), random(kind, 128, 128)
    a[3, 5] = b[7, 11] = np.nan
    for cores in ("auto", "mma"):
        code = kernel(stored(64, 128, dtype=kind) @ stored(128, 128, dtype=kind), machine(cores))
        found = np.zeros((64, 128), NUMPY[kind])
        emulate(code, found, a, b)
        wanted = np.zeros((64, 128), bool)
        wanted[3] = wanted[:, 11] = True
        np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), wanted)


# -- what the emulator would catch -----------------------------------------------------------------


def mutated(old: str, new: str, count: int = 0) -> Emulator:
    """A product of bytes whose text was changed before it ran."""
    x, y = stored(128, 512, dtype=dt.int8), stored(512, 128, dtype=dt.int8)
    code = kernel(x.matmul(y, dtype=dt.int32), machine("auto", 128))
    text = code.text().source
    changed, number = re.subn(old, new, text, count=count)
    assert number
    arrays = {0: np.zeros((128, 128), np.int32), 1: random(dt.int8, 128, 512)}
    arrays[2] = random(dt.int8, 512, 128)
    found = Emulator(changed, arrays, code.threads)
    found.run((1, 1, 1))
    return found


def test_the_emulator_sees_what_is_wrong() -> None:
    barrier = r"call void @llvm.nvvm.barrier.*"
    assert mutated("entry", "entry").conflicts == 0
    with pytest.raises(AssertionError, match="before a barrier"):
        mutated(barrier, "", 1)
    with pytest.raises(AssertionError, match="before a copy was waited for"):
        mutated(r"cp.async.wait_group 1;", "cp.async.wait_group 2;")
    with pytest.raises(AssertionError, match="tensor cores may read"):
        mutated("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 3;")
    assert mutated(r"(= and i32 %\w+), 3\n", r"\1, 0\n").conflicts > 0


# -- assembled -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_turned_tiles_assemble_without_spills(name: str, tmp_path: Path) -> None:
    kind, result, _ = CASES[name]
    texts = []
    for cores in ("auto", "mma"):
        x, y = stored(2048, 2048, dtype=kind), stored(2048, 2048, dtype=kind)
        code = kernel(x.matmul(y, dtype=result), machine(cores))
        texts.append(emit_ptx(code.text().source, architecture((9, 0))))
    said = assemble(texts, tmp_path)
    if ASSEMBLER is not None:
        assert said.count("0 bytes spill stores") == len(texts)
        assert "serialized" not in said


def test_bytes_with_and_without_sign_ask_for_a_newer_driver(tmp_path: Path) -> None:
    product = stored(128, 96, dtype=dt.uint8) @ stored(96, 132, dtype=dt.int8)
    texts = {}
    for mixes in (True, False):
        code = kernel(product, GpuMachine(mixes_bytes=mixes))
        texts[mixes] = emit_ptx(code.text().source, architecture((9, 0)))
    assert ".version 8.4" in texts[True] and "wgmma" in texts[True]
    assert ".version 8.0" in texts[False] and "mma.sync" in texts[False]
    assemble(list(texts.values()), tmp_path)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (10, 0), (12, 0)])
def test_other_gpus_have_the_tiles_of_one_warp(capability: tuple[int, int], tmp_path: Path) -> None:
    gpu = GpuMachine(capability=capability, uses_tf32=True, most_shared_bytes=99 << 10)
    texts = []
    for name, (kind, result, _) in CASES.items():
        x, y = stored(512, 512, dtype=kind), stored(512, 512, dtype=kind)
        code = kernel(x.matmul(y, dtype=result), gpu)
        has_one = any(is_tile(n) for n in code.kernel.toposort())
        assert has_one == (capability >= (8, 9) or "float8" not in name)
        texts.append(emit_ptx(code.text().source, architecture(capability)))
    assemble(texts, tmp_path, architecture(capability))
