"""Saved plans: the same bits in a fresh process without a compiler; damaged files are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from saved_plans import PLANS, network, random, results, state, symbolic

import svod
from svod.base.errors import (
    ConfigError,
    ExecutionError,
    PlanFormatError,
    UnsupportedError,
    VariableError,
)
from svod.base.hashing import checksum
from svod.runtime import ExecutionPlan, ExecutionPlanBuilder, portable
from svod.runtime.load import load_plan
from svod.tensor.recording.realize import prepare
from tests.spec.plan_parts import compiled, empty, launch, plan_of

ROOT = Path(__file__).parents[2]


def large(elements: int) -> ExecutionPlan:
    """A plan that counts up a buffer of this size."""
    t = svod.Tensor(random(elements))
    return t.assign(t + 1).prepare()


def fresh(program: str, *arguments: object, **variables: str) -> str:
    """The output of a program in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


LOAD_AND_RUN = """
import sys, json
from svod.runtime.load import load_plan
plan = load_plan(sys.argv[1], verify=True, trusted=True)
found = []
for _ in range(2):
    plan.execute()
    found += [buffer.numpy().tobytes().hex() for buffer in plan.output_buffers()]
compilers = ("llvmlite", "svod.tensor", "svod.schedule", "svod.codegen")
loaded = [name for name in compilers if name in sys.modules]
print(json.dumps([found, loaded, plan.is_native]))
"""


@pytest.mark.parametrize("name", PLANS)
def test_a_fresh_process_gives_the_same_bits_without_a_compiler(name: str, tmp_path: Path) -> None:
    plan = PLANS[name]()
    path = tmp_path / "plan.svod"
    plan.save(path)
    here = results(plan)
    there, loaded, is_native = json.loads(
        fresh(LOAD_AND_RUN, path, SVOD_CACHE_DIR=str(tmp_path / "empty"))
    )
    assert there == here
    assert loaded == [] and is_native


def test_a_loaded_plan_can_be_bound_called_profiled_and_copied(tmp_path: Path) -> None:
    plan, _ = network()
    plan.save(tmp_path / "plan.svod")
    loaded = load_plan(tmp_path / "plan.svod")
    other = random(8, 64, seed=9)
    expected = plan(x=other)
    assert (loaded(x=other) == expected).all()
    assert [repr(port) for port in loaded.ports] == [repr(port) for port in plan.ports]
    assert loaded.memory == plan.memory
    assert loaded.levels == plan.levels and loaded.groups == plan.groups
    assert (loaded.replicate()(x=other) == expected).all()
    names = [kernel.entry_point for kernel in plan.kernels()]
    assert [kernel.entry_point for kernel in loaded.kernels()] == names
    assert {row.name for row in loaded.profile().rows} == set(names)


def test_a_loaded_plan_can_be_saved_again(tmp_path: Path) -> None:
    plan, x = network()
    plan.save(tmp_path / "first.svod")
    load_plan(tmp_path / "first.svod").save(tmp_path / "second.svod")
    assert (load_plan(tmp_path / "second.svod")(x=x) == plan(x=x)).all()


def test_variables_and_launch_sizes_follow_their_values(tmp_path: Path) -> None:
    plan = symbolic()
    plan.save(tmp_path / "plan.svod")
    loaded = load_plan(tmp_path / "plan.svod")
    assert loaded.variables == {"n": 3}
    assert loaded().tolist() == [3.0] * 5
    assert loaded(n=5).tolist() == [5.0] * 9
    with pytest.raises(VariableError, match=r"n=9 is outside bounds \[1, 8\]"):
        loaded(n=9)


def test_run_time_sizes_of_a_model_survive(tmp_path: Path) -> None:
    n = svod.Variable("n", 1, 16)
    rows, weights = random(16, 8), random(8, 4, seed=1)
    x, w = svod.Tensor.from_numpy(rows), svod.Tensor.from_numpy(weights)
    plan = prepare([(x[: n.bind(5)] @ w).softmax(0)], inputs={"x": x}, outputs=["y"])
    plan.set_vars({"n": 7})
    plan.save(tmp_path / "plan.svod")
    loaded = load_plan(tmp_path / "plan.svod")
    assert repr(loaded.ports[-1]) == "Port('y', output f32[n,4])"
    assert loaded().shape == (7, 4) and (loaded() == plan()).all()
    for size in (1, 16, 3):
        found = loaded(n=size)
        assert found.shape == (size, 4)
        assert (found == plan(n=size)).all()


def test_what_a_run_writes_stays_in_the_process(tmp_path: Path) -> None:
    path = tmp_path / "plan.svod"
    state().save(path)
    before = path.read_bytes()
    first = results(load_plan(path))
    assert first[0] != first[1]  # it counts up
    assert results(load_plan(path)) == first
    assert path.read_bytes() == before


