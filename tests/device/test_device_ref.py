"""REF runs kernel bodies with NumPy; NULL runs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from svod.base.errors import DeviceError, DTypeError, ExecutionError, GraphError, ShapeError
from svod.device.buffer import Buffer
from svod.device.launch import BoundsError
from svod.device.null import NullProgram, load_null
from svod.device.ref import RefProgram, argument_slots
from svod.device.registry import get_device
from svod.device.spec import CompiledSpec
from svod.dtype import types as dt
from svod.ir import build
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.node import UOp, const, make, variable


def param(slot: int, shape: tuple[int, ...], dtype: dt.DType = dt.float32) -> UOp:
    return make(O.PARAM, dtype, (), ParamArg(slot, shape))


def store(target: UOp, value: UOp) -> UOp:
    return make(O.STORE, dt.void, (target, value))


def sink(*stores: UOp) -> UOp:
    return make(O.SINK, dt.void, stores)


def zeros(size: int) -> Buffer:
    return Buffer.from_numpy(np.zeros(size, np.float32))


def counting(size: int) -> Buffer:
    return Buffer.from_numpy(np.arange(size, dtype=np.float32))


def test_a_body_is_evaluated_into_its_output() -> None:
    total = build.reduce(build.binary(O.MUL, param(1, (2, 3)), param(2, (2, 3))), O.ADD, (1,))
    program = RefProgram(sink(store(param(0, (2, 1)), total)), "dot")
    buffers = [zeros(2), counting(6), counting(6)]
    program.run_buffers(buffers)
    assert buffers[0].numpy().tolist() == [0 + 1 + 4, 9 + 16 + 25]
    assert (program.name, program.outs, program.ins) == ("dot", (0,), (1, 2))


def test_a_program_is_called_with_addresses() -> None:
    body = sink(store(param(3, (4,)), build.unary(O.NEG, param(1, (4,)))))
    program = RefProgram(body)
    out, source = zeros(4), counting(4)
    assert program.globals == (1, 3)
    program([source.address, out.address], [])
    assert out.numpy().tolist() == [0, -1, -2, -3]


def test_a_view_of_the_output_is_written_and_the_rest_is_kept() -> None:
    whole = param(0, (4, 6))
    window = build.permute(build.shrink(whole, ((1, 3), (2, 5))), (1, 0))
    buffers = [counting(24), zeros(6)]
    expected = buffers[0].copyout().reshape(4, 6)
    expected[1:3, 2:5] = 100
    RefProgram(sink(store(window, const(100.0, dt.float32)))).run_buffers(buffers)
    assert buffers[0].numpy().reshape(4, 6).tolist() == expected.tolist()


def test_a_reshape_of_a_slice_is_written_in_place() -> None:
    window = build.reshape(build.shrink(param(0, (3, 4)), ((0, 3), (1, 3))), (6,))
    buffers = [zeros(12), counting(6)]
    RefProgram(sink(store(window, param(1, (6,))))).run_buffers(buffers)
    assert buffers[0].numpy().reshape(3, 4).tolist() == [[0, 0, 1, 0], [0, 2, 3, 0], [0, 4, 5, 0]]


def test_a_flipped_output_is_written_backwards() -> None:
    buffers = [zeros(3), counting(3)]
    RefProgram(sink(store(build.flip(param(0, (3,)), (0,)), param(1, (3,))))).run_buffers(buffers)
    assert buffers[0].numpy().tolist() == [2, 1, 0]


def test_all_values_are_computed_before_anything_is_written() -> None:
    left, right = param(0, (3,)), param(1, (3,))
    body = sink(store(left, right), store(right, left))
    buffers = [counting(3), Buffer.from_numpy(np.full(3, 7, np.float32))]
    RefProgram(body).run_buffers(buffers)
    assert buffers[0].numpy().tolist() == [7, 7, 7]
    assert buffers[1].numpy().tolist() == [0, 1, 2]
    assert argument_slots(body) == ((0, 1), (0, 1), (0, 1))


def test_an_overlapping_move_inside_one_buffer() -> None:
    whole = param(0, (5,))
    moved = store(build.shrink(whole, ((1, 5),)), build.shrink(whole, ((0, 4),)))
    buffers = [counting(5)]
    RefProgram(sink(moved)).run_buffers(buffers)
    assert buffers[0].numpy().tolist() == [0, 0, 1, 2, 3]


def test_variables_come_in_the_order_of_their_names() -> None:
    m, n = variable("m", 0, 9), variable("n", 0, 9)
    difference = make(O.CAST, dt.float32, (make(O.SUB, dt.index, (n, m)),))
    body = sink(store(param(0, (2,)), difference))
    program = RefProgram(body)
    assert program.var_names == ("m", "n")
    buffers = [zeros(2)]
    program.run_buffers(buffers, [2, 9])
    assert buffers[0].numpy().tolist() == [7, 7]
    with pytest.raises(ExecutionError, match="has 2 var names but only 1 values"):
        program.run_buffers(buffers, [1])
    with pytest.raises(BoundsError, match=r"variable n=10 is outside bounds \[0, 9\]"):
        program.run_buffers(buffers, [1, 10])


def test_what_does_not_fit_is_refused() -> None:
    program = RefProgram(sink(store(param(0, (4,)), param(1, (4,)))))
    with pytest.raises(ExecutionError, match="has no buffer for slot 1: got 1"):
        program.run_buffers([zeros(4)])
    with pytest.raises(ExecutionError, match="takes 2 buffers, got 0"):
        program([], [])
    with pytest.raises(ShapeError, match="does not fit argument 1"):
        program.run_buffers([zeros(4), zeros(3)])
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only"):
        program.run_buffers([Buffer.from_numpy(fixed), zeros(4)])
    program.run_buffers([zeros(4), Buffer.from_numpy(fixed)])


def test_malformed_bodies_are_refused() -> None:
    value = param(1, (4,))
    with pytest.raises(GraphError, match="a REF kernel is a SINK of STOREs, got PARAM"):
        RefProgram(value)
    with pytest.raises(GraphError, match="a REF kernel is a SINK of STOREs, got PARAM in it"):
        RefProgram(sink(value))
    with pytest.raises(GraphError, match="a STORE cannot write through PAD"):
        RefProgram(sink(store(build.pad(param(0, (2,)), ((1, 1),)), value)))
    with pytest.raises(ShapeError, match=r"a value of shape \(4,\) into \(3,\)"):
        RefProgram(sink(store(param(0, (3,)), value)))
    with pytest.raises(DTypeError, match="a value of float32 into float64"):
        RefProgram(sink(store(param(0, (4,), dt.float64), value)))


def test_the_ref_device_renders_compiles_and_loads() -> None:
    device = get_device("REF")
    body = sink(store(param(0, (4,)), build.unary(O.SQRT, param(1, (4,)))))
    spec = device.renderer.render(body, "roots")
    assert "SQRT" in spec.src
    assert (spec.globals, spec.outs, spec.ins, spec.buf_count) == ([0, 1], [0], [1], 2)
    program = device.runtime(device.compiler.compile(spec))
    out = Buffer.new("REF", 4, dt.float32)
    source = Buffer.from_numpy(np.array([0, 1, 4, 9], np.float32), device="REF")
    program([out.address, source.address], [])
    assert program.name == "roots"
    assert out.numpy().tolist() == [0, 1, 2, 3]


def test_null_holds_and_runs_nothing() -> None:
    buffer = Buffer.new("NULL", 1 << 40, dt.float32)  # more than any machine has
    other = Buffer.new("NULL", 4, dt.float32)
    assert buffer.address != other.address
    other.copyin(np.ones(4, np.float32))
    assert other.copyout().tolist() == [0, 0, 0, 0]
    with pytest.raises(DeviceError, match=r"memory of NULL is not visible to the host"):
        other.numpy()
    program = load_null(CompiledSpec.from_source("idle", "", sink(), 0))
    assert isinstance(program, NullProgram)
    assert program.name == "idle"
    program([other.address], [], (1, 1, 1), None)


def test_copies_to_and_from_null() -> None:
    null = Buffer.new("NULL", 3, dt.float32)
    target = Buffer.from_numpy(np.ones(3, np.float32))
    null.copy_from(target)
    target.copy_from(null)
    assert target.numpy().tolist() == [0, 0, 0]
    null.copy_from(Buffer.new("NULL", 3, dt.float32))


def test_null_counts_the_memory_a_plan_would_need() -> None:
    allocator = get_device("NULL:5").allocator
    one = Buffer.new("NULL:5", 1000, dt.float32).allocate()
    two = Buffer.new("NULL:5", 1000, dt.float32).allocate()
    del one
    assert (allocator.counters.live, allocator.counters.peak) == (4032, 8064)
    assert allocator.counters.pooled == 0
    assert two.is_allocated
