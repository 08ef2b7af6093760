"""PTX for the kernels of random programs and of the bars, made without a GPU.

Where the toolkit's assembler is on the path, it assembles them too.
"""

from __future__ import annotations

import shutil
import subprocess
from math import prod
from pathlib import Path

import pytest

import svod
from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.target import KernelCode
from svod.codegen.targets.cuda import cuda_target
from svod.device.cuda.compiler import architecture, emit_ptx, spec_of
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.optimize.gpu_machine import GpuMachine
from svod.schedule.normalize import normalization
from svod.schedule.preschedule import PreSchedule, restored
from svod.schedule.schedule import pre_schedule
from svod.tensor.core.tensor_core import wrap
from tests.fuzz.programs import make_program, tensors

ARCH = architecture((9, 0))
MACHINE = GpuMachine()
ASSEMBLER = shutil.which("ptxas")


def stored(*shape: int, dtype: dt.DType = dt.float32) -> Tensor:
    """A tensor of memory that is never touched."""
    return wrap(B.view_as(B.new_buffer(prod(shape), dtype, "CUDA"), shape), "CUDA")


def scheduled(*results: Tensor, machine: GpuMachine = MACHINE) -> PreSchedule:
    """The calls of kernels that compute these."""
    roots = [make(O.CONTIGUOUS, t.uop.dtype, (t.uop,)) for t in results if 0 not in t.shape]
    found = normalization(make(O.SINK, dt.void, tuple(roots)), "test")
    able = cuda_target(machine).capabilities
    made = pre_schedule(found, "CUDA", False, "", lambda device: able)
    return restored(made, found)


def bodies(*results: Tensor, machine: GpuMachine = MACHINE) -> list[UOp]:
    """The kernels that compute these."""
    return [i.body for i in scheduled(*results, machine=machine).items if i.body.op == O.SINK]


def kernels(*results: Tensor, machine: GpuMachine = MACHINE) -> list[KernelCode]:
    found = dict.fromkeys(bodies(*results, machine=machine))
    return [generate(body, cuda_target(machine)) for body in found]


def ptx(code: KernelCode, aligned: bool = True) -> str:
    return emit_ptx(code.text(aligned).source, ARCH)


