"""Prepared ops to one flat array of records, or to a graph of a GPU.

In: prepared ops in their groups, and buffers. Out: a `FlatPlan`, or None where some kernel is not
native code of the host; then the plain executor runs the plan. Ops that native code cannot do
become stops of the array: Python custom functions, copies from files, faulty wiring.
"""

from __future__ import annotations

from collections.abc import Sequence

from svod.base.errors import SvodError
from svod.device.buffer import Buffer
from svod.device.names import HOST_KINDS, base_key
from svod.ir.capabilities import capabilities_of
from svod.ir.guards import CHECK
from svod.runtime.cuda_graph import cuda_plan
from svod.runtime.custom import CustomFunction, custom_function
from svod.runtime.executor import check_view, custom_values, launch_dims
from svod.runtime.flat import WORD, FlatPlan
from svod.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)


def flatten(
    ops: Sequence[PreparedOp], groups: Sequence[Sequence[int]], buffers: Sequence[Buffer]
) -> FlatPlan | None:
    """The records of a plan; None where there is no kernel or one is not native host code."""
    kernels = [op for op in ops if isinstance(op, PreparedKernel)]
    fixed = {(k.kernel, k.device): k for k in kernels if k.kernel.dims is not None}
    loose = [k for k in kernels if k.kernel.dims is None]
    if not kernels or not all(_is_native(kernel) for kernel in (*fixed.values(), *loose)):
        return _on_gpu(kernels, ops, groups, buffers)
    flat = FlatPlan(ops)
    number = 0
    for group in groups:
        together = len(group) > 1 and not any(_may_thread(ops[index]) for index in group)
        for index in group:
            _add(flat, ops[index], index, buffers, number)
            number += not together
        number += together
    return flat.freeze()


def _on_gpu(
    kernels: Sequence[PreparedKernel], ops: Sequence[PreparedOp],
    groups: Sequence[Sequence[int]], buffers: Sequence[Buffer],
) -> FlatPlan | None:  # fmt: skip
    """The graph of a plan with GPU kernels."""
    if not any(capabilities_of(kernel.device).launches_graphs for kernel in kernels):
        return None
    return cuda_plan(ops, groups, buffers)


def _add(flat: FlatPlan, op: PreparedOp, index: int, buffers: Sequence[Buffer], group: int) -> None:
    if isinstance(op, PreparedKernel):
        flat.add_kernel(index, op, group)
    elif isinstance(op, PreparedBufferView):
        try:
            check_view(op, buffers)  # holds for good: rebinding a base makes its views anew
        except SvodError:
            flat.add_stop(index, group)
    elif isinstance(op, PreparedCopy):
        if _is_host_copy(op, buffers):
            flat.add_copy(index, op, buffers, group)
        else:
            flat.add_stop(index, group)
    elif op.kind == CHECK and _is_host_check(op, buffers):
        flat.add_check(index, op, buffers, group)
    else:
        function = _native_function(op, buffers)
        if function is not None:
            flat.add_custom(index, op, function, buffers, group)
        else:
            flat.add_stop(index, group)


def _is_native(kernel: PreparedKernel) -> bool:
    """Whether the kernel can be a record with its present values."""
    if not kernel.kernel.address or not capabilities_of(kernel.device).runs_on_cores:
        return False
    try:
        launch_dims(kernel)
    except SvodError:
        return False
    return True


def _may_thread(op: PreparedOp) -> bool:
    """Whether a kernel may be spread over the cores with some values of its variables."""
    return isinstance(op, PreparedKernel) and bool(op.kernel.global_size[0].vmax > 1)


def _is_host_copy(copy: PreparedCopy, buffers: Sequence[Buffer]) -> bool:
    if len(copy.buffer_indices) < 2:
        return False
    if not all(0 <= place < len(buffers) for place in copy.buffer_indices[:2]):
        return False
    target, source = (buffers[place] for place in copy.buffer_indices[:2])
    return _on_host(target, source) and target.nbytes == source.nbytes and not target.is_read_only


def _is_host_check(check: PreparedCustomFunction, buffers: Sequence[Buffer]) -> bool:
    places = check.buffer_indices
    if len(places) < 2 or not all(0 <= place < len(buffers) for place in places):
        return False
    return _on_host(*[buffers[p] for p in places]) and buffers[places[1]].nbytes == WORD


def _native_function(
    custom: PreparedCustomFunction, buffers: Sequence[Buffer]
) -> CustomFunction | None:
    """The native implementation of a custom function, where it can run inside the native call."""
    function = custom_function(custom.kind)
    if function is None or not function.address:
        return None
    if not all(0 <= place < len(buffers) for place in custom.buffer_indices):
        return None
    known = custom_values(custom, {})
    chosen = [buffers[place] for place in custom.buffer_indices]
    return function if _on_host(*chosen) and known.keys() >= set(function.var_names) else None


def _on_host(*buffers: Buffer) -> bool:
    return all(base_key(buffer.device) in HOST_KINDS for buffer in buffers)
