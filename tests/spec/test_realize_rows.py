"""S93-S118, Q7, Q16: realize and prepare, one tensor or many."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import (
    BatchOutputMismatch,
    ConfigError,
    EmptySchedule,
    ShapeError,
    VariableError,
)
from svod.base.knobs import knobs
from svod.base.timing import spans
from svod.device.registry import get_device
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import const, make, variable
from svod.ir.sweep import sweep
from svod.runtime import MemoryMode, PreparedCopy, PreparedKernel
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.schedule.schedule import clear_schedule_cache, schedules
from svod.tensor.core.tensor_core import wrap
from svod.tensor.core.tensor_registry import buffer_node, buffer_of, live_tensors
from svod.tensor.recording import realize as realizing
from svod.tensor.recording.realize import prepare, prepare_batch, realize, realize_batch


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scaled(tensor, name, lo, hi, value):
    """The tensor times a bound variable."""
    bound = variable(name, lo, hi).bind(value)
    return wrap(B.binary(O.MUL, tensor.uop, B.cast(bound, dt.float32)), "CPU")


@pytest.fixture
def runs(monkeypatch):
    """How often plans were executed."""
    found = []
    execute = realizing.ExecutionPlan.execute
    monkeypatch.setattr(
        realizing.ExecutionPlan, "execute", lambda self: (found.append(self), execute(self))[1]
    )
    return found


# -- realize -----------------------------------------------------------------------------------


@pytest.mark.row("S93")
def test_the_stages_by_name():
    clear_schedule_cache()
    start = max([s.end_ns for s in spans()], default=0)
    x = Tensor(numbers(4, 5, seed=93))
    (x.softmax(1) * 1.93).realize()
    names = [s.name for s in spans() if s.start_ns > start]
    assert names.index("schedule") < names.index("rangeify") < names.index("build plan")


@pytest.mark.row("S94")
def test_a_realised_tensor_only_gets_its_buffer(runs):
    x = Tensor(numbers(3))
    before = x.uop
    assert x.realize() is x
    lazy = wrap(B.reshape(B.new_buffer(4, dt.float32, "CPU"), (2, 2)), "CPU")
    assert not lazy.is_realized
    lazy.realize()
    assert lazy.is_realized and buffer_of(lazy.uop).size == 4
    assert x.uop is before and runs == []


@pytest.mark.row("S95")
def test_constants_get_a_real_buffer():
    for tensor in (svod.full((2, 3), 7.0), svod.zeros(4), wrap(const(2.5, dt.float32), None)):
        expected = tensor.shape
        tensor.realize()
        assert buffer_node(tensor.uop) is not None
        assert tensor.shape == expected and buffer_of(tensor.uop).is_allocated
    assert svod.full((2, 3), 7.0).realize().tolist() == [[7.0] * 3] * 2


@pytest.mark.row("S96")
def test_no_elements_no_schedule(runs):
    before = schedules.info()
    x = Tensor(numbers(0, 3)) + 1
    x.realize()
    assert x.is_realized and x.shape == (0, 3) and x.numpy().shape == (0, 3)
    assert runs == [] and schedules.info() == before


@pytest.mark.row("S97")
def test_inputs_survive_the_cleanup():
    a, b = Tensor(numbers(8)), Tensor(numbers(8, seed=1))
    held = [buffer_of(a.uop), buffer_of(b.uop)]
    total = (a * b + a).exp().realize()
    sweep()
    assert [buffer_of(a.uop), buffer_of(b.uop)] == held
    assert np.array_equal(a.numpy(), numbers(8)) and total.is_realized
    assert np.allclose((a + b).numpy(), numbers(8) + numbers(8, seed=1))


@pytest.mark.row("S98")
def test_preparation_and_execution_are_told_apart(capfd):
    with knobs.scope(DEBUG=1):
        (Tensor(numbers(5)) * 3).realize()
    text = capfd.readouterr().err
    assert "prepared in" in text and "ran in" in text and " ms" in text


@pytest.mark.row("S99")
def test_every_live_tensor_follows():
    x = Tensor(numbers(6))
    y = x * 2
    above = y + 1
    beside = x + 5
    untouched = beside.uop
    again = wrap(y.uop, "CPU")
    y.realize()
    assert buffer_of(again.uop) is buffer_of(y.uop) and again.is_realized
    assert above.uop.src[0] is y.uop or y.uop in above.uop.toposort()
    assert beside.uop is untouched, "what does not contain it stays as it was"
    assert np.allclose(above.numpy(), numbers(6) * 2 + 1)


@pytest.mark.row("S99")
def test_an_identical_replacement_does_nothing():
    from svod.tensor.core.tensor_registry import replace_nodes

    y = Tensor(numbers(3)) * 2
    before = y.uop
    replace_nodes({y.uop: y.uop})
    assert y.uop is before


@pytest.mark.row("S100")
def test_cleanup_comes_after_the_substitution(monkeypatch):
    from svod.tensor.core import tensor_registry

    alive = []
    plans = []
    replace = tensor_registry.replace_nodes
    made = realizing.prepare_plan

    def watching(*args):
        plan = made(*args)
        plans.append(__import__("weakref").ref(plan))
        return plan

    def during(*args):
        gc.collect()
        alive.append(plans[-1]() is not None)
        replace(*args)

    monkeypatch.setattr(realizing, "prepare_plan", watching)
    monkeypatch.setattr(tensor_registry, "replace_nodes", during)
    x = Tensor(numbers(64, 64))
    ((x @ x).softmax(1) @ x).sum().realize()
    gc.collect()
    assert alive == [True], "intermediates are still there while tensors are rewired"
    assert plans[0]() is None, "and gone afterwards"


@pytest.mark.row("S101")
def test_realize_with_a_configuration():
    x = Tensor(numbers(16, 16))
    plain = PrepareConfig(OptimizerConfig(Strategy.NONE))
    quick = x.exp().realize()
    slow = wrap(x.exp().uop, "CPU").realize(config=plain)
    assert np.allclose(quick.numpy(), slow.numpy(), rtol=1e-6)
    assert np.allclose((x * 3).realize(config="none").numpy(), numbers(16, 16) * 3)
    with pytest.raises(ConfigError, match="there is no optimizer strategy 'fast'"):
        (x * 4).realize(config="fast")
    with pytest.raises(ConfigError, match="config takes a PrepareConfig, got int"):
        (x * 4).realize(config=7)


@pytest.mark.row("S102")
def test_the_result_is_a_buffer_under_the_old_shape():
    x = Tensor(numbers(4, 6), device="CPU:1")
    y = (x + 1).permute(1, 0).realize()
    base = buffer_node(y.uop)
    assert base.op == O.BUFFER and base.arg.size == 24 and base.src[-1].arg == "CPU:1"
    assert y.uop.op == O.RESHAPE and y.shape == (6, 4) and y.device == "CPU:1"
    assert base.arg.buffer is buffer_of(y.uop) and base.arg.buffer.nbytes == 24 * 4


@pytest.mark.row("S102")
def test_a_run_time_shape_stays():
    n = svod.Variable("n", 1, 8)
    x = Tensor(numbers(8, 3))
    y = (x[: n.bind(5)] * 2).realize()
    assert buffer_node(y.uop).arg.size == 24, "memory for the largest value"
    assert np.allclose(y.numpy(), numbers(8, 3)[:5] * 2)


@pytest.mark.row("S103")
def test_an_output_that_does_not_fit_is_a_shape_error():
    """Every tensor of ours has a known shape, so only the size of an output can be wrong."""
    x = Tensor(numbers(4))
    plan = (x + 1).prepare()
    other = Tensor(numbers(2, 3)) * 2
    with pytest.raises(ShapeError, match="4 elements is no tensor of \\(2, 3\\)"):
        realizing.wire([other], plan.output_buffers())
    with pytest.raises(ShapeError):
        (x + 1).realize().reshape(3, 3)


# -- prepare -----------------------------------------------------------------------------------


@pytest.mark.row("S104")
def test_prepare_takes_its_configuration_from_the_environment(monkeypatch):
    monkeypatch.setenv("SVOD_MEMORY_PLANNER", "off")
    monkeypatch.setenv("SVOD_OPTIMIZE", "0")
    monkeypatch.setenv("SVOD_DISABLE_SCHEDULE_CACHE", "1")
    knobs.refresh()
    try:
        config = PrepareConfig.from_environment()
        assert config.optimizer.strategy is Strategy.NONE and config.disable_schedule_cache
        assert MemoryMode.from_environment() is MemoryMode.DISABLED
        before = schedules.info()
        plan = (Tensor(numbers(70, 70)) @ Tensor(numbers(70, 70))).softmax(1).prepare()
        assert schedules.info() == before and plan.memory.mode is MemoryMode.DISABLED
    finally:
        monkeypatch.undo()
        knobs.refresh()
    assert PrepareConfig.from_environment() == PrepareConfig()


@pytest.mark.row("S104")
def test_errors_of_preparing_are_typed():
    with pytest.raises(EmptySchedule):
        Tensor(numbers(3)).prepare()
    huge = B.full((1 << 40, 1 << 12), 1.0, dt.float32)
    with pytest.raises(svod.errors.SvodError):
        wrap(huge, "CPU").prepare()


@pytest.mark.row("S105")
def test_prepare_does_all_one_time_work(capfd):
    n = variable("n", 1, 9)
    x = Tensor(numbers(6))
    with knobs.scope(DEBUG=1):
        y = scaled(x, "n", 1, 9, 4)
        plan = y.prepare()
    assert "prepare 1 tensor: prepared in" in capfd.readouterr().err
    assert plan.num_outputs() == 1 and plan.prepared_kernels()[0].vals == [4]
    plan.execute()
    assert np.allclose(y.numpy(), numbers(6) * 4)
    plan.execute_with_vars({"n": 7})
    assert np.allclose(y.numpy(), numbers(6) * 7) and n.arg.name in plan.variables


@pytest.mark.row("S106")
def test_a_prepared_tensor_points_at_its_output_at_once():
    x = Tensor(numbers(4))
    y = x + 1
    plan = y.prepare()
    assert buffer_of(y.uop) is plan.output_buffer() and y.is_realized
    plan.execute()
    assert np.allclose(y.numpy(), numbers(4) + 1)


# -- batches -----------------------------------------------------------------------------------


@pytest.mark.row("S107")
def test_a_batch_shares_what_its_tensors_share():
    x = Tensor(numbers(32, 32))
    shared = (x @ x).contiguous()
    a, b = shared + 1, shared.sum()
    alone = len((x @ x).contiguous().prepare().prepared_kernels())
    plan = prepare_batch([a, b])
    assert len(plan.prepared_kernels()) <= alone + 2
    c, d = x * 3, (x * 3).sum()
    realize_batch([c, d], config=PrepareConfig())
    assert np.allclose(d.numpy(), c.numpy().sum(), rtol=1e-5)


@pytest.mark.row("S108")
def test_a_batch_of_nothing_does_nothing(runs):
    realize_batch([])
    svod.realize()
    assert runs == []


@pytest.mark.row("S109")
def test_a_batch_prepares_what_is_there_and_wraps_constants():
    done = wrap(B.new_buffer(3, dt.float32, "CPU"), "CPU")
    constant = svod.full((2,), 4.0)
    lazy = Tensor(numbers(2)) + 1
    realize_batch(iter([done, constant, lazy]))
    assert done.is_realized and constant.is_realized and lazy.is_realized
    assert constant.tolist() == [4.0, 4.0]


@pytest.mark.row("S110")
def test_only_pending_tensors_are_computed(runs):
    done, none = Tensor(numbers(3)), Tensor(numbers(0)) * 2
    realize([done, none])
    assert runs == [], "nothing was pending"
    lazy = Tensor(numbers(3)) * 2
    realize([done, none, lazy])
    assert len(runs) == 1 and runs[0].num_outputs() == 1


@pytest.mark.row("S111")
def test_fewer_outputs_than_tensors_is_an_error(monkeypatch):
    a, b = Tensor(numbers(3)) + 1, Tensor(numbers(3)) + 2
    monkeypatch.setattr(
        realizing.ExecutionPlan,
        "output_buffers",
        lambda self, every=realizing.ExecutionPlan.output_buffers: every(self)[:1],
    )
    with pytest.raises(BatchOutputMismatch) as error:
        realize([a, b])
    assert (error.value.expected, error.value.actual) == (2, 1)


@pytest.mark.row("S112")
def test_outputs_belong_to_tensors_by_position():
    x = Tensor(numbers(2, 3))
    tensors = [x.sum(), x + 1, Tensor(numbers(5)), x.sum(0), x * 2]
    plan = prepare(tensors)
    plan.execute()
    sizes = [b.size for b in plan.output_buffers()]
    assert sizes == [1, 6, 3, 6], "the realised one has none"
    assert np.allclose(tensors[3].numpy(), numbers(2, 3).sum(0), atol=1e-6)
    assert np.allclose(tensors[4].numpy(), numbers(2, 3) * 2)


@pytest.mark.row("S113")
def test_one_replacement_for_a_whole_batch(monkeypatch):
    from svod.tensor.core import tensor_registry

    seen = []
    replace = tensor_registry.replace_nodes
    watched = lambda m, o: (seen.append(len(m)), replace(m, o))  # noqa: E731
    monkeypatch.setattr(tensor_registry, "replace_nodes", watched)
    x = Tensor(numbers(4))
    a, b, c = x + 1, x * 2, x - 3
    user = a * b
    realize([a, b, c])
    assert seen == [3]
    assert np.allclose(user.numpy(), (numbers(4) + 1) * numbers(4) * 2)
    assert np.allclose(x.numpy(), numbers(4)), "inputs are no intermediates"


@pytest.mark.row("S114")
def test_a_prepared_batch_is_read_after_a_run():
    x = Tensor(numbers(4, 4))
    a, b = x.exp(), x.sum(1)
    plan = prepare_batch([a, b], config=PrepareConfig())
    assert buffer_of(a.uop) is plan.output_buffer_at(0)
    plan.execute()
    assert np.allclose(a.numpy(), np.exp(numbers(4, 4)), rtol=1e-6)
    assert np.allclose(b.numpy(), numbers(4, 4).sum(1), atol=1e-6)


@pytest.mark.row("S115")
def test_nothing_to_prepare_is_an_error():
    for tensors in ([], [Tensor(numbers(3))], [Tensor(numbers(0)) + 1]):
        with pytest.raises(EmptySchedule):
            prepare_batch(tensors)


@pytest.mark.row("S116")
def test_wiring_stops_at_the_last_output():
    x = Tensor(numbers(4))
    plan = (x + 1).prepare()
    first, second = Tensor(numbers(4)) * 5, Tensor(numbers(4)) * 6
    lazy = second.uop
    realizing.wire([first, second], plan.output_buffers())
    assert buffer_of(first.uop) is plan.output_buffer() and second.uop is lazy


# -- variables ---------------------------------------------------------------------------------


@pytest.mark.row("S117")
def test_bound_variables_are_values_not_loops():
    x = Tensor(numbers(4))
    plan = scaled(x, "n", 1, 100, 12).prepare()
    assert len(plan.prepared_ops()) == 1 and plan.prepared_kernels()[0].vals == [12]
    assert plan.prepared_kernels()[0].fixedvars == {}


@pytest.mark.row("S118")
def test_two_values_of_one_variable_are_refused():
    x = Tensor(numbers(4))
    low, high = scaled(x, "n", 1, 100, 3), scaled(x, "n", 1, 100, 4)
    cases = [
        (lambda: (low + high).realize(), "bind extraction"),
        (lambda: realize([low + 0, high + 0]), "realize_batch input collection"),
        (lambda: prepare([low + 0, high + 0]), "prepare_batch input collection"),
    ]
    for run, context in cases:
        with pytest.raises(VariableError) as error:
            run()
        text = str(error.value)
        assert "variable n" in text and "3 != 4" in text and context in text
    with pytest.raises(VariableError, match="schedule cache normalization"):
        from svod.schedule.normalize import normalization

        normalization(make(O.SINK, dt.void, (low.uop, high.uop)))


# -- traps -------------------------------------------------------------------------------------


@pytest.mark.row("Q7")
def test_realize_wires_its_output_once(monkeypatch):
    wired = []
    wire = realizing.wire
    monkeypatch.setattr(realizing, "wire", lambda *args: (wired.append(args), wire(*args))[1])
    (Tensor(numbers(3)) + 7).realize()
    assert len(wired) == 1


@pytest.mark.row("Q16")
def test_inputs_and_outputs_have_names():
    x, w = Tensor(numbers(2, 3)), Tensor(numbers(3, 4, seed=1))
    plan = prepare([x @ w], inputs={"x": x, "w": w}, outputs=["y"])
    assert sorted(plan.inputs) == ["w", "x"] and list(plan.outputs) == ["y"]
    other = numbers(2, 3, seed=2)
    assert np.allclose(plan(x=other), other @ numbers(3, 4, seed=1), atol=1e-5)
    assert {p.name: p.shape for p in plan.ports}["x"] == (2, 3)


@pytest.mark.row("Q16")
def test_unnamed_inputs_are_numbered_by_creation():
    a, b, c = (Tensor(numbers(3, seed=s)) for s in range(3))
    plan = prepare([c + a * b], inputs={"middle": b})
    assert list(plan.inputs) == ["input0", "middle", "input1"]
    assert plan.inputs["input0"] is buffer_of(a.uop)
    assert plan.inputs["input1"] is buffer_of(c.uop) and list(plan.outputs) == ["output0"]


@pytest.mark.row("Q16")
def test_input_tensors_stay_wired_to_the_plan():
    x = Tensor(numbers(3))
    y = x * 2
    plan = y.prepare()
    buffer_of(x.uop).copyin(np.array([1, 2, 3], np.float32))
    plan.execute()
    assert y.tolist() == [2, 4, 6]
    assert plan.buffer(buffer_node(x.uop).sn) is buffer_of(x.uop)


@pytest.mark.row("Q16")
def test_names_that_make_no_sense_are_refused():
    x, other = Tensor(numbers(3)), Tensor(numbers(3, seed=1))
    with pytest.raises(ConfigError, match="do not depend on the input 'z'"):
        prepare([x + 1], inputs={"z": other})
    with pytest.raises(ConfigError, match="'a' and 'b' are the same tensor"):
        prepare([x + 2], inputs={"a": x, "b": x})
    with pytest.raises(ConfigError, match="1 outputs need as many names"):
        prepare([x + 3], outputs=["a", "b"])


def test_inputs_without_elements_are_inputs_of_results_that_read_nothing():
    x, y = Tensor(np.zeros((3, 0), np.float32)), Tensor(np.zeros((0, 4), np.float32))
    bias = Tensor(numbers(4))
    plan = prepare([x @ y + bias], inputs={"x": x, "y": y, "bias": bias})
    assert list(plan.inputs) == ["bias", "x", "y"]
    given = {"x": np.zeros((3, 0), np.float32), "y": np.zeros((0, 4), np.float32)}
    other = numbers(4, seed=1)
    np.testing.assert_array_equal(plan(**given, bias=other), np.stack([other] * 3))
    with pytest.raises(ShapeError, match="'x'"):
        plan(**given | {"x": np.zeros((3, 1), np.float32)}, bias=other)


def test_copies_between_two_cpu_devices_are_copies():
    x = Tensor(numbers(6))
    plan = ((x + 1).to("CPU:1") * 2).prepare()
    kinds = [type(op) for op in plan.prepared_ops()]
    assert kinds == [PreparedKernel, PreparedCopy, PreparedKernel]
    assert [k.device for k in plan.prepared_kernels()] == ["CPU", "CPU:1"]
    plan.execute()
    assert np.allclose(plan.output_buffer().copyout(), (numbers(6) + 1) * 2)


def test_registry_entries_leave_with_their_tensors():
    before = len(live_tensors())
    for _ in range(50):
        (Tensor(numbers(4)) * 2).realize()
    gc.collect()
    assert len(live_tensors()) <= before + 1
    assert get_device("CPU").allocator.counters.live >= 0