def test_large_weights_are_mapped_and_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "plan.svod"
    large(1 << 19).save(path)
    before = path.read_bytes()
    loaded = load_plan(path)
    first = results(loaded)
    path.unlink()  # the mapping stays
    assert results(loaded)[0] != first[1]
    path.write_bytes(before)
    assert results(load_plan(path)) == first


def test_only_what_a_run_needs_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "plan.svod"
    network()[0].save(path)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    weights = 4 * (8 * 64 + 64 * 96 + 96 * 32)
    assert weights <= manifest["data_bytes"] < weights + 256
    assert sum(region["data"] is None for region in manifest["regions"]) >= 1


def test_a_plan_without_its_weights_says_what_to_bind(tmp_path: Path) -> None:
    plan, x = network()
    expected = plan(x=x)
    plan.save(tmp_path / "plan.svod", weights=False)
    assert (tmp_path / "plan.svod").stat().st_size < 100_000
    loaded = load_plan(tmp_path / "plan.svod")
    missing = sorted(loaded.missing)  # type: ignore[attr-defined]
    assert "x" in missing and len(missing) == 3
    with pytest.raises(ExecutionError, match=r"without its data: bind buffer\d+, buffer\d+, x"):
        loaded.execute()
    with pytest.raises(ExecutionError, match="bind buffer"):
        loaded(x=x)
    for name in missing[:2]:
        loaded.bind(name, plan.buffers()[int(name.removeprefix("buffer"))].copyout())
    assert (loaded(x=x) == expected).all()


def test_single_inputs_can_be_left_out(tmp_path: Path) -> None:
    plan, x = network()
    plan.save(tmp_path / "plan.svod", without=["x"])
    loaded = load_plan(tmp_path / "plan.svod")
    with pytest.raises(ExecutionError, match="bind x before the first run"):
        loaded.execute()
    assert (loaded(x=x) == plan(x=x)).all()
    with pytest.raises(ConfigError, match="'z' is no input of the plan; its inputs are x"):
        plan.save(tmp_path / "plan.svod", without=["z"])


def test_memory_that_several_inputs_show_is_not_left_out(tmp_path: Path) -> None:
    """Each of them would have to be bound: one alone would leave the others without values."""
    memory = random(64)
    first, second = svod.Tensor.from_numpy(memory), svod.Tensor.from_numpy(memory)
    plan = (first * 2 + second.flip(0)).prepare(inputs={"a": first, "b": second})
    with pytest.raises(UnsupportedError, match="share memory in a way that cannot be bound again"):
        plan.save(tmp_path / "plan.svod", weights=False)
    plan.save(tmp_path / "plan.svod")
    assert (load_plan(tmp_path / "plan.svod")() == plan()).all()


def test_arrays_that_overlap_are_one_piece_of_memory_again(tmp_path: Path) -> None:
    memory = random(64)
    left = svod.Tensor.from_numpy(memory[:40])
    plan = left.assign(left * 2).prepare()
    right = svod.Tensor.from_numpy(memory[24:])
    total = (right + 0).prepare()
    builder = ExecutionPlanBuilder("CPU")
    for place, buffer in enumerate((*plan.buffers(), *total.buffers())):
        builder.add_buffer(place, buffer)
    (first,), (second,) = plan.prepared_kernels(), total.prepared_kernels()
    shift = len(plan.buffers())
    second.buffer_indices = [place + shift for place in second.buffer_indices]
    second.dependencies = [first.id]
    builder.add_kernel(first)
    builder.add_kernel(second)
    builder.set_output_buffers([place + shift for place in total.output_buffer_indices()])
    joined = builder.build()
    joined.save(tmp_path / "plan.svod")
    assert results(load_plan(tmp_path / "plan.svod")) == results(joined)


def test_plans_that_are_not_native_are_not_saved(tmp_path: Path) -> None:
    plan = plan_of([empty()], [launch(1, compiled(entry_point="python"), [0])])
    with pytest.raises(UnsupportedError, match="kernel python has no object code"):
        plan.save(tmp_path / "plan.svod")
    assert list(tmp_path.iterdir()) == []
    null = (svod.Tensor([1.0, 2.0], device="NULL") + 1).prepare()
    with pytest.raises(UnsupportedError, match="NULL"):
        null.save(tmp_path / "plan.svod")


# -- files that are refused ----------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "plan.svod"
    network()[0].save(path)
    return path


