"""S119-S137, T16, Q11, Q14: the schedule cache, its normalisation and its restoration."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import VariableError
from svod.base.knobs import knobs
from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import BufferArg, BufferRef, ParamArg, ViewArg
from svod.ir.node import const, make, variable
from svod.runtime.config import PrepareConfig
from svod.schedule import schedule as scheduling
from svod.schedule.cache import Cache, cache_statistics
from svod.schedule.normalize import (
    Normalization,
    bound_values,
    is_placeholder,
    normalization,
    restore,
    restore_variables,
)
from svod.schedule.preschedule import restored
from svod.schedule.schedule import clear_schedule_cache, pre_schedule, schedules
from svod.tensor.core.tensor_core import wrap
from svod.tensor.recording.realize import compiler_identity, input_buffers


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sink(*roots):
    return make(O.SINK, dt.void, tuple(B.contiguous(r) for r in roots))


def buffer(size=4, device="CPU", dtype=dt.float32):
    return B.new_buffer(size, dtype, device)


def timesvar(node, bound):
    return B.binary(O.MUL, node, B.cast(bound, dt.float32))


def placeholders(root):
    return [n for n in root.toposort() if is_placeholder(n)]


@pytest.fixture
def clean():
    clear_schedule_cache()
    yield schedules
    clear_schedule_cache()


def change(before):
    after = schedules.info()
    return after.hits - before.hits, after.misses - before.misses


# -- the cache -------------------------------------------------------------------------------


@pytest.mark.row("S119")
def test_the_cache_can_be_turned_off_per_call(clean):
    x = Tensor(numbers(4))
    before = schedules.info()
    (x * 119).realize(config=PrepareConfig(disable_schedule_cache=True))
    assert change(before) == (0, 0) and len(schedules) == 0
    (x * 119).realize()
    assert change(before) == (0, 1) and len(schedules) == 1


@pytest.mark.row("S119")
def test_the_environment_turns_it_off_for_the_process():
    code = (
        "import svod; from svod.schedule.schedule import schedules\n"
        "(svod.Tensor([1.0]) + 1).realize(); (svod.Tensor([1.0]) + 1).realize()\n"
        "print(schedules.info()[:3])"
    )
    for value, expected in (("1", "(0, 0, 0)"), ("0", "(1, 1, 1)")):
        environment = {**os.environ, "SVOD_DISABLE_SCHEDULE_CACHE": value}
        found = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert found.stdout.strip() == expected, found.stderr


@pytest.mark.row("S120")
def test_the_key_is_structure_and_compiler(clean):
    before = schedules.info()
    for seed in range(3):
        (Tensor(numbers(5, seed=seed)) * 120).realize()
    assert change(before) == (1, 1), "other data is the same schedule, and then the same plan"
    (Tensor(numbers(6)) * 120).realize()
    assert change(before) == (1, 2), "another shape is not"
    graph = normalization(sink(B.unary(O.NEG, buffer())))
    one = pre_schedule(graph, "CPU", compiler="one")
    assert pre_schedule(graph, "CPU", compiler="one") is one
    assert pre_schedule(graph, "CPU", compiler="two") is not one
    assert (
        graph.sink.content_hash == normalization(sink(B.unary(O.NEG, buffer()))).sink.content_hash
    )


@pytest.mark.row("Q11", "S120")
def test_caches_are_bounded_and_counted(monkeypatch, clean):
    monkeypatch.setattr(scheduling, "CACHE_ENTRIES", 3)
    for size in range(1, 8):
        (Tensor(numbers(size)) * 11).realize()
        assert len(schedules) <= 3
    found = cache_statistics()
    assert {"schedules", "kernels", "programs"} <= set(found)
    for name, info in found.items():
        assert 0 <= info.size <= info.limit, name
        assert info.hits >= 0 and info.misses >= info.size, name
    (Tensor(numbers(7)) * 11).realize()
    assert cache_statistics()["schedules"].hits == found["schedules"].hits + 1


@pytest.mark.row("Q11")
def test_first_in_first_out():
    cache: Cache[int, str] = Cache("a test", lambda: 2)
    assert [cache.insert(n, str(n)) for n in (1, 2)] == ["1", "2"]
    assert cache.insert(1, "other") == "1", "the first value stays"
    cache.insert(3, "3")
    assert cache.get(1) is None and cache.get(2) == "2" and cache.get(3) == "3"
    assert cache.info() == (2, 1, 2, 2)


# -- normalisation ---------------------------------------------------------------------------


@pytest.mark.row("S121")
def test_buffers_become_numbered_placeholders():
    first, second = buffer(4), buffer(4, "CPU:1")
    value = B.binary(O.ADD, B.binary(O.MUL, second, second), first)
    found = normalization(sink(value))
    slots = {p.arg.slot: p for p in placeholders(found.sink)}
    assert found.parameters == (second, first), "in the order of first visits"
    assert slots[0].arg == ParamArg(0, (4,)) and slots[0].dtype is dt.float32
    assert slots[0].src[0].arg == "CPU:1" and slots[1].src[0].arg == "CPU"
    assert not any(n.op == O.BUFFER for n in found.sink.toposort())


@pytest.mark.row("S121")
def test_slots_depend_on_structure_alone():
    def graph(swap):
        pair = [buffer(), buffer()]
        a, b = pair[::-1] if swap else pair  # which of the two is older must not matter
        return normalization(sink(B.binary(O.SUB, a, B.unary(O.NEG, b)))).sink

    assert graph(False) is graph(True)


@pytest.mark.row("S122", "Q14")
def test_views_become_placeholders_on_their_own_device():
    base = buffer(16, "CPU:1")
    view = make(O.BUFFER_VIEW, dt.float32, (base,), ViewArg(4, 8))
    found = normalization(sink(B.unary(O.NEG, view)))
    (placeholder,) = placeholders(found.sink)
    assert placeholder.src[0].arg == "CPU:1" and placeholder.arg.shape == (4,)
    assert found.parameters == (view,) and found.buffers == (base,)


@pytest.mark.row("S122")
def test_a_view_is_read_where_it_lies():
    whole = Buffer.from_numpy(np.arange(16, dtype=np.float32))
    base = B.new_buffer(16, dt.float32, "CPU", whole)
    view = make(O.BUFFER_VIEW, dt.float32, (base,), ViewArg(4, 8))
    assert (wrap(view, "CPU") * 10).tolist() == [80, 90, 100, 110]


@pytest.mark.row("S123")
def test_bound_variables_become_placeholders_and_values():
    n = variable("n", 1, 9)
    found = normalization(sink(timesvar(buffer(), n.bind(4))))
    marks = [p for p in placeholders(found.sink) if p.arg.shape == (0,)]
    assert len(marks) == 1 and marks[0].src[0].op == O.DEVICE
    assert found.values == {"n": 4}
    assert found.parameters[marks[0].arg.slot] is n.bind(4)
    other = normalization(sink(timesvar(buffer(), n.bind(7))))
    assert other.sink is found.sink and other.values == {"n": 7}
    renamed = normalization(sink(timesvar(buffer(), variable("m", 1, 9).bind(4))))
    assert renamed.sink is not found.sink, "another variable is another schedule"


@pytest.mark.row("S123")
def test_values_in_shapes_are_taken_out_as_well():
    x = buffer(8)
    n = variable("n", 1, 8)

    def part(value):
        # BIND inside the argument, also below arithmetic
        inner = make(O.SHRINK, dt.float32, (x,), ((0, n.bind(value)),))
        return make(O.PAD, dt.float32, (inner,), ((0, 8 - n.bind(value)),))

    one, two = normalization(sink(part(3))), normalization(sink(part(5)))
    assert one.sink is two.sink
    assert one.values == {"n": 3} and two.values == {"n": 5}


@pytest.mark.row("S124")
def test_placeholders_and_kernel_arguments_stay_apart():
    schedule = pre_schedule(normalization(sink(B.unary(O.NEG, buffer()))), "CPU", cached=False)
    (item,) = schedule.items
    assert [is_placeholder(a) for a in item.arguments] == [False, True]
    inside = [n for n in item.body.toposort() if n.op == O.PARAM]
    assert inside and not any(is_placeholder(n) for n in inside)


@pytest.mark.row("S125")
def test_a_conflict_is_reported_once_with_both_values():
    n = variable("n", 1, 9)
    x = buffer()
    values = [timesvar(x, n.bind(v)) for v in (2, 5, 8)]
    with pytest.raises(VariableError) as error:
        normalization(sink(*values))
    assert str(error.value).count("bind mismatch") == 1
    assert "2 != 5" in str(error.value) and "schedule cache normalization" in str(error.value)
    shape = make(O.SHRINK, dt.float32, (x,), ((0, variable("n", 1, 4).bind(3)),))
    with pytest.raises(VariableError, match="variable n"):
        normalization(sink(values[0], shape))


@pytest.mark.row("S117", "S125")
def test_values_by_name():
    n, m = variable("n", 1, 9), variable("m", 0, 3)
    graph = timesvar(timesvar(buffer(), n.bind(4)), m.bind(2))
    assert bound_values([graph]) == {"n": 4, "m": 2}
    with pytest.raises(VariableError, match="bind extraction"):
        bound_values([graph, timesvar(buffer(), n.bind(5))])


@pytest.mark.row("S126")
def test_standing_alone_identities_become_slots():
    one, two = (make(O.UNIQUE, dt.void, (), number) for number in (71, 72))
    root = make(O.SINK, dt.void, (B.contiguous(buffer()), two, one))
    found = normalization(root)
    slots = [n.arg for n in found.sink.src[1:]]
    assert slots == [0, 1] and found.uniques == (two, one)
    assert not any(n.op == O.UNIQUE for n in found.sink.toposort())
    other = make(O.SINK, dt.void, (B.contiguous(buffer()), make(O.UNIQUE, dt.void, (), 73), one))
    assert normalization(other).sink is found.sink


@pytest.mark.row("S127")
def test_parameter_buffers_are_sorted_and_listed_once():
    first, second, third = buffer(), buffer(), buffer(16)
    view = make(O.BUFFER_VIEW, dt.float32, (third,), ViewArg(4, 0))
    value = B.binary(O.ADD, B.binary(O.ADD, view, second), B.binary(O.ADD, first, second))
    assert normalization(sink(value, third)).buffers == (first, second, third)


# -- miss and hit ----------------------------------------------------------------------------


@pytest.mark.row("S128")
def test_scheduling_sees_variables_but_no_values_and_no_buffers():
    n = variable("n", 1, 9)
    found = normalization(sink(timesvar(buffer(), n.bind(4))))
    root = restore_variables(found)
    assert n in root.toposort() and not any(b.op == O.BIND for b in root.toposort())
    assert [p.arg.shape for p in placeholders(root)] == [(4,)], "buffers stay parametric"
    (item,) = pre_schedule(found, "CPU", cached=False).items
    assert n in item.body.toposort() and [v.name for v in item.variables] == ["n"]


@pytest.mark.row("S129")
def test_a_miss_is_scheduled_and_kept(clean):
    found = normalization(sink(B.unary(O.EXP, buffer())))
    made = pre_schedule(found, "CPU")
    assert len(made.items) == 1 and made.items[0].body.op == O.SINK
    assert len(clean) == 1 and pre_schedule(found, "CPU") is made


def two_kernels(device="CPU"):
    x = buffer(device=device)
    return x, normalization(sink(B.unary(O.NEG, B.contiguous(B.unary(O.EXP, x)))))


@pytest.mark.row("S130")
def test_restoring_attaches_this_calls_buffers():
    _, one = two_kernels()
    other, two = two_kernels()
    schedule = pre_schedule(one, "CPU")
    assert pre_schedule(two, "CPU") is schedule
    mine = restored(schedule, two)
    assert other in [a for i in mine.items for a in i.arguments]
    for old, new in zip(schedule.items, mine.items, strict=True):
        assert new.call is old.call and new.body is old.body
        assert new.dependencies == old.dependencies and new.bound_ranges == old.bound_ranges
    assert mine.invocations is schedule.invocations
    assert not any(is_placeholder(n) for i in mine.items for n in i.body.toposort())


@pytest.mark.row("S131")
def test_restore_rules():
    x, found = two_kernels()
    local = make(O.LUNIQUE, dt.void, (), 0)
    fresh = make(O.BUFFER, dt.float32, (local, B.device("CPU:1")), BufferArg(7))
    (placeholder,) = placeholders(found.sink)
    one, two, again = restore((placeholder, fresh, fresh), found)
    assert one is x and two is again
    assert two.op == O.BUFFER and two.arg.size == 7 and two.src[-1].arg == "CPU:1"
    assert restore((fresh,), found)[0] is not two, "another call, another buffer"
    unique = make(O.UNIQUE, dt.void, (), 55)
    known = Normalization(found.sink, (), (), (unique,))
    assert restore((local,), known) == (unique,)
    assert restore((local,), found)[0].op == O.UNIQUE, "an unknown one is new"
    nested = Normalization(found.sink, (x, placeholder), ())
    second = make(O.PARAM, dt.float32, placeholder.src, ParamArg(1, (4,)))
    assert restore((second,), nested) == (x,), "what stands behind a placeholder is restored too"


@pytest.mark.row("S132")
def test_all_lists_are_restored_together():
    _, found = two_kernels()
    schedule = pre_schedule(found, "CPU", cached=False)
    mine = restored(schedule, found)
    first, second = mine.items
    assert first.arguments[0] is second.arguments[1], "one local buffer stays one buffer"
    assert mine.outputs[0] is second.arguments[0]


@pytest.mark.row("S133", "T16")
def test_the_cached_schedule_is_never_changed(clean):
    _, found = two_kernels()
    schedule = pre_schedule(found, "CPU")
    before = replace(schedule)
    one, two = restored(schedule, found), restored(schedule, found)
    assert schedule == before and pre_schedule(found, "CPU") is schedule

    def nodes(s):
        roots = [*[a for i in s.items for a in i.arguments], *s.outputs]
        return [n for r in roots for n in r.toposort()]

    assert any(is_placeholder(n) for n in nodes(schedule))
    assert any(n.op == O.LUNIQUE for n in nodes(schedule))
    for mine in (one, two):
        assert not any(is_placeholder(n) or n.op == O.LUNIQUE for n in nodes(mine))
    local = {i.arguments[0] for i in one.items} & {i.arguments[0] for i in two.items}
    assert local == set(), "each call has intermediates of its own"


@pytest.mark.row("S133")
def test_two_graphs_of_one_schedule_do_not_mix():
    """Breaking the restoration on purpose (returning the cached schedule) fails here."""
    results = []
    tensors = []
    for seed in range(4):
        x, y = Tensor(numbers(3, 4, seed=seed)), Tensor(numbers(4, 3, seed=seed + 10))
        tensors.append((x @ y).softmax(1).sum(0))
        results.append(numbers(3, 4, seed=seed) @ numbers(4, 3, seed=seed + 10))
    plans = [t.prepare() for t in tensors]
    for plan in reversed(plans):
        plan.execute()
    for tensor, product in zip(tensors, results, strict=True):
        shifted = np.exp(product - product.max(1, keepdims=True))
        expected = (shifted / shifted.sum(1, keepdims=True)).sum(0)
        assert np.allclose(tensor.numpy(), expected, atol=1e-5)


@pytest.mark.row("S134", "S136")
def test_input_buffers_come_from_the_nodes():
    a, b = Tensor(numbers(4)), Tensor(numbers(4, seed=1))
    found = normalization(sink((a + b).uop))
    held = input_buffers(found.parameters)
    assert set(held) == {n.sn for n in found.parameters}
    assert held[found.parameters[0].sn] is found.parameters[0].arg.buffer
    empty = buffer(8)
    assert empty.arg.buffer is None
    held = input_buffers([empty, variable("n", 1, 2).bind(1)])
    assert list(held) == [empty.sn] and held[empty.sn] is empty.arg.buffer


@pytest.mark.row("S135")
def test_without_the_cache_the_result_is_the_same():
    x = Tensor(numbers(8, 8))
    n = svod.Variable("n", 1, 8)

    def graph():
        return (x[: n.bind(6)] @ x).softmax(1)

    cached = graph().numpy()
    again = graph().realize(config=PrepareConfig(disable_schedule_cache=True)).numpy()
    with knobs.scope(DISABLE_SCHEDULE_CACHE=1):
        third = graph().numpy()
    assert np.array_equal(cached, again) and np.array_equal(cached, third)


@pytest.mark.row("S137")
def test_the_compiler_is_of_the_first_device_that_computes(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(16))
    asked = []

    def resolver(name):
        asked.append(name)
        return _device(name)

    def _device(name):
        from svod.device.registry import get_device

        return get_device("CPU" if name.startswith("CPU") else name)

    config = PrepareConfig(device_resolver=resolver)
    disk, ref, cpu = buffer(device=f"DISK:{path}"), buffer(device="REF"), buffer(device="CPU:1")

    def identity(*nodes, default="CPU"):
        asked.clear()
        found = normalization(sink(*[B.unary(O.NEG, n) for n in nodes]))
        key = compiler_identity(found, default, config)
        return key, list(asked)

    key, seen = identity(disk, ref, cpu)
    assert seen == ["REF"] and key == "numpy", "the disk is skipped"
    cpu.arg.buffer = Buffer.new("CPU:1", 4, dt.float32)
    assert identity(disk, ref, cpu)[1] == ["CPU:1"], "memory that exists says more than a name"
    assert identity(disk)[1] == ["CPU"]
    constant = normalization(sink(B.full((4,), 1.0, dt.float32)))
    assert compiler_identity(constant, "CPU", config) == _device("CPU").compiler.cache_key()
    assert const(1.0, dt.float32) in constant.sink.toposort()


@pytest.mark.row("S131")
def test_roots_of_all_kinds_are_restored_at_once():
    x, found = two_kernels()
    (placeholder,) = placeholders(found.sink)
    computed = B.unary(O.NEG, placeholder)
    one, two = restore((placeholder, computed), found)
    assert one is x and two is B.unary(O.NEG, x)
    unknown = make(O.PARAM, dt.float32, placeholder.src, ParamArg(len(found.parameters), (4,)))
    assert restore((unknown,), found) == (unknown,), "a slot that nothing stands behind stays"
    local = make(O.LUNIQUE, dt.void, (), 0)
    fresh = make(O.BUFFER, dt.float32, (local, B.device("CPU")), BufferArg(7))
    (own,) = restore((fresh,), found)
    assert type(own.arg) is BufferRef and own.arg.buffer is None, "it can be given memory"