def assemble(texts: list[str], folder: Path, arch: str = ARCH) -> str:
    """What the assembler says of each text."""
    if ASSEMBLER is None:
        return ""
    said = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.ptx"
        path.write_text(text)
        done = subprocess.run(
            [ASSEMBLER, "-v", f"-arch={arch}", str(path), "-o", str(folder / "code")],
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


HALF = dt.bfloat16


@pytest.mark.parametrize("dtype", [dt.uint32, dt.uint64, dt.int32, dt.uint8])
def test_divisions_of_data_and_of_indices_verify(dtype: dt.DType, tmp_path: Path) -> None:
    x, y = stored(6, 5, dtype=dtype), stored(5, 6, dtype=dtype)
    made = kernels(x // (y.T + 5), x.reshape(2, 15)[:, ::2] % 7, svod.roll(x, 1, 0) % y.T)
    assemble([ptx(kernel) for kernel in made], tmp_path)


def test_tiles_are_fed_by_the_copy_engine(tmp_path: Path) -> None:
    half = dt.bfloat16
    a, b = stored(4096, 2048, dtype=half), stored(4096, 2048, dtype=half)
    (code,) = kernels((a @ b.T).relu())
    text = code.text()
    assert [t.sizes for t in text.needs.maps] == [(2048, 4096)] * 2
    assert [t.box for t in text.needs.maps] == [(64, 128), (64, 256)]
    assert spec_of(code).needs == text.needs and text.needs.align == 16
    fed, plain = ptx(code), ptx(code, aligned=False)
    assert "cp.async.bulk.tensor.2d" in fed and "cp.async.bulk" not in plain
    said = assemble([fed, plain], tmp_path)
    assert ASSEMBLER is None or " 0 bytes spill stores" in said
    # One block per multiprocessor, which takes tile after tile.
    sizes = derive_metadata(code.kernel)
    assert [n.arg for n in sizes.global_size] == [GpuMachine().multiprocessors, 1, 1]
    assert sizes.local_size is not None and sizes.local_size[0].arg == 384
    # A stack of matrices has one more axis, and its own part of it per block.
    x, y = stored(8, 256, 64, dtype=half), stored(8, 64, 256, dtype=half)
    (code,) = kernels(x @ y)
    assert [t.sizes for t in code.text().needs.maps] == [(64, 256, 8), (256, 64, 8)]
    assemble([ptx(code), ptx(code, aligned=False)], tmp_path)
    # So have columns that are two axes in memory.
    (code,) = kernels(stored(2048, 64, dtype=half) @ stored(6, 64, 512, dtype=half))
    assert [t.sizes for t in code.text().needs.maps] == [(64, 2048), (512, 64, 6)]
    assemble([ptx(code), ptx(code, aligned=False)], tmp_path)


def test_operands_that_the_copy_engine_cannot_read_are_copied_by_threads() -> None:
    half = dt.bfloat16
    odd = stored(512, 1001, dtype=half)
    cases = [odd @ odd.T, stored(512, 512, dtype=half)[:, 3:] @ stored(509, 512, dtype=half)]
    cases.append(stored(4, 96, 128, dtype=half).permute(1, 0, 2).reshape(96, 512) @ odd.T[:512])
    for case in cases:
        assert all(not code.text().needs.maps for code in kernels(case))


def test_columns_of_four_threads_are_stored_at_once() -> None:
    half = dt.bfloat16
    a, b = stored(512, 256, dtype=half), stored(256, 512, dtype=half)
    (code,) = kernels(a @ b)
    assert ptx(code).count("st.global.v4") == ptx(code).count("st.global")
    assert "st.global.v4" not in ptx(code, aligned=False)
    (code,) = kernels(a @ stored(256, 520, dtype=half))  # 520 columns are no thirty-twos
    assert "st.global.v4" not in ptx(code)


def test_warps_take_the_steps_of_a_scatter_that_are_theirs(tmp_path: Path) -> None:
    places, values = stored(4096, dtype=dt.int64), stored(4096, 64)
    rows = kernels(stored(500, 64).index_add(0, places, values))[-1]
    single = kernels(stored(500).scatter_add(0, places[:2000], values[:2000, 0]))[-1]
    several = kernels(
        stored(40, 500).scatter_add(1, stored(40, 99, dtype=dt.int64), stored(40, 99))
    )
    texts = [ptx(rows), ptx(single), ptx(several[-1])]
    assert all("vote.sync.ballot" in text for text in texts)
    assert "ld.global.v4" in texts[0]  # four columns per thread
    assemble(texts, tmp_path)


def test_steps_of_rows_that_meet_take_turns(tmp_path: Path) -> None:
    """Each thread asks who has its place, bit by bit where places are few."""
    rows, places, values = stored(2000, 500), stored(2000, 300, dtype=dt.int64), stored(2000, 300)
    added = ptx(kernels(rows.scatter_add(1, places, values))[-1])
    last = ptx(kernels(rows.scatter(1, places, values))[-1])
    long = ptx(kernels(stored(2000, 1 << 26).scatter_add(1, places, values))[-1])
    assert all("bar.warp.sync" in text for text in (added, last, long))
    assert [text.count("match.any.sync") for text in (added, last, long)] == [0, 0, 4]
    assert added.count("vote.sync.ballot") == last.count("vote.sync.ballot") + 4
    assert "ld.shared" in added and "ld.global.b32" in long  # rows that fit are kept there
    assemble([added, last, long], tmp_path)


def test_sums_of_many_numbers_are_sorted_first(tmp_path: Path) -> None:
    places, values = stored(1 << 16, dtype=dt.int64), stored(1 << 16)
    found = kernels(stored(5000).scatter_add(0, places, values))
    assert any(code.name.startswith("radix") for code in found)
    last = [code for code in found if "scatter" in code.name]
    turns = [n for n in last[0].kernel.toposort() if n.op == O.BARRIER]
    assert len(turns[0].src) == 5  # each part has steps from one bound to another
    assemble([ptx(code) for code in last], tmp_path)


def test_whole_numbers_are_added_by_memory(tmp_path: Path) -> None:
    places, x = stored(4096, dtype=dt.int64), stored(4096)
    for kind, suffix in ((dt.int32, "u32"), (dt.uint64, "u64")):
        code = kernels(stored(500, dtype=kind).scatter_add(0, places, places.cast(kind)))[-1]
        assert f"atom.global.add.{suffix}" in ptx(code)
    with svod.knobs.scope(CHECK_INDICES=0):
        _, found, last = kernels(stored(500).scatter(0, places, x))
    assert "atom.global.max.s32" in ptx(found)
    many = kernels(
        stored(500, dtype=dt.int32).scatter_add(0, *[stored(1 << 20, dtype=dt.int32)] * 2)
    )
    assert "atom.shared.add.u32" in ptx(many[-1]) and "atom.global.add.u32" in ptx(many[-1])
    small = kernels(stored(500, dtype=dt.int8).scatter_add(0, places, places.cast(dt.int8)))[-1]
    assert "atom" not in ptx(small)
    assemble([ptx(found), ptx(last), ptx(small)], tmp_path)


def test_roundings_to_bfloat16_are_instructions() -> None:
    x = stored(4096, dtype=dt.bfloat16)
    text = ptx(*kernels(x * 3 + 1))
    assert "cvt.rn.bf16" in text and "setp.nan" not in text
    older = GpuMachine(capability=(7, 5))
    (body,) = bodies(x * 3 + 1)
    text = emit_ptx(generate(body, cuda_target(older)).text().source, architecture((7, 5)))
    assert "cvt.rn.bf16" not in text


def heads(rows: int = 512, keys: int = 512, width: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    return (
        stored(2, 4, rows, width, dtype=HALF),
        stored(2, 4, keys, width, dtype=HALF),
        stored(2, 4, keys, width, dtype=HALF),
    )


@pytest.mark.parametrize("form", ["plain", "causal", "added", "kept", "triangle", "groups"])
def test_attention_is_one_kernel(form: str, tmp_path: Path) -> None:
    q, k, v = heads()
    scores = q @ k.transpose(-1, -2) * 0.1
    if form == "plain":
        found = q.scaled_dot_product_attention(k, v)
    elif form == "causal":
        found = q.scaled_dot_product_attention(k, v, is_causal=True)
    elif form == "added":
        found = (scores.float() + stored(512, 512)).softmax(-1).cast(HALF) @ v
    elif form == "kept":
        mask = stored(2, 1, 1, 512, dtype=dt.bool_)
        found = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    elif form == "groups":
        k, v = (stored(2, 2, 512, 128, dtype=HALF) for _ in range(2))
        found = q.scaled_dot_product_attention(k, v, is_causal=True, enable_gqa=True)
    else:
        lower = svod.ones(512, 512).tril()
        found = scores.masked_fill(lower == 0, float("-inf")).softmax(-1) @ v
    (code,) = kernels(found)
    said = assemble([ptx(code)], tmp_path)
    if ASSEMBLER is not None:
        assert "0 bytes spill stores" in said
        assert "serialized" not in said  # the tensor cores would wait for the exponentials
    assert code.arguments().reads == ((1, 2, 3, 4) if form in ("added", "kept") else (1, 2, 3))


def test_attention_of_odd_sizes_assembles(tmp_path: Path) -> None:
    texts = []
    for rows, keys, width in [(200, 333, 80), (65, 200, 17), (129, 1000, 100), (100, 77, 200)]:
        q, k, v = heads(rows, keys, width)
        (code,) = kernels(q.scaled_dot_product_attention(k, v, is_causal=True))
        texts += [ptx(code), ptx(code, aligned=False)]
    assemble(texts, tmp_path)


@pytest.mark.parametrize("width", [192, 256])
def test_attention_of_wide_heads(width: int, tmp_path: Path) -> None:
    q, k, v = heads(width=width)
    (code,) = kernels(q.scaled_dot_product_attention(k, v, is_causal=True))
    assert code.text().needs.shared <= 227 << 10
    said = assemble([ptx(code)], tmp_path)
    if ASSEMBLER is not None:
        assert "0 bytes spill stores" in said
        assert "serialized" not in said


def test_attention_is_several_kernels_where_no_tile_fits() -> None:
    def count(found: Tensor) -> int:
        return len(bodies(found))

    q, k, v = heads(width=264)
    assert count(q.scaled_dot_product_attention(k, v)) > 1, "queries too wide"
    q, k, v = heads(rows=8)
    assert count(q.scaled_dot_product_attention(k, v)) > 1, "too few queries"
    q, k, v = heads()
    weights = q.scaled_dot_product_attention(k, v), (q @ k.transpose(-1, -2)).softmax(-1)
    assert len(bodies(*weights)) > 2
    scores = (q @ k.transpose(-1, -2)).float()
    assert count(scores.softmax(-1) @ v.float()) > 1, "weights that are not rounded"
    assert count(scores.softmax(-2).cast(HALF) @ v) > 1, "a softmax over queries"
    assert count((scores.exp() / scores.exp().sum(-1, keepdim=True)).cast(HALF) @ v) > 1
    other = stored(2, 4, 512, 512)
    assert count((scores - other.amax(-1, keepdim=True)).exp().cast(HALF) @ v) > 1
    assert count((scores * scores).softmax(-1).cast(HALF) @ v) > 1, "a square of scores"


def test_what_follows_attention_is_in_its_kernel_or_after_it(tmp_path: Path) -> None:
    q, k, v = heads()
    w = stored(512, 512, dtype=HALF)
    mixed = q.scaled_dot_product_attention(k, v).permute(0, 2, 1, 3).reshape(1024, 512)
    found = kernels(mixed @ w.T)
    assert len(found) == 2
    assemble([ptx(code) for code in found], tmp_path)


def test_every_form_a_search_times_assembles(tmp_path: Path) -> None:
    x, half = stored(2048, 2048), stored(2048, 2048, dtype=HALF)
    texts = []
    for result in (x * 2 + 1, x.softmax(-1), half @ half):
        (body,) = bodies(result)
        forms = {
            generate(body, cuda_target(m)).kernel: m
            for m in (GpuMachine(), *GpuMachine().variants())
        }
        assert len(forms) > 1
        texts += [ptx(generate(body, cuda_target(m))) for m in forms.values()]
    assemble(texts, tmp_path)


def test_a_stage_of_a_transform_chooses_nothing() -> None:
    """Values side by side are written by one thread, pairs of them as one vector."""
    from svod import fft

    z = wrap(B.complex_view(stored(4, 4096, 2).uop), "CPU")
    texts = [ptx(code) for code in kernels(wrap(B.floats_of(fft.fft(z).uop), "CPU"))]
    assert len(texts) == 3
    assert not any("selp" in text or "setp" in text for text in texts)
    assert texts[-1].count("st.global.v2") == 16


def test_a_place_that_a_loop_computes_is_not_asked_for() -> None:
    x = stored(300, 40)
    counts = (x.unsqueeze(2) < x.unsqueeze(1)).sum(2)  # the rank of each value in its row
    texts = [ptx(k) for k in kernels(stored(300, 41).scatter(1, counts, x))]
    assert texts
