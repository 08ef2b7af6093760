"""What running a prepared plan costs beyond its kernels: the launcher, the pool, binding, loading.

Kernels of no work are made from LLVM IR with the launcher's calling convention, so that the times
are those of the launcher. Fresh processes measure loading: a saved plan, and a warm object store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import svod
from svod.runtime import ExecutionPlan, ExecutionPlanBuilder, PreparedKernel
from svod.runtime.native import RecordArray, launcher, set_threads
from svod.tools.bench import models
from svod.tools.bench.bar import (
    Case,
    Line,
    at_least,
    at_most,
    failure,
    figure,
    holds,
    peer,
    percent,
    times,
    whole,
)
from svod.tools.bench.measure import alternate, empty_folder, fresh
from svod.tools.report import byte_size, duration

DEPENDENT = 1000  # kernels of 16 elements, each reading what the one before wrote
CALLS = 1000  # per timing, of what takes microseconds
SETS = 8  # of arrays that take turns in the measurement of binding
GAP = 0.010  # seconds without work, after which workers sleep
KERNELS_IR = """
define void @nothing(ptr %buffers, ptr %values, i64 %core) {
  ret void
}
define void @busy(ptr %buffers, ptr %values, i64 %core) {
entry:
  %turns = load i64, ptr %values
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = phi double [ 1.0, %entry ], [ %y, %loop ]
  %y = fmul double %x, 0x3FF0000000000001
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %done
done:
  %out = load ptr, ptr %buffers
  %at = getelementptr double, ptr %out, i64 %core
  store double %y, ptr %at
  ret void
}
"""


@cache
def kernel(name: str) -> int:
    """The address of a kernel above."""
    from svod.device.cpu.compiler import load_image, object_for

    image = load_image(object_for(KERNELS_IR))
    _images.append(image)
    return int(image.symbol(name))


_images: list[object] = []  # code lives as long as its image


def best(run: Callable[[], object], calls: int = CALLS, rounds: int = 40) -> float:
    """Seconds of one call in the quickest of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        found.append((time.perf_counter() - start) / calls)
    return min(found)


# -- one native call ------------------------------------------------------------------------------


def dependent_plan(count: int) -> ExecutionPlan:
    """A plan of so many launches of x + 1 over 16 elements, to and fro between two buffers."""
    x = svod.Tensor(np.zeros(16, np.float32))
    plan = (x + 1).prepare()
    (op,) = plan.prepared_kernels()
    target, source = op.buffer_indices
    builder = ExecutionPlanBuilder("CPU")
    for place, buffer in enumerate(plan.buffers()):
        builder.add_buffer(place, buffer)
    for number in range(count):
        places = [target, source] if number % 2 == 0 else [source, target]
        after = [number - 1] if number else []
        builder.add_kernel(
            PreparedKernel(number, op.ast, op.kernel, "CPU", places, [0], dependencies=after)
        )
    builder.set_output_buffers([target])
    builder.name_input("x", source)
    return builder.build()


def dependent() -> Iterator[Line]:
    """The cost of a kernel inside a plan."""
    plan = dependent_plan(DEPENDENT)
    seconds = best(plan.execute, 20) / DEPENDENT
    yield at_most(f"{DEPENDENT:,} dependent 16-element kernels, per kernel", seconds, 50e-9)


def one_kernel() -> Iterator[Line]:
    """The cost of one call from Python, and what it costs elsewhere."""
    plan = dependent_plan(1)
    yield at_most("execute() of one 16-element kernel", best(plan.execute), 3e-6)
    for name, make in (("jax.jit", jax_call), ("onnxruntime", onnxruntime_call)):
        title = f"one 16-element kernel, our time / {name}"
        try:
            theirs = make()
        except Exception as error:
            yield failure(title, error)
            continue
        rounds = alternate({"ours": repeated(plan.execute), "theirs": repeated(theirs)})
        note = f"{duration(rounds.median('ours') / CALLS)}, {name} "
        note += duration(rounds.median("theirs") / CALLS)
        yield at_most(title, 1 / rounds.speed("ours", "theirs"), 1.0, times, note)


