"""Part 15 of the checklist, device abstraction: rows S243 to S273, and Q6."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from svod.base.errors import ExecutionError, GraphError, VariableError
from svod.device.buffer import Buffer
from svod.device.cpu.allocator import HostAllocator
from svod.device.device import Compiler, Device, Program, Renderer, Toolchain
from svod.device.launch import (
    BoundsError,
    LaunchDims,
    LaunchError,
    LaunchSize,
    MissingVariableError,
    concrete_size,
    default_size,
    evaluate,
    is_default,
    resolve_launch_dims,
)
from svod.device.registry import get_device
from svod.device.spec import (
    CompiledSpec,
    ProgramMetadata,
    ProgramSpec,
    Variable,
    derive_metadata,
    special_axis,
)
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.node import UOp, const, make, variable

ONE = const(1, dt.index)
LARGEST = (1 << 63) - 1
SMALLEST = -(1 << 63)


def index(value: int) -> UOp:
    return const(value, dt.index)


def binary(op: int, a: UOp | int, b: UOp | int) -> UOp:
    left = index(a) if isinstance(a, int) else a
    right = index(b) if isinstance(b, int) else b
    return make(op, dt.int64, (left, right))


def param(slot: int, src: tuple[UOp, ...] = ()) -> UOp:
    return make(O.PARAM, dt.float32, src, ParamArg(slot, (16,)))


def place(memory: UOp, offset: UOp = ONE) -> UOp:
    return make(O.INDEX, dt.float32, (memory, offset))


def load(where: UOp) -> UOp:
    return make(O.LOAD, dt.float32, (where,))


def store(where: UOp, value: UOp | None = None) -> UOp:
    return make(O.STORE, dt.void, (where, const(0.0, dt.float32) if value is None else value))


def special(name: str, size: UOp | int) -> UOp:
    size = index(size) if isinstance(size, int) else size
    return make(O.SPECIAL, dt.index, (size,), name)


def sink(*src: UOp) -> UOp:
    return make(O.SINK, dt.void, src)


def kernel(*offsets: UOp) -> UOp:
    """A sink with one store per offset, in this order."""
    return sink(*[store(place(param(0), offset)) for offset in offsets])


def spec_of(ast: UOp) -> ProgramSpec:
    return ProgramSpec("k", "source", "CPU", ast)


def numbers(size: LaunchSize | None) -> tuple[int, ...] | None:
    return None if size is None else tuple([e.arg for e in size])


# -- devices and protocols -----------------------------------------------------------------------


class ToyProgram:
    def __init__(self, compiled: CompiledSpec) -> None:
        self.name = compiled.name
        self.calls: list[tuple[Any, ...]] = []

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: tuple[int, int, int] | None = None,
        local_size: tuple[int, int, int] | None = None,
    ) -> None:
        self.calls.append((tuple(buffers), tuple(vals), global_size, local_size))


class ToyRenderer:
    device = "TOY"

    def render(self, ast: UOp, name: str | None = None) -> ProgramSpec:
        return ProgramSpec(name or "kernel", "text", self.device, ast)

    def decompositor(self) -> None:
        return None


class ToyCompiler:
    def __init__(self, key: str = "toy") -> None:
        self.key = key

    def compile(self, spec: ProgramSpec) -> CompiledSpec:
        return CompiledSpec.from_source(spec.name, spec.src, spec.ast, spec.buf_count)

    def cache_key(self) -> str:
        return self.key


@pytest.mark.row("S243")
def test_a_device_bundles_its_parts_and_the_first_pair_is_primary() -> None:
    first, second = (ToyRenderer(), ToyCompiler("a")), (ToyRenderer(), ToyCompiler("b"))
    allocator = HostAllocator("TOY:1")
    device = Device("toy:1", allocator, Toolchain((first, second), ToyProgram))
    assert device.name == "TOY:1"
    assert device.allocator is allocator
    assert device.compilers == (first, second)
    assert (device.renderer, device.compiler) == first
    assert device.runtime is ToyProgram
    single = Device.single("TOY", allocator, *second, ToyProgram)
    assert single.compilers == (second,)


@pytest.mark.row("S243")
def test_every_device_that_runs_programs_has_all_parts() -> None:
    device = get_device("REF")
    assert device.runs_programs
    assert device.compilers[0] == (device.renderer, device.compiler)
    assert Buffer.new("REF", 4, dt.float32).storage.allocator is device.allocator


@pytest.mark.row("S244")
def test_a_program_takes_addresses_values_and_sizes_and_has_a_name() -> None:
    program = ToyProgram(CompiledSpec.from_source("add", "", sink(), 2))
    assert isinstance(program, Program)
    assert program.name == "add"
    program([64, 128], [7], (2, 1, 1), None)
    program([64, 128], [7])
    assert program.calls == [((64, 128), (7,), (2, 1, 1), None), ((64, 128), (7,), None, None)]


@pytest.mark.row("S244")
def test_a_program_keeps_nothing_between_calls() -> None:
    """The REF program run on one set of buffers does not remember another."""
    device = get_device("REF")
    whole = make(O.PARAM, dt.float32, (), ParamArg(0, (2,)))
    source = make(O.PARAM, dt.float32, (), ParamArg(1, (2,)))
    spec = device.renderer.render(sink(store(whole, source)), "copy")
    program = device.runtime(device.compiler.compile(spec))
    buffers = [Buffer.new("REF", 2, dt.float32) for _ in range(4)]
    for i, buffer in enumerate(buffers):
        buffer.numpy()[:] = i
    program([buffers[0].address, buffers[1].address], [])
    program([buffers[2].address, buffers[3].address], [])
    assert [b.numpy()[0] for b in buffers] == [1, 1, 3, 3]


@pytest.mark.row("S245")
def test_compiled_spec_fields() -> None:
    ast = kernel(ONE)
    n = variable("n", 1, 8)
    spec = CompiledSpec(
        "k", ast, src="s", bytes=b"b", var_names=("core_id", "n"), global_size=(n, ONE, ONE),
        local_size=None, buf_count=3,
    )  # fmt: skip
    assert (spec.name, spec.ast, spec.src, spec.bytes) == ("k", ast, "s", b"b")
    assert spec.var_names == ("core_id", "n")
    assert spec.global_size == (n, ONE, ONE)
    assert spec.local_size is None
    assert spec.buf_count == 3


@pytest.mark.row("S246")
def test_from_source_has_no_bytes_and_default_sizes() -> None:
    spec = CompiledSpec.from_source("k", "text", kernel(ONE), 2)
    assert (spec.src, spec.bytes, spec.buf_count, spec.var_names) == ("text", b"", 2, ())
    assert numbers(spec.global_size) == numbers(spec.local_size) == (1, 1, 1)


@pytest.mark.row("S246")
def test_from_bytes_has_no_source_and_no_buffer_count() -> None:
    spec = CompiledSpec.from_bytes("k", b"\x7fELF", kernel(ONE))
    assert (spec.src, spec.bytes, spec.buf_count) == (None, b"\x7fELF", 0)
    assert numbers(spec.global_size) == numbers(spec.local_size) == (1, 1, 1)


@pytest.mark.row("S246")
def test_from_source_with_sizes_holds_concrete_sizes() -> None:
    ast = kernel(ONE)
    spec = CompiledSpec.from_source_with_sizes("k", "text", ast, (4, 5, 6), (1, 2, 3), 2)
    assert (spec.src, spec.bytes, spec.buf_count) == ("text", b"", 2)
    assert (numbers(spec.global_size), numbers(spec.local_size)) == ((4, 5, 6), (1, 2, 3))
    direct = CompiledSpec.from_source_with_sizes("k", "text", ast, (4, 5, 6), None, 2)
    assert direct.local_size is None


@pytest.mark.row("S247")
def test_the_default_launch_size_is_one_work_item() -> None:
    spec = spec_of(kernel(ONE))
    assert numbers(default_size()) == (1, 1, 1)
    assert spec.launch_dims({}) == LaunchDims((1, 1, 1), (1, 1, 1))
    spec.set_launch_dims(concrete_size((8, 1, 1)), None)
    assert spec.launch_dims({}) == LaunchDims((8, 1, 1), None)


# -- launch expressions --------------------------------------------------------------------------


@pytest.mark.row("S248")
@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (const(-3, dt.int32), -3),
        (const(7, dt.index), 7),
        (const(LARGEST, dt.uint64), LARGEST),
        (const(True, dt.bool_), 1),
        (const(False, dt.bool_), 0),
    ],
)
def test_integer_and_bool_constants(node: UOp, expected: int) -> None:
    value = evaluate(node, {})
    assert value == expected
    assert type(value) is int


@pytest.mark.row("S249")
def test_an_unsigned_constant_past_64_bits_signed_is_refused() -> None:
    with pytest.raises(LaunchError, match=f"launch-size constant {LARGEST + 1} does not fit i64"):
        evaluate(const(LARGEST + 1, dt.uint64), {})


@pytest.mark.row("S249")
def test_float_constant_is_refused() -> None:
    expected = "launch-size expression must be integer, got float constant 2.5"
    with pytest.raises(LaunchError, match=expected) as caught:
        evaluate(binary(O.ADD, const(2.5, dt.float32), ONE), {})
    assert caught.value.value == 2.5


@pytest.mark.row("S250")
@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        (O.ADD, 5, 3, 8),
        (O.SUB, 5, 8, -3),
        (O.MUL, -4, 6, -24),
        (O.IDIV, 17, 5, 3),
        (O.IDIV, -7, 2, -4),  # toward minus infinity, as everywhere in the IR
        (O.MOD, 17, 5, 2),
        (O.MOD, -7, 4, 1),
        (O.MAX, -2, 3, 3),
        (O.ADD, LARGEST - 1, 1, LARGEST),
        (O.SUB, SMALLEST + 1, 1, SMALLEST),
    ],
)
def test_binary_operations(op: int, left: int, right: int, expected: int) -> None:
    assert evaluate(binary(op, left, right), {}) == expected


@pytest.mark.row("S251")
@pytest.mark.parametrize(
    ("op", "left", "right"),
    [
        (O.ADD, LARGEST, 1),
        (O.SUB, SMALLEST, 1),
        (O.MUL, 1 << 40, 1 << 40),
        (O.IDIV, SMALLEST, -1),
        (O.IDIV, 4, 0),
        (O.MOD, 4, 0),
    ],
)
def test_overflow_and_division_by_zero_are_refused(op: int, left: int, right: int) -> None:
    text = f"invalid launch-size arithmetic: {left} {O.NAMES[op]} {right}"
    with pytest.raises(LaunchError, match=text) as caught:
        evaluate(binary(op, left, right), {})
    assert caught.value.value == (left, right)


@pytest.mark.row("S251")
@pytest.mark.parametrize("op", [O.MIN, O.AND, O.SHL, O.POW, O.LT])
def test_other_binary_operations_are_unsupported(op: int) -> None:
    text = f"unsupported binary op in launch-size expression: {O.NAMES[op]}"
    with pytest.raises(LaunchError, match=text):
        evaluate(binary(op, 4, 2), {})


@pytest.mark.row("S252")
def test_a_variable_has_the_supplied_value_within_inclusive_bounds() -> None:
    n = variable("n", 2, 9)
    assert [evaluate(n, {"n": v, "other": 0}) for v in (2, 5, 9)] == [2, 5, 9]
    for value in (1, 10):
        text = rf"variable n={value} is outside bounds \[2, 9\]"
        with pytest.raises(BoundsError, match=text) as caught:
            evaluate(n, {"n": value})
        error = caught.value
        assert (error.variable, error.value, error.low, error.high) == ("n", value, 2, 9)


@pytest.mark.row("S253")
def test_a_missing_value_is_refused() -> None:
    with pytest.raises(MissingVariableError) as caught:
        evaluate(binary(O.MUL, variable("n", 1, 8), 2), {"m": 3})
    assert str(caught.value) == "missing runtime value for launch-size variable n"
    assert caught.value.variable == "n"
    assert isinstance(caught.value, VariableError)


@pytest.mark.row("S254")
def test_a_binding_gives_its_value_and_checks_the_bounds() -> None:
    n = variable("n", 1, 8)
    m = variable("m", 0, 100)
    assert evaluate(make(O.BIND, dt.index, (n, index(5))), {}) == 5
    assert evaluate(make(O.BIND, dt.index, (n, index(5))), {"n": 7}) == 5
    assert evaluate(make(O.BIND, dt.index, (n, m)), {"m": 8}) == 8
    with pytest.raises(BoundsError, match=r"variable n=9 is outside bounds \[1, 8\]"):
        evaluate(make(O.BIND, dt.index, (n, m)), {"m": 9})


@pytest.mark.row("S255")
def test_negation_and_absolute_value() -> None:
    assert evaluate(make(O.NEG, dt.index, (index(5),)), {}) == -5
    assert evaluate(make(O.ABS, dt.index, (index(-5),)), {}) == 5
    assert evaluate(make(O.NEG, dt.index, (index(SMALLEST + 1),)), {}) == LARGEST
    with pytest.raises(LaunchError, match="invalid launch-size negation overflow"):
        evaluate(make(O.NEG, dt.index, (index(SMALLEST),)), {})
    with pytest.raises(LaunchError, match="invalid launch-size abs overflow"):
        evaluate(make(O.ABS, dt.index, (index(SMALLEST),)), {})


@pytest.mark.row("S255")
def test_cast_bitcast_and_after_are_transparent() -> None:
    n = variable("n", 1, 300)
    assert evaluate(make(O.CAST, dt.int8, (n,)), {"n": 300}) == 300
    assert evaluate(make(O.BITCAST, dt.uint64, (n,)), {"n": 4}) == 4
    # the effects of an AFTER are no part of the value
    assert evaluate(make(O.AFTER, dt.index, (n, store(place(param(0))))), {"n": 4}) == 4


@pytest.mark.row("S256")
@pytest.mark.parametrize(
    "node",
    [
        make(O.SQRT, dt.float32, (index(4),)),
        make(O.WHERE, dt.index, (const(True, dt.bool_), index(4), index(5))),
        load(place(param(0))),
        special("gidx0", 4),
    ],
    ids=["SQRT", "WHERE", "LOAD", "SPECIAL"],
)
def test_any_other_operation_is_refused(node: UOp) -> None:
    text = f"unsupported launch-size expression op: {O.NAMES[node.op]}"
    with pytest.raises(LaunchError, match=text):
        evaluate(binary(O.ADD, node, 1), {})


@pytest.mark.row("S256")
def test_a_long_expression_needs_no_deep_recursion() -> None:
    total = variable("n", 0, 9)
    for _ in range(5000):
        total = make(O.ADD, dt.index, (total, ONE))
    assert evaluate(total, {"n": 2}) == 5002


@pytest.mark.row("S257")
@pytest.mark.parametrize("value", [0, -4])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_dimension_must_be_positive_and_the_axis_is_named(value: int, axis: int) -> None:
    size = [ONE, ONE, ONE]
    size[axis] = index(value)
    text = f"launch dimension {axis} evaluated to non-positive value {value}"
    with pytest.raises(LaunchError, match=text) as caught:
        resolve_launch_dims((size[0], size[1], size[2]), None, {})
    assert (caught.value.axis, caught.value.value) == (axis, value)
    with pytest.raises(LaunchError, match=text):
        resolve_launch_dims(default_size(), (size[0], size[1], size[2]), {})


@pytest.mark.row("S257")
def test_a_dimension_must_be_representable() -> None:
    with pytest.raises(LaunchError, match="does not fit i64"):
        resolve_launch_dims((const(1 << 63, dt.uint64), ONE, ONE), None, {})


@pytest.mark.row("S257")
@pytest.mark.parametrize(
    "error",
    [
        LaunchError("text", 1, -2),
        MissingVariableError("n"),
        BoundsError("n", 9, 1, 8),
    ],
)
def test_launch_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert isinstance(error, ExecutionError | VariableError)


@pytest.mark.row("S258")
def test_a_compiler_turns_a_program_spec_into_a_compiled_spec() -> None:
    compiler = ToyCompiler("clang")
    assert isinstance(compiler, Compiler)
    compiled = compiler.compile(ProgramSpec("k", "text", "CPU", kernel(ONE), buf_count=1))
    assert (compiled.name, compiled.src, compiled.buf_count) == ("k", "text", 1)
    assert compiler.cache_key() != ToyCompiler("llvm").cache_key()
    assert isinstance(get_device("REF").compiler, Compiler)
    assert get_device("REF").compiler.cache_key()


@pytest.mark.row("S259")
def test_a_renderer_names_a_kernel_kernel_unless_told() -> None:
    renderer = get_device("REF").renderer
    assert isinstance(renderer, Renderer)
    assert isinstance(ToyRenderer(), Renderer)
    body = sink(store(make(O.PARAM, dt.float32, (), ParamArg(0, ())), const(1.0, dt.float32)))
    assert renderer.render(body).name == "kernel"
    assert renderer.render(body, "fill").name == "fill"
    assert renderer.render(body).device == renderer.device == "REF"
    assert renderer.decompositor() is None


@pytest.mark.row("S260")
def test_a_runtime_factory_makes_a_program_of_a_compiled_spec() -> None:
    target = make(O.PARAM, dt.float32, (), ParamArg(0, ()))
    body = sink(store(target, const(3.0, dt.float32)))
    made = get_device("REF").runtime(CompiledSpec.from_source("fill", "", body, 1))
    assert isinstance(made, Program)
    assert made.name == "fill"
    out = Buffer.new("REF", 1, dt.float32)
    made([out.address], [])
    assert out.numpy().tolist() == [3.0]


@pytest.mark.row("S261")
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("CPU", "CPU"),
        ("cpu:3", "CPU"),
        ("CUDA:0", "CUDA"),
        ("CUDA:1", "CUDA"),
        ("Metal:2", "METAL"),
    ],
)
def test_the_base_key_has_no_index(name: str, key: str) -> None:
    assert Device(name, HostAllocator(name)).base_device_key == key


# -- program specs -------------------------------------------------------------------------------


@pytest.mark.row("S262")
def test_program_spec_fields_and_their_defaults() -> None:
    ast = kernel(ONE)
    spec = ProgramSpec("k", "text", "CPU", ast)
    assert (spec.name, spec.src, spec.device, spec.ast) == ("k", "text", "CPU", ast)
    assert numbers(spec.global_size) == numbers(spec.local_size) == (1, 1, 1)
    assert (spec.vars, spec.var_names, spec.globals) == ([], [], [])
    assert (spec.outs, spec.ins, spec.buf_count) == ([], [], 0)
    other = ProgramSpec("k", "text", "CPU", ast)
    other.vars.append(Variable("n", 0, 1))
    assert spec.vars == []


@pytest.mark.row("S263")
def test_helpers_set_what_they_say() -> None:
    spec = spec_of(kernel(ONE))
    n = variable("n", 1, 8)
    spec.add_var(Variable("n", 1, 8))
    assert spec.vars == [Variable("n", 1, 8)]
    spec.set_work_sizes([4, 2, 1], [8, 1, 1])
    assert spec.launch_dims({}) == LaunchDims((4, 2, 1), (8, 1, 1))
    spec.set_launch_dims((binary(O.MUL, n, 2), ONE, ONE), (n, ONE, ONE))
    assert spec.launch_dims({"n": 3}) == LaunchDims((6, 1, 1), (3, 1, 1))
    resolved = ProgramSpec.resolve_launch_dims((n, n, ONE), None, {"n": 5})
    assert resolved == LaunchDims((5, 5, 1), None)
    spec.set_var_names(("n", "core_id"))
    assert spec.var_names == ["n", "core_id"]
    spec.set_buffer_metadata((0, 1, 2), (0,), (1, 2))
    assert (spec.globals, spec.outs, spec.ins) == ([0, 1, 2], [0], [1, 2])


@pytest.mark.row("S263")
def test_a_launch_size_has_three_numbers() -> None:
    with pytest.raises(GraphError, match=r"a launch size has three numbers, got \(4, 2\)"):
        spec_of(kernel(ONE)).set_work_sizes([4, 2], [1, 1, 1])


def busy_kernel() -> UOp:
    """Reads slots 2 and 5, writes slot 1, uses variables n and core_id."""
    core = variable("core_id", 0, 3)
    n = variable("n", 1, 8)
    value = binary(O.ADD, load(place(param(5), n)), load(place(param(2), core)))
    return sink(store(place(param(1), core), value))


@pytest.mark.row("S264")
def test_slots_and_sizes_are_overwritten() -> None:
    spec = spec_of(busy_kernel())
    spec.set_buffer_metadata((7, 8), (7,), (8,))
    spec.set_work_sizes((9, 9, 9), (9, 9, 9))
    spec.apply_derived_metadata_from_ast()
    assert (spec.globals, spec.outs, spec.ins) == ([1, 2, 5], [1], [2, 5])
    assert (numbers(spec.global_size), numbers(spec.local_size)) == ((4, 1, 1), (1, 1, 1))


@pytest.mark.row("S264")
def test_variables_and_the_buffer_count_are_filled_only_where_empty() -> None:
    spec = spec_of(busy_kernel())
    spec.apply_derived_metadata_from_ast()
    assert spec.vars == [Variable("core_id", 0, 3), Variable("n", 1, 8)]
    assert spec.var_names == ["core_id", "n"]
    assert spec.buf_count == 3
    spec = spec_of(busy_kernel())
    spec.add_var(Variable("given", 0, 1))
    spec.set_var_names(["order"])
    spec.buf_count = 10
    spec.apply_derived_metadata_from_ast()
    assert spec.vars == [Variable("given", 0, 1)]
    assert spec.var_names == ["order"]
    assert spec.buf_count == 10


@pytest.mark.row("S265")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gidx0", ("g", 0)),
        ("g2", ("g", 2)),
        ("lidx1", ("l", 1)),
        ("idx2", ("i", 2)),
        ("i0", ("i", 0)),
        ("gidx3", ("", 0)),
        ("gidx12", ("", 0)),
        ("gidx", ("", 0)),
        ("x0", ("", 0)),
        ("0", ("", 0)),
        ("", ("", 0)),
    ],
)
def test_hardware_index_names(name: str, expected: tuple[str, int]) -> None:
    assert special_axis(name) == expected


@pytest.mark.row("S265")
def test_indices_with_other_names_do_not_change_the_launch() -> None:
    found = derive_metadata(kernel(special("warp0", 32), special("gidx7", 5), special("lane", 3)))
    assert (numbers(found.global_size), numbers(found.local_size)) == ((1, 1, 1), (1, 1, 1))


@pytest.mark.row("S266")
def test_the_walk_finds_variables_slots_and_launch_axes() -> None:
    n = variable("n", 1, 8)
    ast = kernel(special("gidx0", n), special("gidx1", 4), special("lidx0", 16))
    found = derive_metadata(ast)
    assert found.vars == (Variable("n", 1, 8),)
    assert found.global_size == (n, index(4), ONE)
    assert found.local_size == (index(16), ONE, ONE)
    busy = derive_metadata(busy_kernel())
    assert (busy.globals, busy.outs, busy.ins) == ((1, 2, 5), (1,), (2, 5))


@pytest.mark.row("S266")
def test_core_id_sets_the_first_grid_axis_saturating() -> None:
    assert numbers(derive_metadata(busy_kernel()).global_size) == (4, 1, 1)
    huge = derive_metadata(kernel(variable("core_id", 0, LARGEST)))
    assert numbers(huge.global_size) == (LARGEST, 1, 1)


@pytest.mark.row("S266")
def test_a_parameter_with_a_device_is_no_argument() -> None:
    cpu = make(O.DEVICE, dt.void, (), "CPU")
    placed = param(3, (cpu,))
    found = derive_metadata(sink(store(place(placed), load(place(placed)))))
    assert (found.globals, found.outs, found.ins) == ((), (), ())


@pytest.mark.row("S267")
def test_a_direct_index_clears_the_workgroup_and_a_later_local_one_makes_it_anew() -> None:
    local, direct = special("lidx1", 8), special("idx0", 64)
    cleared = derive_metadata(kernel(local, direct))
    assert (numbers(cleared.global_size), cleared.local_size) == ((64, 1, 1), None)
    remade = derive_metadata(kernel(direct, local))
    assert numbers(remade.global_size) == (64, 1, 1)
    assert numbers(remade.local_size) == (1, 8, 1)


@pytest.mark.row("S268")
def test_a_slot_is_found_through_index_or_cast_of_index_only() -> None:
    cast = make(O.CAST, dt.float32, (place(param(1)),))
    twice = make(O.CAST, dt.float32, (make(O.CAST, dt.float32, (place(param(2)),)),))
    after = place(make(O.AFTER, dt.float32, (param(3), ONE)))
    local = place(make(O.DEFINE_LOCAL, dt.float32))
    found = derive_metadata(sink(*[store(p) for p in (cast, twice, after, local)]))
    assert found.outs == (1,)
    assert found.globals == (1, 2, 3)
    reads = [load(p) for p in (cast, twice, after, local)]
    assert derive_metadata(sink(*reads)).ins == (1,)


@pytest.mark.row("S269")
def test_everything_is_sorted_and_appears_once() -> None:
    names = [variable(n, 0, 9) for n in ("zeta", "alpha", "mid")]
    stores = [store(place(param(s), v)) for s in (64, 9, 4, 4, 0) for v in names]
    reads = [load(place(param(s), v)) for s in (80, 7, 3) for v in names]
    found = derive_metadata(sink(*stores, *reads))
    assert found.var_names == ("alpha", "mid", "zeta")
    assert [v.name for v in found.vars] == ["alpha", "mid", "zeta"]
    assert found.globals == (0, 3, 4, 7, 9, 64, 80)
    assert found.outs == (0, 4, 9, 64)
    assert found.ins == (3, 7, 80)


def program(sink_node: UOp, *stages: UOp, arg: object = None) -> UOp:
    cpu = make(O.DEVICE, dt.void, (), "cpu:0")
    return make(O.PROGRAM, dt.void, (sink_node, cpu, *stages), arg)


LINEAR = make(O.LINEAR, dt.void)
SOURCE = make(O.SOURCE, dt.void, (), "define void @k")
BINARY = make(O.BINARY, dt.void, (), b"\x7fELF")


@pytest.mark.row("S270")
def test_without_metadata_everything_is_derived() -> None:
    ast = busy_kernel()
    spec = ProgramSpec.from_uop(program(ast, LINEAR, SOURCE))
    assert (spec.name, spec.src, spec.device) == ("kernel", "define void @k", "CPU")
    assert spec.ast is ast
    assert spec.vars == [Variable("core_id", 0, 3), Variable("n", 1, 8)]
    assert spec.var_names == ["core_id", "n"]
    assert (spec.globals, spec.outs, spec.ins, spec.buf_count) == ([1, 2, 5], [1], [2, 5], 3)
    assert numbers(spec.global_size) == (4, 1, 1)
    assert ProgramSpec.from_uop(program(ast, LINEAR, SOURCE, BINARY)) == spec
    assert ProgramSpec.from_uop(program(ast, LINEAR, SOURCE, arg="sum")).name == "sum"


@pytest.mark.row("S270")
def test_metadata_wins_where_it_says_something() -> None:
    given = ProgramMetadata(
        name="matmul", vars=(Variable("m", 0, 5),), var_names=("m", "core_id"), globals=(0, 1),
        outs=(0,), ins=(1,), global_size=concrete_size((7, 1, 1)), local_size=None, buf_count=4,
    )  # fmt: skip
    spec = ProgramSpec.from_uop(program(busy_kernel(), LINEAR, SOURCE, arg=given))
    assert spec.name == "matmul"
    assert spec.vars == [Variable("m", 0, 5)]
    assert spec.var_names == ["m", "core_id"]
    assert (spec.globals, spec.outs, spec.ins, spec.buf_count) == ([0, 1], [0], [1], 4)
    assert (numbers(spec.global_size), spec.local_size) == ((7, 1, 1), None)


@pytest.mark.row("S270")
def test_default_sizes_and_empty_fields_of_metadata_say_nothing() -> None:
    given = ProgramMetadata(name="named", globals=(1, 2))
    spec = ProgramSpec.from_uop(program(busy_kernel(), LINEAR, SOURCE, arg=given))
    assert numbers(spec.global_size) == (4, 1, 1)
    assert spec.var_names == ["core_id", "n"]
    assert (spec.globals, spec.outs, spec.ins, spec.buf_count) == ([1, 2], [1], [2, 5], 2)


@pytest.mark.row("S270")
def test_programs_with_other_metadata_have_other_hashes() -> None:
    def hash_of(size: int) -> str:
        given = ProgramMetadata(global_size=concrete_size((size, 1, 1)))
        return program(busy_kernel(), LINEAR, SOURCE, arg=given).content_hash

    assert hash_of(2) == hash_of(2)
    assert hash_of(2) != hash_of(3)


@pytest.mark.row("S271")
@pytest.mark.parametrize(
    ("global_size", "local_size", "expected"),
    [
        ((1, 1, 1), (1, 1, 1), False),
        ((2, 1, 1), (1, 1, 1), True),
        ((1, 1, 2), (1, 1, 1), True),
        ((1, 1, 1), (1, 2, 1), True),
        ((1, 1, 1), None, True),
    ],
)
def test_launch_dims_are_non_default_if_any_axis_is_not_one_or_local_is_missing(
    global_size: tuple[int, int, int], local_size: tuple[int, int, int] | None, expected: bool
) -> None:
    spec = spec_of(kernel(ONE))
    local = None if local_size is None else concrete_size(local_size)
    spec.set_launch_dims(concrete_size(global_size), local)
    assert spec.has_launch_dims is expected


@pytest.mark.row("S271")
def test_an_axis_that_only_can_be_one_is_not_the_constant_one() -> None:
    assert not is_default((variable("n", 1, 1), ONE, ONE), default_size())
    assert not is_default((const(True, dt.bool_), ONE, ONE), default_size())
    assert is_default((const(1, dt.uint32), ONE, ONE), default_size())


BODY = kernel(ONE)
WRONG: Mapping[str, tuple[UOp, str]] = {
    "not a program": (BODY, "expected PROGRAM op, got SINK"),
    "sink": (program(ONE, LINEAR, SOURCE), "PROGRAM sink stage must be SINK op, got CONST"),
    "device": (
        make(O.PROGRAM, dt.void, (BODY, ONE, LINEAR, SOURCE)),
        "PROGRAM device stage must be DEVICE op, got CONST",
    ),
    "no linear": (program(BODY), "PROGRAM missing LINEAR stage"),
    "linear": (program(BODY, SOURCE), "PROGRAM linear stage must be LINEAR op, got SOURCE"),
    "no source": (program(BODY, LINEAR), "PROGRAM missing SOURCE stage"),
    "source": (
        program(BODY, LINEAR, BINARY),
        "PROGRAM source stage must be SOURCE op, got BINARY",
    ),
    "binary": (
        program(BODY, LINEAR, SOURCE, SOURCE),
        "PROGRAM binary stage must be BINARY op, got SOURCE",
    ),
    "argument": (
        program(BODY, LINEAR, SOURCE, arg=3),
        "PROGRAM argument must be a name or ProgramMetadata, got 3",
    ),
}


@pytest.mark.row("S272")
@pytest.mark.parametrize("case", WRONG)
def test_a_malformed_program_is_refused(case: str) -> None:
    node, text = WRONG[case]
    with pytest.raises(GraphError) as caught:
        ProgramSpec.from_uop(node)
    assert str(caught.value) == text


@pytest.mark.row("S273")
def test_a_variable_has_a_unique_name_and_inclusive_bounds() -> None:
    n = Variable("n", 1, 8)
    assert (n.name, n.min, n.max) == ("n", 1, 8)
    n.check(1)
    n.check(8)
    with pytest.raises(BoundsError, match=r"variable n=0 is outside bounds \[1, 8\]"):
        n.check(0)
    spec = spec_of(kernel(ONE))
    spec.add_var(n)
    with pytest.raises(VariableError, match="kernel k already has a variable n"):
        spec.add_var(Variable("n", 1, 9))


@pytest.mark.row("S273")
def test_one_name_with_two_bounds_in_a_kernel_is_refused() -> None:
    text = r"one kernel uses variable n with bounds \[1, 8\] and \[1, 9\]"
    with pytest.raises(VariableError, match=text):
        derive_metadata(kernel(variable("n", 1, 8), variable("n", 1, 9)))


@pytest.mark.row("Q6")
def test_ins_holds_every_slot_that_is_read_also_in_place_ones() -> None:
    in_place = store(place(param(0)), binary(O.ADD, load(place(param(0))), load(place(param(1)))))
    found = derive_metadata(sink(in_place, store(place(param(2)))))
    assert found.outs == (0, 2)
    assert found.ins == (0, 1)