def rewritten(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """The file with another manifest and a checksum that fits it."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    manifest = json.loads(parts["manifest.json"])
    edit(manifest)
    parts["manifest.json"] = json.dumps(manifest).encode()
    parts["manifest.blake2b"] = checksum(parts["manifest.json"]).hex().encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def put(*keys: Any) -> Callable[[dict[str, Any]], None]:
    """An edit that puts the last of the keys at the place the others lead to."""

    def edit(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for key in keys[:-2]:
            place = place[key]
        place[keys[-2]] = keys[-1]

    return edit


def test_a_newer_format_is_refused(saved: Path) -> None:
    rewritten(saved, put("format", 99))
    with pytest.raises(PlanFormatError, match=r"plan.svod has format 99, .* reads up to 2: use a"):
        load_plan(saved, trusted=True)


def test_another_processor_is_refused(saved: Path) -> None:
    rewritten(saved, put("machine", "architecture", "vax"))
    with pytest.raises(PlanFormatError, match=r"plan.svod: the plan was saved for vax"):
        load_plan(saved, trusted=True)


def test_missing_instructions_are_named(saved: Path) -> None:
    rewritten(saved, lambda manifest: manifest["machine"]["features"].append("avx4096"))
    with pytest.raises(PlanFormatError, match=r"lacks \(avx4096\): prepare and save it here"):
        load_plan(saved, trusted=True)


def test_flags_that_name_no_instructions_do_not_matter() -> None:
    features = portable.this_processor().features
    assert not {"hypervisor", "constant_tsc", "md_clear"} & features


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (put("kind", "recipe"), "it holds something else"),
        (put("kernel_interface", 2), "called in another way"),
        (put("format", "1"), "manifest.format: expected a whole number"),
        (put("buffers", 0, "size", 1 << 40), r"manifest.buffers\[0\].offset: expected a place"),
        (put("buffers", 0, "offset", 1), r"manifest.buffers\[0\].offset"),
        (put("buffers", 0, "region", 99), r"manifest.buffers\[0\].region"),
        (put("buffers", 0, "dtype", "void"), "dtype: expected a dtype that memory can hold"),
        (put("buffers", 0, "device", "NULL"), "expected a CPU"),
        (put("regions", 0, "data", 1 << 40), r"manifest.regions\[0\].data"),
        (put("regions", 0, "bytes", -1), r"manifest.regions\[0\].bytes"),
        (put("data_bytes", 5), "data.bin does not have the 5 bytes"),
        (put("ops", 0, "kernel", 99), r"manifest.ops\[0\].kernel"),
        (put("ops", 0, "buffers", [0]), r"manifest.ops\[0\].buffers: expected \d places"),
        (put("ops", 0, "buffers", [0, 1, 99]), r"manifest.ops\[0\].buffers"),
        (put("ops", 0, "outputs", []), r"manifest.ops\[0\].outputs"),
        (put("ops", 0, "outputs", [7]), r"manifest.ops\[0\].outputs"),
        (put("ops", 0, "values", [1]), r"manifest.ops\[0\].values"),
        (put("ops", 0, "after", "x"), r"manifest.ops\[0\].after"),
        (put("ops", 0, "also_after", [99]), r"manifest.ops\[0\].also_after"),
        (put("ops", 0, "kind", "format disk"), "expected kernel or copy or view or custom"),
        (put("levels", []), "manifest.levels"),
        (put("outputs", [99]), "manifest.outputs"),
        (put("ports", 0, "buffer", -1), r"manifest.ports\[0\].buffer"),
        (put("ports", 0, "shape", [3]), r"manifest.ports\[0\].shape"),
        (put("ports", 0, "shape", ["%0 = LOAD f32"]), r"manifest.ports\[0\].shape"),
        (put("ports", 0, "name", "y"), "names that differ"),
        (put("to_bind", ["z"]), "names of ports"),
        (put("variables", {"n": 0.5}), "manifest.variables"),
        (put("memory", {}), "manifest.memory: mode is missing"),
        (put("code", 0, "checksum", "00"), "code/0.o is damaged"),
        (put("launcher", "checksum", "00"), "launcher.o is damaged"),
        (put("kernels", 0, "symbol", "system"), "no symbol 'system'"),
        (put("kernels", 0, "code", 9), r"manifest.kernels\[0\].code"),
        (put("kernels", 0, "global_size", [1 << 40, 1, 1]), "at most 16777216 cores"),
        (put("kernels", 0, "global_size", [1]), "three sizes"),
        (put("kernels", 0, "global_size", ["nonsense", 1, 1]), "an expression"),
        (lambda manifest: manifest.pop("ops"), "manifest: ops is missing"),
        (lambda manifest: manifest.update(ops=[[]]), "expected an object"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_place(
    saved: Path, edit: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    rewritten(saved, edit)
    with pytest.raises(PlanFormatError, match=complaint) as raised:
        load_plan(saved, trusted=True)
    assert "plan.svod" in str(raised.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.svod"
    for content in (b"", b"PK", b"PK\5\6" + bytes(18), os.urandom(5000), b"{}" * 100):
        path.write_bytes(content)
        with pytest.raises(PlanFormatError, match=r"plan.svod is not a usable saved plan"):
            load_plan(path)
    with pytest.raises(FileNotFoundError):
        load_plan(tmp_path / "missing.svod")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", "{}" * 1000)
    with pytest.raises(PlanFormatError, match="compressed or encrypted"):
        load_plan(path)


@pytest.mark.parametrize("elements", [1 << 10, 1 << 19])
def test_damage_in_the_weights_is_found(tmp_path: Path, elements: int) -> None:
    """In small files always; large ones are mapped, so there on request."""
    path = tmp_path / "plan.svod"
    large(elements).save(path)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("data.bin").header_offset
    data = bytearray(path.read_bytes())
    data[start + 4000] ^= 1
    path.write_bytes(data)
    is_mapped = elements > 1 << 18
    if is_mapped:
        load_plan(path).execute()
    with pytest.raises(PlanFormatError, match=r"data.bin does not match its checksum"):
        load_plan(path, verify=is_mapped)


FUZZ = """
import random, sys
from pathlib import Path
from svod.base.errors import PlanFormatError
from svod.runtime.load import load_plan
whole = Path(sys.argv[1]).read_bytes()
path = Path(sys.argv[1]).with_suffix(".damaged")
chance = random.Random(int(sys.argv[2]))
end = len(whole)
refused = worked = 0
for turn in range(int(sys.argv[3])):
    data = bytearray(whole)
    kind = turn % 4
    if kind == 0:
        del data[chance.randrange(end) :]
    elif kind == 1:
        for _ in range(chance.choice((1, 1, 2, 8))):
            data[chance.randrange(end)] ^= 1 << chance.randrange(8)
    elif kind == 2:  # around the directory at the end, where places and sizes are
        at = chance.randrange(max(0, end - 1200), end)
        data[at] = chance.randrange(256)
    else:
        at = chance.randrange(end)
        data[at : at + chance.randrange(1, 64)] = chance.randbytes(chance.randrange(64))
    path.write_bytes(data)
    try:
        plan = load_plan(path, trusted=True)
    except PlanFormatError:
        refused += 1
    else:
        plan.execute()
        worked += 1
print(refused, worked)
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_damaged_files_are_refused_or_work(saved: Path, seed: int) -> None:
    refused, worked = map(int, fresh(FUZZ, saved, seed, 400).split())
    assert refused + worked == 400 and refused > 100


def test_damaged_files_with_mapped_weights_are_refused_or_work(tmp_path: Path) -> None:
    large(1 << 19).save(tmp_path / "plan.svod")
    refused, worked = map(int, fresh(FUZZ, tmp_path / "plan.svod", 4, 60).split())
    assert refused + worked == 60 and worked > 5


def test_features_are_listed_in_order(saved: Path) -> None:
    """The same plan is the same file in every process."""
    with zipfile.ZipFile(saved) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    listed = [list_ for list_ in _lists(manifest) if "sse2" in list_ or "neon" in list_]
    assert listed and all(found == sorted(found) for found in listed)


def _lists(value: Any) -> list[list[Any]]:
    if isinstance(value, list):
        return [value, *[found for v in value for found in _lists(v)]]
    return [f for v in value.values() for f in _lists(v)] if isinstance(value, dict) else []


def copied_and_viewed() -> ExecutionPlan:
    from svod.device.buffer import Buffer
    from svod.dtype import types as dt
    from svod.runtime import PreparedBufferView, PreparedCopy

    builder = ExecutionPlanBuilder("CPU")
    source = Buffer.from_numpy(random(8))
    target = Buffer.new("CPU", 8, dt.float32).allocate()
    for number, buffer in enumerate((source, target, target.view(8, 4))):
        builder.add_buffer(number, buffer)
    builder.add_op(PreparedCopy(1, [1, 0], []))
    builder.add_op(PreparedBufferView(2, [2, 1], 8, 16, [1]))
    builder.set_output_buffers([2])
    builder.name_input("x", 0, (8,))
    return builder.build()


def test_copies_and_views_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "copy.plan"
    copied_and_viewed().save(path)
    plan = load_plan(path)
    plan.bind(x=random(8, seed=3))
    plan.execute()
    found = plan.output_buffer()
    assert found is not None and found.copyout().tolist() == random(8, seed=3)[2:6].tolist()


@pytest.mark.parametrize("value", [0, 4, 12])
def test_a_view_that_lies_elsewhere_is_refused(value: int, tmp_path: Path) -> None:
    path = tmp_path / "copy.plan"
    copied_and_viewed().save(path)
    rewritten(path, put("ops", 1, "offset", value))
    with pytest.raises(svod.errors.PlanFormatError, match="where the view lies in its base"):
        load_plan(path, trusted=True)