def repeated(run: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            run()

    return calls


def jax_call() -> Callable[[], object]:
    jax = peer("jax")
    function = jax.jit(lambda x: x + 1)
    x = jax.numpy.zeros(16)
    function(x).block_until_ready()
    return lambda: function(x).block_until_ready()


def onnxruntime_call() -> Callable[[], object]:
    runtime, onnx = peer("onnxruntime"), peer("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    one = helper.make_tensor("one", real, [], [1.0])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        "add_one",
        [helper.make_tensor_value_info("x", real, [16])],
        [helper.make_tensor_value_info("y", real, [16])],
        [one],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString())
    feed = {"x": np.zeros(16, np.float32)}
    return lambda: session.run(None, feed)


def rebinding() -> Iterator[Line]:
    """Two inputs and an output of a plan, to other arrays of the same shape."""
    from svod.tensor.recording.realize import prepare

    a, b = (svod.Tensor(np.zeros(16, np.float32)) for _ in range(2))
    plan = prepare([a * b], inputs={"a": a, "b": b}, outputs=["y"])
    sets = [[np.zeros(16, np.float32) for _ in range(3)] for _ in range(SETS)]

    def together() -> None:
        for one, two, three in sets:
            plan.bind(a=one, b=two, y=three)

    def single() -> None:
        for one, two, three in sets:
            plan.bind("a", one)
            plan.bind("b", two)
            plan.bind("y", three)

    title = "bind two inputs and an output"
    yield at_most(title, best(together, 100, 100) / SETS, 2e-6)
    yield figure(f"{title}, one by one", duration(best(single, 100, 100) / SETS))


# -- the pool -------------------------------------------------------------------------------------


def pool() -> Iterator[Line]:
    """Handing work to the other thread, right away and after a pause."""
    set_threads(2)
    out = np.zeros(64)
    many, one = RecordArray(), RecordArray()
    for _ in range(1000):
        many.append(kernel("nothing"), [out.ctypes.data], [], 2)
    one.append(kernel("nothing"), [out.ctypes.data], [], 2)
    run = launcher().run
    awake = best(lambda: run(many), 5) / 1000
    yield at_most("fork and join, two ways, workers awake", awake, 0.4e-6)
    after = []
    for _ in range(100):
        time.sleep(GAP)
        start = time.perf_counter()
        run(one)
        after.append(time.perf_counter() - start)
    yield at_most("fork and join after 10 ms without work", median(after), 250e-6)
    run(many)
    time.sleep(0.1)
    busy, wall = time.process_time(), time.perf_counter()
    time.sleep(1.0)
    share = (time.process_time() - busy) / (time.perf_counter() - wall)
    measured = f"{share * 100:.2f} %"
    yield holds("processor time from 100 ms after a run on", "none", measured, share < 0.001)


def independent() -> Iterator[Line]:
    """64 kernels of 20 µs that do not depend on each other."""
    out = np.zeros(64)
    records, single = RecordArray(), RecordArray()
    turns = 1000
    single.append(kernel("busy"), [out.ctypes.data], [turns])
    run = launcher().run
    run(single)
    turns = round(turns * 20e-6 / best(lambda: run(single), 100))
    for number in range(64):
        records.append(kernel("busy"), [out[number:].ctypes.data], [turns], group=0)

    def with_threads(count: int) -> Callable[[], None]:
        def timed() -> None:
            for _ in range(20):
                run(records)

        def start() -> None:
            set_threads(count)
            timed()

        return start

    rounds = alternate({"two": with_threads(2), "one": with_threads(1)})
    note = f"{duration(rounds.median('two') / 20)} on two, {duration(rounds.median('one') / 20)}"
    yield at_least(
        "64 independent kernels of 20 µs, two threads / one", rounds.speed("two", "one"), 1.8,
        times, note + " on one",
    )  # fmt: skip


# -- from a file and from the store ---------------------------------------------------------------


def loading() -> Iterator[Line]:
    """A GPT-2-shaped model in fresh processes: from a saved plan, and from its graph."""
    with empty_folder() as folder:
        path = str(Path(folder) / "gpt2.svod")
        saved = fresh(save_gpt2, path, SVOD_CACHE_DIR=folder)
        mapping = min(fresh(touch, path, SVOD_CACHE_DIR=folder) for _ in range(3))
        runs = [fresh(first_result, path, SVOD_CACHE_DIR=folder) for _ in range(3)]
        run = min(runs, key=lambda found: found["total"])
        note = f"load {duration(run['load'])}, first run {duration(run['first'])}, next run "
        note += f"{duration(run['next'])}, mapping {byte_size(saved['bytes'])} {duration(mapping)}"
        beyond = max(0.0, run["total"] - mapping)
        yield at_most("GPT-2 shape, saved plan to first result, beyond mapping", beyond, 0.5,
                      note=note)  # fmt: skip
        loaded = ", ".join(run["loaded"]) or "nothing"
        yield holds("compilers loaded by it", "nothing", loaded, not run["loaded"])
        same = run["checksum"] == saved["checksum"]
        yield holds("its bits", "the same", "the same" if same else "others", same)
        warm = [fresh(from_graph, SVOD_CACHE_DIR=folder) for _ in range(3)]
        run = min(warm, key=lambda found: found["total"])
        yield at_most("GPT-2 shape, graph to first result, warm store", run["total"], 1.2,
                      note=f"first run {duration(run['first'])}")  # fmt: skip
        compiled = sum(found["compiled"] for found in warm)
        yield holds("modules compiled by it", "0", whole(compiled), compiled == 0)


def save_gpt2(path: str) -> dict[str, Any]:
    """Prepare, run and save the model."""
    from svod.base.hashing import checksum

    model = models.gpt2()
    output = model.run(model.tensors())
    plan = output.prepare()
    plan.execute()
    plan.save(path)
    result = plan.output_buffers()[0].numpy().tobytes()
    return {"bytes": Path(path).stat().st_size, "checksum": checksum(result).hex()}


def touch(path: str) -> float:
    """Seconds to map a file and to read one byte of each of its pages."""
    start = time.perf_counter()
    np.memmap(path, np.uint8, "c")[::4096].sum()
    return time.perf_counter() - start


def first_result(path: str) -> dict[str, Any]:
    """Load the plan and run it; what that took and what it needed."""
    import sys

    from svod.base.hashing import checksum
    from svod.runtime.load import load_plan

    compilers = ("llvmlite",)
    start = time.perf_counter()
    plan = load_plan(path)
    loaded = time.perf_counter()
    plan.execute()
    first = time.perf_counter()
    plan.execute()
    end = time.perf_counter()
    result = plan.output_buffers()[0].numpy().tobytes()
    return {
        "total": first - start,
        "load": loaded - start,
        "first": first - loaded,
        "next": end - first,
        "loaded": [name for name in compilers if name in sys.modules],
        "checksum": checksum(result).hex(),
    }


def from_graph() -> dict[str, Any]:
    """Build the graph, prepare and run it with a warm store."""
    from svod.device.cpu.compiler import counters

    model = models.gpt2()
    assert svod.Tensor is not None  # loads the modules
    start = time.perf_counter()
    plan = model.run(model.tensors()).prepare()
    prepared = time.perf_counter()
    plan.execute()
    end = time.perf_counter()
    return {"total": end - start, "first": end - prepared, "compiled": counters["compiled"]}


def tracing() -> Iterator[Line]:
    """What stamps cost kernels of 5 µs."""
    out = np.zeros(64)
    records, single = RecordArray(), RecordArray()
    single.append(kernel("busy"), [out.ctypes.data], [1000])
    run = launcher().run
    run(single)
    turns = round(1000 * 5e-6 / best(lambda: run(single), 200))
    for _ in range(200):
        records.append(kernel("busy"), [out.ctypes.data], [turns])
    stamps = launcher().stamps_for(records)
    rounds = alternate(
        {"plain": lambda: run(records), "stamped": lambda: run(records, 0, stamps)}, 30
    )
    cost = max(0.0, rounds.speed("plain", "stamped") - 1)
    yield at_most("profiling kernels of 5 µs, more time", cost, 0.05, percent)


CASES = (
    Case("dependent", "a plan of 1,000 dependent 16-element kernels", dependent),
    Case("one_kernel", "execute() of one kernel, against jax.jit and onnxruntime", one_kernel),
    Case("rebinding", "bind two inputs and an output", rebinding),
    Case("pool", "fork and join, awake, after a pause, and idle", pool),
    Case("independent", "64 independent kernels on two threads", independent),
    Case("tracing", "the cost of stamps", tracing),
    Case("loading", "GPT-2 from a saved plan and from a warm store", loading),
)
