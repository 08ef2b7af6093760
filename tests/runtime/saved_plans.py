"""Plans for the tests of saving: real kernels under named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import svod
from svod.device.buffer import Buffer
from svod.device.cpu.compiler import CpuProgram, load_image, object_for
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import const, make, variable
from svod.runtime import CompiledKernel, ExecutionPlan, ExecutionPlanBuilder, PreparedKernel

Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def renamed(
    plan: ExecutionPlan, inputs: Mapping[str, Array], outputs: Mapping[int, Any]
) -> ExecutionPlan:
    """The same plan with names: inputs by name to arrays, outputs by position to names."""
    builder = ExecutionPlanBuilder(plan.device())
    for place, buffer in enumerate(plan.buffers()):
        builder.add_buffer(place, buffer)
    rows = zip(plan.prepared_ops(), plan.instance_dependencies, strict=True)
    for op, also_after in rows:
        builder.add_op_with_instance_dependencies(op, also_after)
    builder.set_output_buffers(plan.output_buffer_indices())
    addresses = {buffer.address: place for place, buffer in enumerate(plan.buffers())}
    for name, array in inputs.items():
        builder.name_input(name, addresses[array.ctypes.data], array.shape)
    for position, (name, shape) in outputs.items():
        builder.name_output(name, plan.output_buffer_indices()[position], shape)
    builder.set_memory_report(plan.memory)
    return builder.build()


def network() -> tuple[ExecutionPlan, Array]:
    """Two layers and a softmax with the input `x` and the output `y`; and x."""
    x, first, second = random(8, 64), random(64, 96, seed=1), random(96, 32, seed=2)
    tensors = [svod.Tensor.from_numpy(array) for array in (x, first, second)]
    result = ((tensors[0] @ tensors[1]).relu() @ tensors[2]).softmax(-1)
    plan = result.prepare()
    return renamed(plan, {"x": x}, {0: ("y", (8, 32))}), x


def state() -> ExecutionPlan:
    """A plan that adds one to a buffer which it does not make: every run goes on from the last."""
    t = svod.Tensor(random(64))
    return t.assign(t + 1).prepare()


ROW = """
define void @row(ptr %buffers, ptr %values, i64 %core) {
  %p = load ptr, ptr %buffers
  %q = getelementptr float, ptr %p, i64 %core
  %n = load i64, ptr %values
  %f = sitofp i64 %n to float
  store float %f, ptr %q, align 4
  ret void
}
"""


def symbolic() -> ExecutionPlan:
    """Writes n into the first 2 n - 1 elements of the output `y`, n from 1 to 8; n is 3."""
    n = variable("n", 1, 8)
    image = load_image(object_for(ROW))
    program = CpuProgram("row", image.symbol("row"), image)
    one = const(1, dt.index)
    kernel = CompiledKernel(
        program, "CPU", ROW, "row", ("n",), (0,), (0,), (), True, (n * 2 - 1, one, one),
        address=program.address,
    )  # fmt: skip
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(1, Buffer.from_numpy(np.zeros(15, np.float32)))
    body = make(O.SINK, dt.void, (n,))
    builder.add_kernel(PreparedKernel(1, body, kernel, "CPU", [0], [0], [3]))
    builder.set_output_buffers([0])
    builder.name_output("y", 0, (n * 2 - 1,))
    plan = builder.build()
    plan.set_vars({"n": 3})
    return plan


PLANS: dict[str, Callable[[], ExecutionPlan]] = {
    "network": lambda: network()[0],
    "state": state,
    "symbolic": symbolic,
}


def results(plan: ExecutionPlan) -> list[str]:
    """All output bytes of two runs, as text."""
    found = []
    for _ in range(2):
        plan.execute()
        found += [buffer.numpy().tobytes().hex() for buffer in plan.output_buffers()]
    return found
