"""PTX for the kernels of random programs and of the bars, made without a GPU.

Where the toolkit's assembler is on the path, it assembles them too.
"""

from __future__ import annotations

import shutil
import subprocess
from math import prod
from pathlib import Path

import pytest

from svod import Tensor
from svod.codegen.gpu import GpuKernel, generate_gpu
from svod.device.cuda.compiler import architecture, emit_ptx
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.optimize.gpu import GpuMachine
from svod.schedule.normalize import normalization
from svod.schedule.preschedule import restored
from svod.schedule.schedule import pre_schedule
from svod.tensor.core import wrap
from tests.fuzz.programs import make_program, tensors

ARCH = architecture((9, 0))
ASSEMBLER = shutil.which("ptxas")


def stored(*shape: int, dtype: dt.DType = dt.float32) -> Tensor:
    """A tensor of memory that is never touched."""
    return wrap(B.view_as(B.new_buffer(prod(shape), dtype, "CPU"), shape), "CPU")


def bodies(*results: Tensor) -> list[UOp]:
    """The kernels that compute these."""
    roots = [make(O.CONTIGUOUS, t.uop.dtype, (t.uop,)) for t in results if 0 not in t.shape]
    found = normalization(make(O.SINK, dt.void, tuple(roots)), "test")
    items = restored(pre_schedule(found, "CPU", False, ""), found).items
    return [i.body for i in items if i.body.op == O.SINK]


def kernels(*results: Tensor) -> list[GpuKernel]:
    return [generate_gpu(body, GpuMachine()) for body in dict.fromkeys(bodies(*results))]


def ptx(code: GpuKernel, aligned: bool = True) -> str:
    return emit_ptx(code.text(aligned).source, ARCH)


def assemble(texts: list[str], folder: Path) -> str:
    """What the assembler says of each text."""
    if ASSEMBLER is None:
        return ""
    said = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.ptx"
        path.write_text(text)
        done = subprocess.run(
            [ASSEMBLER, "-v", f"-arch={ARCH}", str(path), "-o", str(folder / "code")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        said.append(done.stderr)
    return "\n".join(said)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_kernels_of_random_programs_assemble(first: int, tmp_path: Path) -> None:
    texts = []
    for seed in range(first, first + 10):
        program = make_program(seed)
        found = tensors(program)
        for code in kernels(*[found[i] for i in program.outputs]):
            texts.append(ptx(code))
    assemble(texts[:: max(1, len(texts) // 8)], tmp_path)  # the assembler takes most of the time


def test_contiguous_maps_use_sixteen_byte_accesses(tmp_path: Path) -> None:
    (code,) = kernels((stored(1024, 1024) + 1) * 2)
    text = ptx(code)
    assert "ld.global.nc.v4.b32" in text
    assert "st.global.v4.b32" in text
    assert "ld.global.nc.v4" not in ptx(code, aligned=False)
    assemble([text], tmp_path)


def test_a_row_that_fits_registers_is_read_once(tmp_path: Path) -> None:
    (code,) = kernels(stored(4096, 4096).softmax(-1))
    text = ptx(code)
    vectors = 4096 // 4 // code.threads
    assert text.count("ld.global") == vectors
    assert text.count("st.global") == vectors
    said = assemble([text], tmp_path)
    assert ASSEMBLER is None or "0 bytes spill stores" in said


def test_arithmetic_is_exact() -> None:
    x, y = stored(4096), stored(4096)
    text = "".join([ptx(k) for k in kernels(x / y, x.sqrt(), x * y + x, x.exp(), x.tanh())])
    assert "div.rn.f32" in text
    assert "sqrt.rn.f32" in text
    for wrong in ("approx", ".ftz", "fma.rn.f32 \t%f0"):
        assert wrong not in text
    (product,) = kernels(x * y + x)
    assert "fma" not in ptx(product)  # two roundings, as on the CPU


def test_launch_sizes_cover_all_outputs() -> None:
    for shape in [(1,), (31,), (1000, 37), (3, 5, 7, 11), (100_000,)]:
        (code,) = kernels(stored(*shape) + 1)
        sizes = derive_metadata(code.kernel)
        assert sizes.local_size is not None
        threads = prod([int(s.arg) for s in (*sizes.global_size, *sizes.local_size)])
        lanes = prod([o.amount for o in code.opts if o.name == "LANE"])
        assert threads * lanes >= prod(shape)


def test_narrow_floats_and_integers_assemble(tmp_path: Path) -> None:
    texts = []
    kinds = (dt.float16, dt.bfloat16, dt.float8_e4m3, dt.int8, dt.uint16, dt.bool_, dt.float64)
    for kind in kinds:
        x = stored(333, 64, dtype=kind)
        results = [x.cast(dt.float32).exp(), x.amax(1), x.sum(0), x.cast(dt.float16)]
        texts += [ptx(k) for k in kernels(*results)]
    assemble(texts[::3], tmp_path)
