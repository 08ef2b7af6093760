"""S138-S174, T14, T15, T17, Q1, Q4, Q8: from a schedule to a plan."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import (
    BufferNotFound,
    CompileError,
    DeviceError,
    EmptySchedule,
    GraphError,
    UnsupportedError,
)
from svod.base.knobs import knobs
from svod.device.buffer import Buffer
from svod.device.cpu.host import host_machine
from svod.device.cuda.compiler import CudaRenderer
from svod.device.device import Device, Toolchain
from svod.device.launch import default_size
from svod.device.registry import get_device
from svod.device.spec import CompiledSpec, ProgramMetadata, ProgramSpec
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import CustomArg, ViewArg
from svod.ir.node import const, make, variable
from svod.ir.patterns import rule
from svod.ir.rewrite import compile_rules
from svod.optimize.gpu_machine import GpuMachine
from svod.runtime import (
    MemoryMode,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    caches,
    programs,
    register_custom_function,
    unregister_custom_function,
)
from svod.runtime.assemble import bind_arguments, output_positions, resolve_buffer_indices
from svod.runtime.caches import (
    compiled_kernels,
    is_host_parallel_safe,
    kernels,
    optimizer_machine,
)
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.runtime.effects import effect_of
from svod.runtime.freeze import find_packing
from svod.runtime.instantiate import ScheduleItem, ScheduleResult, create_schedule
from svod.runtime.prepare import prepare_plan
from svod.runtime.programs import (
    CreateProgramError,
    ProgramStage,
    RenderError,
    compile_program,
    complete,
    program_key,
    program_of,
    stage_of,
)
from svod.tensor.core.tensor_core import wrap
from svod.tensor.ops.custom_function import custom_function
from tests.schedule.graphs import bodies
from tests.spec.call_parts import (
    after,
    bind,
    body,
    call,
    end,
    held,
    loop,
    memory,
    numbers,
    param,
    plus,
    plus_variable,
    sink,
)


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def view_body(size, offset, dtype=dt.float32):
    return make(O.BUFFER_VIEW, dtype, (param(1, 16),), ViewArg(size, offset))


def copy_body(device="CPU"):
    return make(O.COPY, dt.float32, (param(1), B.device(device)))


def fresh_kernel(number):
    """A body nobody has compiled before."""
    fresh_kernel.count += 1
    return plus(number + fresh_kernel.count / 1024)


fresh_kernel.count = 0


# -- memory and devices ------------------------------------------------------------------------


def chain_of(x, length=4):
    for i in range(length):
        x = (x * (i + 2)).contiguous() + 1
    return x.contiguous()


@pytest.mark.row("S138", "S139")
def test_the_planner_mode_and_the_outputs():
    x = Tensor(data(64, 64))
    peak = {}
    for mode in (MemoryMode.ARENA, MemoryMode.REMAP, MemoryMode.DISABLED):
        y = wrap(chain_of(x).uop, "CPU")
        plan = y.prepare(config=PrepareConfig(memory=mode))
        plan.execute()
        peak[mode] = plan.memory.peak_bytes
        assert plan.memory.mode is mode
        output = plan.output_buffer()
        assert not any(output.overlaps(b) for b in plan.buffers() if b is not output)
        assert np.allclose(y.numpy(), _chain_expected(), rtol=1e-6)
    assert peak[MemoryMode.ARENA] < peak[MemoryMode.DISABLED]
    with knobs.scope(MEMORY_PLANNER="off"):
        assert wrap(chain_of(x).uop, "CPU").prepare().memory.mode is MemoryMode.DISABLED


def _chain_expected():
    x = data(64, 64)
    for i in range(4):
        x = x * (i + 2) + 1
    return x


@pytest.mark.row("S140")
def test_reuse_becomes_instance_dependencies():
    plan = chain_of(Tensor(data(64, 64)), 6).prepare(config=PrepareConfig(memory=MemoryMode.ARENA))
    assert plan.memory.reused > 0 and plan.memory.saved_bytes > 0
    assert any(plan.instance_dependencies), "who takes over bytes waits for who had them"


@pytest.mark.row("S142", "S153")
def test_devices_of_plan_and_kernels():
    here, there = Tensor(data(4)), Tensor(data(4), device="CPU:1")
    a, b = here + 1, there * 2
    plan = svod.prepare(a, b)
    assert plan.device() == "CPU"
    assert sorted(k.device for k in plan.prepared_kernels()) == ["CPU", "CPU:1"]
    asked = []

    def resolver(name):
        asked.append(name)
        return get_device(name)

    config = PrepareConfig(device_resolver=resolver)
    assert (there * 3).prepare(config=config).device() == "CPU:1"
    assert "CPU:1" in asked, "devices come from the configuration"


@pytest.mark.row("S142", "S153")
def test_a_disk_is_never_the_device(tmp_path):
    path = tmp_path / "w.bin"
    path.write_bytes(data(4).tobytes())
    disk, out = memory(device=f"DISK:{path}"), memory()
    graph = sink(after(out, call(copy_body(), out, disk)))
    given = {disk.sn: Buffer.new(f"DISK:{path}", 4, dt.float32)}
    plan = prepare_plan(create_schedule(graph, given))
    assert plan.device() == "CPU" and isinstance(plan.prepared_ops()[0], PreparedCopy)
    plan.execute()
    assert np.array_equal(plan.output_buffer().copyout(), data(4))
    with pytest.raises(DeviceError, match="runs no programs"):
        compiled_kernels([plus(1)], f"DISK:{path}")


@pytest.mark.row("S143")
def test_an_empty_schedule_is_refused():
    with pytest.raises(EmptySchedule):
        prepare_plan(ScheduleResult([], [], {}))


@pytest.mark.row("S144")
def test_all_buffers_are_allocated_up_front():
    source, between, out = memory(), memory(), memory()
    one = call(plus(1), between, source)
    graph = sink(after(out, call(plus(2), out, after(between, one))))
    result = create_schedule(graph, {})
    assert not any(b.is_allocated for i in result.items for b in i.buffers)
    plan = prepare_plan(result)
    assert all(b.is_allocated for b in plan.buffers())


@pytest.mark.row("S145")
def test_one_memory_is_one_place():
    shared = Buffer.from_numpy(data(4))
    first, second, out = memory(), memory(), memory()
    kernel = body(B.binary(O.ADD, param(1), param(2)))
    graph = sink(after(out, call(kernel, out, first, second)))
    twin = Buffer(shared.storage, 4, dt.float32)
    plan = prepare_plan(create_schedule(graph, {first.sn: shared, second.sn: twin}))
    assert len(plan.buffers()) == 2
    assert plan.ast_to_buffer_map()[first.sn] == plan.ast_to_buffer_map()[second.sn]
    other = Buffer(shared.storage, 4, dt.int32)  # another dtype is another place
    plan = prepare_plan(create_schedule(graph, {first.sn: shared, second.sn: other}))
    assert len(plan.buffers()) == 3


# -- copies, views, custom functions -------------------------------------------------------------


@pytest.mark.row("S146", "S150")
def test_a_view_gets_a_place_of_its_own():
    base, view, same, between, out = memory(16), memory(), memory(), memory(), memory()
    whole = Buffer.from_numpy(np.arange(16, dtype=np.float32))
    start = Buffer(whole.storage, 4, dt.float32, 0)  # of both, until the view is replaced
    first = call(plus(100), between, same)
    make_view = call(view_body(4, 6), view, base)
    kernel = body(B.binary(O.ADD, param(1), param(2)))
    add = call(kernel, out, after(between, first), after(view, make_view))
    given = {base.sn: whole, view.sn: start, same.sn: start}
    plan = prepare_plan(create_schedule(sink(after(out, add)), given))
    (op,) = [op for op in plan.prepared_ops() if isinstance(op, PreparedBufferView)]
    assert (op.byte_offset, op.byte_size) == (24, 16)
    places = plan.ast_to_buffer_map()
    assert places[view.sn] != places[same.sn], "or replacing one would change the other"
    plan.execute()
    expected = 100 + np.arange(4) + np.arange(16)[6:10]
    assert plan.output_buffer().copyout().tolist() == expected.tolist()


@pytest.mark.row("S150")
def test_offsets_count_in_elements_of_the_base():
    base, view = make(O.BUFFER, dt.uint8, (B.device("CPU"),), memory(16).arg), memory(2)
    raw = Buffer.from_numpy(np.arange(16, dtype=np.uint8))
    body_ = make(O.BUFFER_VIEW, dt.float32, (param(1, 16),), ViewArg(2, 8))
    graph = sink(after(view, call(body_, view, base)))
    plan = prepare_plan(create_schedule(graph, {base.sn: raw}))
    op = plan.prepared_ops()[0]
    assert (op.byte_offset, op.byte_size) == (8, 8)
    plan.execute()
    assert plan.output_buffer().copyout().tobytes() == bytes(range(8, 16))


@pytest.mark.row("S151")
def test_a_view_that_does_not_fit_says_what_it_wanted():
    base, view = memory(16), memory()
    graph = sink(after(view, call(view_body(4, 14), view, base)))
    given = Buffer.from_numpy(np.zeros(16, np.float32))
    with pytest.raises(GraphError) as error:
        prepare_plan(create_schedule(graph, {base.sn: given}))
    for text in (
        f"call {graph.src[0].src[1].sn}",
        f"base buffer {given.id}",
        "offset 56",
        "size 16",
    ):
        assert text in str(error.value)


@pytest.mark.row("Q8")
def test_a_view_without_a_base_is_an_error_that_names_it():
    view = memory()
    lonely = call(view_body(4, 0), view)
    with pytest.raises(GraphError, match=f"call {lonely.sn} needs a view and its base, got 1"):
        prepare_plan(create_schedule(sink(after(view, lonely)), {}))


@pytest.mark.row("S147")
def test_alias_ids_reach_the_plan():
    source, between, out = memory(), memory(), memory()
    placed = after(between, call(plus(1), between, source))
    plan = prepare_plan(create_schedule(sink(after(out, call(plus(2), out, placed))), {}))
    assert plan.alias_ids == (placed.sn,)
    released = []
    plan.release_all_buffers(released.append)
    assert {placed.sn, between.sn, source.sn, out.sn} == set(released)


@pytest.mark.row("S148")
def test_an_end_around_an_effect_is_the_effect():
    counter = loop(2)
    copy, view = copy_body(), view_body(4, 0)
    custom = make(O.CUSTOM_FUNCTION, dt.float32, (param(1),), CustomArg("k", (), (4,)))
    for effect in (copy, view, custom):
        assert effect_of(end(effect, counter)) is effect
        assert effect_of(effect) is effect
    kernel = plus(1)
    assert effect_of(kernel) is kernel
    wrapped = end(kernel.src[0], counter)
    assert effect_of(wrapped) is wrapped
    source, out = memory(), memory()
    graph = sink(after(out, call(end(copy, counter), out, source)))
    plan = prepare_plan(create_schedule(graph, {source.sn: held(source, 1, 2, 3, 4)}))
    plan.execute()
    assert numbers(plan.output_buffer()) == [1, 2, 3, 4]


@pytest.mark.row("S149")
def test_a_copy_compiles_nothing():
    before = kernels.info()
    source, out = memory(), memory(device="CPU:1")
    graph = sink(after(out, call(copy_body("CPU:1"), out, source)))
    plan = prepare_plan(create_schedule(graph, {source.sn: held(source, 1, 2, 3, 4)}))
    assert [type(op) for op in plan.prepared_ops()] == [PreparedCopy]
    assert kernels.info() == before
    plan.execute()
    assert plan.output_buffer().device == "CPU:1" and numbers(plan.output_buffer()) == [1, 2, 3, 4]


@pytest.mark.row("S152")
def test_custom_functions_get_all_values_of_their_item():
    seen = []

    def note(buffers, attrs, values):
        seen.append((attrs, dict(values)))
        buffers[0].numpy()[:] = buffers[1].numpy() * values["n"] + values["i"]

    register_custom_function("note S152", note, replace=True)
    n, i = variable("n", 1, 9), variable("i", 0, 63)
    state, source = memory(), memory()
    counter = loop(2)
    arg = CustomArg("note S152", (n, i, "text"), (4,))
    kernel = make(O.CUSTOM_FUNCTION, dt.float32, (param(1),), arg)
    step = call(kernel, state, source, bind("n", 4, 1, 9), bind("i", counter))
    graph = sink(after(state, end(step, counter)))
    given = {source.sn: held(source, 1, 2, 3, 4)}
    try:
        plan = prepare_plan(create_schedule(graph, given, {"n": 4}))
        ops = plan.prepared_ops()
        assert all(isinstance(op, PreparedCustomFunction) for op in ops)
        assert {v.name for v in ops[0].runtime_vars} == {"n", "i"}
        plan.execute()
        assert [values for _, values in seen] == [{"n": 4, "i": 0}, {"n": 4, "i": 1}]
        assert seen[0][0] == (n, i, "text") and numbers(plan.output_buffer()) == [5, 9, 13, 17]
        plan.execute_with_vars({"n": 2, "i": 50})
        assert seen[-1][1] == {"n": 2, "i": 1}, "loop counters stay, the user's values do not"
    finally:
        unregister_custom_function("note S152")


@pytest.mark.row("Q17")
def test_custom_functions_in_a_lazy_graph():
    def swap(buffers, attrs, values):
        buffers[0].numpy()[:] = buffers[1].numpy()[::-1] * attrs[0]

    register_custom_function("swap Q17", swap, replace=True)
    try:
        x = Tensor(data(5))
        y = custom_function("swap Q17", x + 1, attrs=(3,)) * 2
        assert np.allclose(y.numpy(), (data(5) + 1)[::-1] * 6)
    finally:
        unregister_custom_function("swap Q17")
    with pytest.raises(UnsupportedError) as error:
        custom_function("swap Q17", x).realize()
    assert error.value.kind == "swap Q17"
    with pytest.raises(svod.errors.ShapeError, match="needs a shape and a dtype"):
        custom_function("swap Q17")


# -- compiled kernels ----------------------------------------------------------------------------


def cached(kernel, device="CPU", config=None):
    before = kernels.info()
    found = compiled_kernels([kernel], device, config)[kernel]
    return found, kernels.info().misses - before.misses


@pytest.mark.row("S154")
def test_the_key_of_optimised_kernels():
    kernel = fresh_kernel(154)
    one, missed = cached(kernel)
    assert missed == 1
    assert cached(kernel) == (one, 0), "body, device, compiler and configuration are the same"
    assert cached(kernel, "CPU:1") == (one, 0), "devices of a kind share code"
    plain = PrepareConfig(OptimizerConfig(Strategy.NONE))
    assert cached(kernel, config=plain)[1] == 1
    assert cached(kernel, config=PrepareConfig(OptimizerConfig(width=3)))[1] == 1
    assert cached(kernel, config=PrepareConfig(OptimizerConfig(seconds=3)))[1] == 1
    assert cached(kernel, config=PrepareConfig(OptimizerConfig(seconds=3.0)))[1] == 0
    assert cached(kernel, config=PrepareConfig(OptimizerConfig(opts=())))[1] == 1
    assert cached(kernel, "NULL")[1] == 1

    class OtherCompiler(type(get_device("CPU").compiler)):
        def cache_key(self):
            return "another compiler"

    stock = get_device("CPU")
    pair = (stock.renderer, OtherCompiler())
    other = Device("CPU", stock.allocator, Toolchain((pair,), stock.runtime))
    assert cached(kernel, config=PrepareConfig(device_resolver=lambda name: other))[1] == 1
    with knobs.scope(OPTIMIZE=0):
        assert cached(kernel, config=PrepareConfig())[1] == 1, "what changes code is in the key"


@pytest.mark.row("S155")
def test_first_in_first_out_with_a_limit_from_the_environment(monkeypatch):
    caches.clear_kernel_cache()
    with knobs.scope(OPT_CACHE_MAX=3):
        bodies = [fresh_kernel(155) for _ in range(4)]
        for kernel in bodies[:3]:
            cached(kernel)
        assert cached(bodies[0])[1] == 0, "read, not moved to the end"
        cached(bodies[3])
        assert len(kernels) == 3 and kernels.info().limit == 3
        assert [cached(b)[1] for b in bodies[1:]] == [0, 0, 0]
        assert cached(bodies[0])[1] == 1, "the oldest is gone"
    for text, limit in (("17", 17), ("0", 4096), ("-3", 4096), ("many", 4096), ("", 4096)):
        monkeypatch.setenv("SVOD_OPT_CACHE_MAX", text)
        knobs.refresh()
        assert kernels.info().limit == limit
    monkeypatch.undo()
    knobs.refresh()


@pytest.mark.row("S156")
def test_strategies_make_different_code():
    kernel = fresh_kernel(156)
    fast = compiled_kernels([kernel], "CPU", PrepareConfig())[kernel]
    plain = compiled_kernels([kernel], "CPU", PrepareConfig(OptimizerConfig(Strategy.NONE)))[kernel]
    assert "<4 x float>" in fast.source and "x float>" not in plain.source


@pytest.mark.row("S157")
def test_the_name_is_that_of_the_body():
    found = (Tensor(data(6, 7)) @ Tensor(data(7, 5))).prepare().prepared_kernels()[0]
    assert found.kernel.entry_point == "matmul_6x5_7"
    assert "define void @matmul_6x5_7_" in found.kernel.source


class Spy:
    """A device of its own kind: renders text, compiles nothing, runs a Python function."""

    device = "SPY"

    def __init__(self, **problems):
        self.problems = problems
        self.rendered = []
        self.compiled = []

    def render(self, ast, name=None):
        if "render" in self.problems:
            raise self.problems["render"]
        self.rendered.append(ast)
        spec = ProgramSpec(name or "kernel", "spy source", "SPY", ast)
        spec.set_buffer_metadata([0, 1], [0], [1])
        return spec

    def decompositor(self):
        return self.problems.get("rules")

    def compile(self, spec):
        if "compile" in self.problems:
            raise self.problems["compile"]
        self.compiled.append(spec)
        return CompiledSpec.from_bytes(spec.name, b"spy binary", spec.ast)

    def cache_key(self):
        return f"spy {id(self)}"

    def load(self, compiled):
        if "load" in self.problems:
            raise self.problems["load"]
        return lambda *args: None

    @property
    def as_device(self):
        cpu = get_device("CPU")
        return Device("SPY", cpu.allocator, Toolchain(((self, self),), self.load))

    @property
    def config(self):
        return PrepareConfig(device_resolver=lambda name: self.as_device)


@pytest.mark.row("S157", "S158")
def test_a_renderer_may_take_apart_what_it_lacks():
    rules = compile_rules([rule("no NEG", (O.NEG, "x"), (O.MUL, "x", -1.0))], "no NEG")
    spy = Spy(rules=rules)
    kernel = body(B.unary(O.NEG, param(1)))
    found = compiled_kernels([kernel], "SPY", spy.config)[kernel]
    (seen,) = spy.rendered
    ops = {n.op for n in seen.toposort()}
    assert O.NEG not in ops and O.MUL in ops
    assert found.entry_point.startswith("neg"), "the name is read before the kernel changes"


@pytest.mark.row("S159")
def test_programs_are_compiled_once():
    spy = Spy()
    kernel = fresh_kernel(159)
    one = compiled_kernels([kernel], "SPY", spy.config)[kernel]
    kernels.clear()
    two = compiled_kernels([kernel], "SPY", spy.config)[kernel]
    assert one is two and len(spy.compiled) == 1
    first = program_of(kernel, "SPY", "name")
    assert program_key(first) == program_key(program_of(kernel, "SPY", "name"))
    assert program_key(first) != program_key(program_of(kernel, "SPY", "other"))
    assert program_key(first) != program_key(program_of(kernel, "CPU", "name"))


@pytest.mark.row("S160")
def test_the_compiled_record():
    found = (Tensor(data(4)) + 160).prepare().prepared_kernels()[0].kernel
    assert found.device == "CPU" and "define void" in found.source and callable(found.program)
    assert found.var_names == () and found.globals == (0, 1)
    assert found.outs == (0,) and found.ins == (1,)
    assert found.host_parallel_safe and found.address
    assert found.global_size == default_size() == found.local_size
    spy = Spy()
    kernel = fresh_kernel(160)
    assert not compiled_kernels([kernel], "SPY", spy.config)[kernel].host_parallel_safe


@pytest.mark.row("Q15", "T18")
def test_a_kernel_is_safe_beside_others_because_of_its_program_not_its_device():
    class Reentrant:
        is_reentrant = True

    assert is_host_parallel_safe(Reentrant(), "@table = internal constant [2 x i8] zeroinitializer")
    assert not is_host_parallel_safe(Reentrant(), "\n@state = internal global [2 x i8] undef")
    assert not is_host_parallel_safe(object(), "")
    spy = Spy()
    spy.load = lambda compiled: Reentrant()
    kernel = fresh_kernel(15)
    assert compiled_kernels([kernel], "SPY", spy.config)[kernel].host_parallel_safe
    (null,) = (Tensor(data(4), device="NULL") + 15).prepare().prepared_kernels()
    assert null.kernel.host_parallel_safe
    (ref,) = (Tensor(data(4), device="REF") + 15).prepare().prepared_kernels()
    assert not ref.kernel.host_parallel_safe


def item_with(count):
    source = [memory() for _ in range(count - 1)]
    out = memory()
    (item,) = create_schedule(sink(after(out, call(plus(1), out, *source))), {}).items
    return item


@pytest.mark.row("S161", "T15", "Q1")
def test_arguments_follow_the_slots_of_the_kernel():
    item = item_with(2)
    assert bind_arguments(item, [11, 10], [1, 0]) == [10, 11]
    assert bind_arguments(item_with(4), [5, 6, 7, 8], [0, 3]) == [5, 8]


@pytest.mark.row("S161")
def test_arguments_that_were_optimised_away_are_not_passed():
    source, unused, out = memory(), memory(), memory()
    kernel = body(B.binary(O.ADD, param(2), const(1.0, dt.float32)))  # slot 1 is not used
    graph = sink(after(out, call(kernel, out, unused, source)))
    plan = prepare_plan(create_schedule(graph, {source.sn: held(source, 1, 2, 3, 4)}))
    (op,) = plan.prepared_kernels()
    assert op.kernel.globals == (0, 2) and len(op.buffer_indices) == 2
    plan.execute()
    assert numbers(plan.output_buffer()) == [2, 3, 4, 5]


@pytest.mark.row("S162")
def test_a_slot_past_the_arguments():
    item = item_with(2)
    with pytest.raises(GraphError) as error:
        bind_arguments(item, [0, 1], [0, 2])
    assert "position 2" in str(error.value) and str(item.buffer_ids) in str(error.value)
    out = memory()
    graph = sink(after(out, call(plus(1, slot=3), out, memory())))
    with pytest.raises(GraphError, match="out of range"):
        prepare_plan(create_schedule(graph, {}))


@pytest.mark.row("S163")
def test_an_item_without_a_plan_buffer():
    item = item_with(3)
    places = {node: place for place, node in enumerate(item.buffer_ids)}
    assert resolve_buffer_indices(item, places) == [0, 1, 2]
    missing = item.buffer_ids[1]
    del places[missing]
    with pytest.raises(BufferNotFound) as error:
        resolve_buffer_indices(item, places)
    assert error.value.buffer == missing


@pytest.mark.row("S164", "Q4")
def test_unbound_variables_start_at_their_minimum():
    out, source = memory(), memory()
    graph = sink(after(out, call(plus_variable("n", 5, 9), out, source)))
    given = {source.sn: held(source, 0, 0, 0, 0)}
    plan = prepare_plan(create_schedule(graph, given))
    assert plan.prepared_kernels()[0].vals == [5]
    plan.execute()
    assert numbers(plan.output_buffer()) == [5.0] * 4
    bound = prepare_plan(create_schedule(graph, given, {"n": 8}))
    assert bound.prepared_kernels()[0].vals == [8]


@pytest.mark.row("S165", "T14")
def test_output_positions():
    assert output_positions([0, 1, 2], [2], 3) == [2]
    assert output_positions([2, 4, 7], [4, 7], 3) == [1, 2]
    assert output_positions([2, 4, 7], [7, 4, 7], 3) == [1, 2]


@pytest.mark.row("S166", "T14")
def test_errors_of_output_metadata():
    cases = [
        ([0], [0], 0, "zero buffers"),
        ([], [0], 2, "globals is empty"),
        ([0, 1], [], 2, "outs is empty"),
        ([0, 1], [5], 2, "slot 5 is not in globals"),
        ([0, 1, 2], [2], 2, "position 2 .slot 2. is out of range for 2"),
    ]
    for slots, outs, count, message in cases:
        with pytest.raises(GraphError, match=message):
            output_positions(slots, outs, count)


@pytest.mark.row("S166")
def test_the_error_names_kernel_and_metadata():
    class Broken(Spy):
        def render(self, ast, name=None):
            spec = super().render(ast, name)
            spec.set_buffer_metadata([0, 1], [7], [1])
            return spec

    out, source = memory(), memory()
    step = call(fresh_kernel(166), out, source)
    result = create_schedule(sink(after(out, step)), {})
    with pytest.raises(GraphError) as error:
        prepare_plan(result, Broken().config)
    for text in (f"kernel id {step.sn}", "globals=[0, 1]", "outs=[7]", "buffers=2"):
        assert text in str(error.value)


@pytest.mark.row("S167")
def test_only_loop_counters_are_fixed():
    state = memory()
    counter = loop(2)
    value = B.binary(
        O.ADD, param(0),
        B.binary(O.ADD, B.cast(variable("i", 0, 63), dt.float32),
                 B.cast(variable("n", 0, 63), dt.float32)),
    )  # fmt: skip
    step = call(body(value), state, bind("i", counter), bind("n", 10))
    graph = sink(after(state, end(step, counter)))
    plan = prepare_plan(create_schedule(graph, {state.sn: held(state, 0, 0, 0, 0)}, {"n": 10}))
    assert [k.fixedvars for k in plan.prepared_kernels()] == [{"i": 0}, {"i": 1}]
    plan.execute()
    assert numbers(plan.output_buffer()) == [21.0] * 4
    plan.execute_with_vars({"n": 1, "i": 60})
    assert numbers(plan.output_buffer()) == [21.0 + 3.0] * 4, "i is not overridden, n is"


@pytest.mark.row("S168")
def test_outputs_follow_the_schedule():
    source, first, second = memory(), memory(), memory()
    one, two = call(plus(1), first, source), call(plus(2), second, source)
    given = {source.sn: held(source, 0, 0, 0, 0)}
    plan = prepare_plan(create_schedule(sink(after(second, two), after(first, one)), given))
    plan.execute()
    assert [numbers(b)[0] for b in plan.output_buffers()] == [2.0, 1.0]
    assert plan.output_buffer_at(0) is plan.buffer(second.sn)


@pytest.mark.row("S169")
def test_outputs_without_buffers_and_no_outputs():
    source, out = memory(), memory()
    graph = sink(after(out, call(plus(1), out, source)))
    result = create_schedule(graph, {})
    with pytest.raises(BufferNotFound) as error:
        prepare_plan(replace(result, output_ids=[4711]))
    assert error.value.buffer == 4711
    with pytest.raises(GraphError, match="at least one output"):
        prepare_plan(replace(create_schedule(graph, {}), output_ids=[]))


# -- programs ------------------------------------------------------------------------------------


def cpu_program(name="kernel_of_a_test"):
    from svod.codegen.pipeline import optimized
    from svod.codegen.targets.cpu import cpu_target

    kernel, _ = optimized(plus(3), cpu_target(host_machine()))
    return program_of(kernel, "CPU", name)


@pytest.mark.row("S170", "T17")
def test_only_programs_are_taken():
    with pytest.raises(GraphError, match="takes a PROGRAM, got SINK"):
        compile_program(plus(1), get_device("CPU"))
    with pytest.raises(GraphError, match="takes a PROGRAM, got BUFFER"):
        complete(memory(), get_device("CPU"))


@pytest.mark.row("S171", "T17")
def test_every_stage_can_be_completed():
    cpu = get_device("CPU")
    stages = [cpu_program()]
    for target in (ProgramStage.LINEAR, ProgramStage.SOURCE, ProgramStage.BINARY):
        stages.append(complete(stages[0], cpu, target))
    assert [stage_of(p) for p in stages] == list(ProgramStage)
    ops = (O.SINK, O.DEVICE, O.LINEAR, O.SOURCE, O.BINARY)
    assert tuple(s.op for s in stages[3].src) == ops
    for start in stages[:3]:
        spec, compiled = compile_program(start, cpu)
        assert spec.name == "kernel_of_a_test" and compiled.bytes
        assert spec.src == stages[3].src[3].arg
        program = cpu.runtime(compiled)
        source, out = Buffer.from_numpy(data(4)), Buffer.new("CPU", 4, dt.float32)
        program([out.address, source.address], [], (1, 1, 1), None)
        assert np.allclose(out.copyout(), data(4) + 3)
    assert complete(stages[3], cpu) is stages[3]
    assert complete(stages[2], cpu, ProgramStage.LINEAR) is stages[2]


@pytest.mark.row("S171")
def test_the_linear_stage_is_one_list_with_loops_closed():
    linear = complete(cpu_program(), get_device("CPU"), ProgramStage.LINEAR).src[2]
    opened = [n for n in linear.src if n.op == O.RANGE]
    closed = [n.src[0] for n in linear.src if n.op == O.END and n.src[0].op == O.RANGE]
    assert set(opened) == set(closed)
    around = []
    for node in linear.src:
        if node.op == O.RANGE:
            around.append(node)
        elif node.op == O.END and node.src[0].op == O.RANGE:
            assert around.pop() is node.src[0], "loops are closed from the inside"
    assert not around


@pytest.mark.row("T17")
def test_source_without_a_linear_form_is_malformed():
    source = make(O.SOURCE, dt.void, (), "text")
    broken = make(O.PROGRAM, dt.void, (*cpu_program().src, source), ProgramMetadata())
    with pytest.raises(GraphError, match="malformed PROGRAM state: its stages are SINK, DEVICE, S"):
        complete(broken, get_device("CPU"))
    with pytest.raises(GraphError, match="malformed PROGRAM state"):
        stage_of(make(O.PROGRAM, dt.void, (plus(1),), None))


@pytest.mark.row("S172")
def test_errors_of_the_stages():
    kernel = plus(172)
    program = program_of(kernel, "SPY", "entry_172")
    with pytest.raises(RenderError, match="could not render 'entry_172': no ink"):
        compile_program(program, Spy(render=ValueError("no ink")).as_device)
    with pytest.raises(CompileError, match="could not compile 'entry_172': no luck"):
        compile_program(program, Spy(compile=ValueError("no luck")).as_device)

    class NoText(Spy):
        def render(self, ast, name=None):
            return replace(super().render(ast, name), src=None)

    spy = NoText()
    rendered = complete(program, spy.as_device, ProgramStage.SOURCE)
    assert rendered.src[3].arg is None
    wrong = make(O.PROGRAM, dt.void, rendered.src, 172)
    with pytest.raises(GraphError, match="invalid SOURCE stage"):
        compile_program(wrong, spy.as_device)


@pytest.mark.row("S171", "S172")
def test_a_program_that_breaks_while_compiling(monkeypatch):
    program = program_of(plus(173), "SPY", "entry_173")
    spy = Spy().as_device

    def breaking(found, device):
        made, compiled = original(found, device)
        return make(O.PROGRAM, dt.void, (*made.src[:4], made.src[3]), made.arg), compiled

    original = programs.compile_source
    monkeypatch.setattr(programs, "compile_source", breaking)
    with pytest.raises(GraphError, match="invalid ProgramSpec after compiling 'entry_173'"):
        compile_program(program, spy)


@pytest.mark.row("S173")
def test_the_optimizer_knows_the_machine(monkeypatch):
    """There is no Apple AMX profile, so SVOD_AMX has no meaning here."""
    gpu = CudaRenderer(GpuMachine(multiprocessors=17))
    asked = []

    def device(name):
        asked.append(name)
        if name == "SOMETHING":
            return SimpleNamespace(target=None, planning=None)
        return SimpleNamespace(target=None, planning=gpu) if name == "CUDA:1" else real(name)

    real = get_device
    monkeypatch.setattr(caches, "get_device", device)
    assert optimizer_machine("CPU") == host_machine()
    assert optimizer_machine("CPU:1") == host_machine()
    assert optimizer_machine("SOMETHING") == host_machine(), "anything else is a CPU"
    assert optimizer_machine("CUDA:1") == gpu.machine
    assert asked == ["CPU", "CPU:1", "SOMETHING", "CUDA:1"]


@pytest.mark.row("S173")
def test_panels_are_packed_for_cpus_alone(monkeypatch):
    x, w = memory(256 * 256), memory(256 * 256)
    product = wrap(B.reshape(x, (256, 256)), "CPU") @ wrap(B.reshape(w, (256, 256)), "CPU")
    (kernel,) = bodies(product)
    item = ScheduleItem(kernel, kernel, [Buffer.new("CPU", 256 * 256, dt.float32)] * 3, [0, 1, 2])
    assert find_packing(item, [1, 2]) is not None
    monkeypatch.setattr("svod.runtime.freeze.optimizer_machine", lambda *device: GpuMachine())
    assert find_packing(item, [1, 2]) is None


@pytest.mark.row("S174")
def test_code_that_cannot_be_loaded():
    spy = Spy(load=OSError("no room"))
    kernel = fresh_kernel(174)
    with pytest.raises(CreateProgramError, match=r"SPY could not load .*: no room"):
        compiled_kernels([kernel], "SPY", spy.config)
    stock = get_device("CPU")
    toolchain = Toolchain(stock.compilers, spy.load)
    device = Device("CPU", stock.allocator, toolchain)
    with pytest.raises(CreateProgramError, match="CPU could not load"):
        compiled_kernels([kernel], "CPU", PrepareConfig(device_resolver=lambda name: device))
    assert isinstance(CreateProgramError("x"), CompileError)
