"""The plain executor: runs prepared ops one by one from Python, on any device.

In: the ops of a plan, its buffers, and groups of op indices in the order they run. Out: the
effects of the programs, and profiles where they are wanted. Groups run one after another; the
kernels of a group run side by side on a pool of host threads, unless one of them spreads itself
over the cores already. Plans of native CPU kernels use `svod.runtime.flat` instead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import count
from time import perf_counter_ns
from typing import TypeVar

from svod.base.errors import (
    ExecutionError,
    IndexRangeError,
    LinAlgError,
    SvodError,
    UnsupportedError,
)
from svod.base.threads import thread_budget
from svod.device.buffer import Buffer
from svod.device.launch import LaunchDims, resolve_launch_dims
from svod.device.names import HOST_KINDS, base_key
from svod.ir.capabilities import capabilities_of
from svod.runtime.custom import run_custom_function
from svod.runtime.failures import OpError, RunErrors, line_text, with_line
from svod.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    requires_serial,
)
from svod.runtime.order import Access, hazard_groups
from svod.runtime.profile import KernelProfile

T = TypeVar("T")
Values = Mapping[str, int]


def run_groups(
    ops: Sequence[PreparedOp],
    buffers: Sequence[Buffer],
    groups: Sequence[Sequence[int]],
    variables: Values,
    profiles: list[KernelProfile] | None = None,
) -> None:
    """Run every group in turn; append one profile per kernel where a list is given."""
    for group in groups:
        run_group(ops, buffers, group, variables, profiles)


def run_group(
    ops: Sequence[PreparedOp],
    buffers: Sequence[Buffer],
    group: Sequence[int],
    variables: Values,
    profiles: list[KernelProfile] | None = None,
) -> None:
    """Run ops that may run side by side; more than one means all are kernels."""
    if len(group) > 1:
        kernels = [_kernel_at(ops, index, "parallel execution") for index in group]
        if not any(uses_cpu_threading(kernel) for kernel in kernels):
            _run_side_by_side(kernels, group, profiles)
            return
    for index in group:
        op = ops[index]
        if profiles is not None and isinstance(op, PreparedKernel):
            profiles.append(_profiled(op, index))
        else:
            run_op(op, buffers, variables)


def run_op(op: PreparedOp, buffers: Sequence[Buffer], variables: Values) -> None:
    """The single place that knows all four kinds of ops."""
    if isinstance(op, PreparedKernel):
        run_kernel(op)
    elif isinstance(op, PreparedCopy):
        run_copy(op, buffers)
    elif isinstance(op, PreparedBufferView):
        check_view(op, buffers)
    else:
        run_custom(op, buffers, variables)


def group_ops(
    ops: Sequence[PreparedOp], levels: Sequence[Sequence[int]], buffers: Sequence[Buffer]
) -> list[list[int]]:
    """The groups of a plan in the order they run, never across a level.

    Inside a level kernels that are safe to run side by side gather until an op comes that must
    run alone; then they are split by hazards, run, and the lone op follows.
    """
    groups: list[list[int]] = []
    for level in levels:
        if len(level) == 1:
            groups.append(list(level))
            continue
        gathered: list[int] = []
        for index in level:
            if requires_serial(ops[index]):
                groups += partition(ops, gathered, buffers)
                groups.append([index])
                gathered = []
            else:
                gathered.append(index)
        groups += partition(ops, gathered, buffers)
    return groups


def partition(
    ops: Sequence[PreparedOp], indices: Sequence[int], buffers: Sequence[Buffer]
) -> list[list[int]]:
    """Split kernels of one level into groups without hazards; conflicting ones keep their order."""
    kernels = {index: _kernel_at(ops, index, "parallel partition") for index in indices}
    return hazard_groups(indices, lambda index: kernel_accesses(kernels[index], buffers))


def kernel_accesses(kernel: PreparedKernel, buffers: Sequence[Buffer]) -> list[Access]:
    """The bytes a kernel touches. An argument that is written counts as written only."""
    written = set(kernel.output_indices)
    return [
        Access(*memory_range(buffers[index]), position in written)
        for position, index in enumerate(kernel.buffer_indices)
    ]


def memory_range(buffer: Buffer) -> tuple[object, int, int]:
    """Where a buffer lies: addresses of the host, else bytes of its storage.

    Memory of others can be wrapped by two storages, so on the host only addresses tell.
    """
    storage = buffer.storage
    start = buffer.offset
    if storage.is_allocated and (storage.device == "CPU" or base_key(storage.device) in HOST_KINDS):
        start += storage.address
        return "host", start, start + buffer.nbytes
    return storage.id, start, start + buffer.nbytes


def launch_dims(kernel: PreparedKernel, changes: Values | None = None) -> LaunchDims:
    """The launch sizes for the current values and these changes; fixed values win."""
    compiled = kernel.kernel
    if len(kernel.vals) < len(compiled.var_names):
        raise missing_values(kernel)
    if compiled.dims is not None:
        return compiled.dims
    values = dict(zip(compiled.var_names, kernel.vals, strict=False))
    if changes:
        values.update(changes)
    values.update(kernel.fixedvars)
    try:
        return resolve_launch_dims(compiled.global_size, compiled.local_size, values)
    except SvodError as error:
        raise OpError(
            f"Kernel {kernel.id} launch dimensions failed: {error}", kernel.id, "kernel"
        ) from error


def missing_values(kernel: PreparedKernel) -> OpError:
    return OpError(
        f"Kernel {kernel.id} has {len(kernel.kernel.var_names)} var names "
        f"but only {len(kernel.vals)} values",
        kernel.id,
        "kernel",
    )


def uses_cpu_threading(kernel: PreparedKernel) -> bool:
    """Whether the kernel spreads itself over the cores of the host."""
    return capabilities_of(kernel.device).runs_on_cores and launch_dims(kernel).global_size[0] > 1


def run_kernel(kernel: PreparedKernel) -> None:
    dims = launch_dims(kernel)
    try:
        kernel.kernel.program(kernel.buffer_ptrs, kernel.vals, dims.global_size, dims.local_size)
    except Exception as error:
        raise OpError(f"Kernel {kernel.id} failed: {error}", kernel.id, "kernel") from error


def run_copy(copy: PreparedCopy, buffers: Sequence[Buffer]) -> None:
    if len(copy.buffer_indices) < 2:
        raise OpError(
            f"Copy op {copy.id} requires at least two buffer indices (dst, src), "
            f"got {len(copy.buffer_indices)}",
            copy.id,
            "copy",
        )
    target, source = copy.buffer_indices[:2]
    if not (0 <= target < len(buffers) and 0 <= source < len(buffers)):
        raise OpError(
            f"Copy op {copy.id} buffer index out of range: "
            f"dst={target}, src={source}, total_buffers={len(buffers)}",
            copy.id,
            "copy",
        )
    try:
        buffers[target].copy_from(buffers[source])
    except Exception as error:
        raise OpError(f"Copy op {copy.id} failed: {error}", copy.id, "copy") from error


def check_view(view: PreparedBufferView, buffers: Sequence[Buffer]) -> None:
    """A view moves nothing: its buffer must already be the right part of its base."""
    if len(view.buffer_indices) < 2:
        raise OpError(
            f"BufferView op {view.id} requires at least two buffer indices (out, base), "
            f"got {len(view.buffer_indices)}",
            view.id,
            "view",
        )
    out_index, base_index = view.buffer_indices[:2]
    if not (0 <= out_index < len(buffers) and 0 <= base_index < len(buffers)):
        raise OpError(
            f"BufferView op {view.id} buffer index out of range: "
            f"out={out_index}, base={base_index}, total_buffers={len(buffers)}",
            view.id,
            "view",
        )
    out, base = buffers[out_index], buffers[base_index]
    offset = base.offset + view.byte_offset
    if out.storage_id != base.storage_id or out.offset != offset or out.nbytes != view.byte_size:
        raise OpError(
            f"BufferView op {view.id} mismatch: "
            f"out(storage={out.storage_id},off={out.offset},size={out.nbytes}) "
            f"base(storage={base.storage_id},off={base.offset}) "
            f"expected(off={offset},size={view.byte_size})",
            view.id,
            "view",
        )


def run_custom(
    custom: PreparedCustomFunction, buffers: Sequence[Buffer], variables: Values
) -> None:
    chosen = []
    for index in custom.buffer_indices:
        if not 0 <= index < len(buffers):
            raise OpError(
                f"Custom function op {custom.id} ({custom.kind}) buffer index out of range: "
                f"idx={index}, total_buffers={len(buffers)}",
                custom.id,
                custom.kind,
            )
        chosen.append(buffers[index])
    try:
        run_custom_function(custom.kind, custom.attrs, chosen, custom_values(custom, variables))
    except UnsupportedError:
        raise  # callers match on its kind
    except (IndexRangeError, LinAlgError) as error:
        raise with_line(error, custom.origin) from None
    except Exception as error:
        raise OpError(
            f"Custom function op {custom.id} ({custom.kind}) failed: {error}"
            f"{line_text(custom.origin)}",
            custom.id,
            custom.kind,
        ) from error


def custom_values(custom: PreparedCustomFunction, variables: Values) -> dict[str, int]:
    """What a custom function is given: minima of unbound variables, values to start
    with, bindings, fixed values."""
    unbound = {variable.name: variable.min_val for variable in custom.runtime_vars or ()}
    return {**unbound, **custom.values, **variables, **custom.fixedvars}


def _run_side_by_side(
    kernels: Sequence[PreparedKernel],
    indices: Sequence[int],
    profiles: list[KernelProfile] | None,
) -> None:
    if profiles is None:
        _gather([partial(run_kernel, kernel) for kernel in kernels])
        return
    pairs = zip(kernels, indices, strict=True)
    profiles += _gather([partial(_profiled, kernel, index) for kernel, index in pairs])


def _gather(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run the tasks at once, the first on this thread; results in order, all errors together."""
    others = [_pool().submit(task) for task in tasks[1:]]
    first: Future[T] = Future()
    try:
        first.set_result(tasks[0]())
    except Exception as error:
        first.set_exception(error)
    finally:  # an interrupt must not leave kernels behind that still use the buffers
        wait(others)
    futures = [first, *others]
    raised = [future.exception() for future in futures]
    errors = [found for found in raised if isinstance(found, Exception)]
    if len(errors) > 1:
        raise RunErrors(f"{len(errors)} of {len(tasks)} kernels that ran together failed", errors)
    if errors:
        raise errors[0]
    return [future.result() for future in futures]


def _profiled(kernel: PreparedKernel, index: int) -> KernelProfile:
    start = perf_counter_ns()
    run_kernel(kernel)
    end = perf_counter_ns()
    lane = getattr(_lane, "number", 0)
    return KernelProfile(
        kernel.kernel, kernel.device, len(kernel.buffer_indices), start, end, lane, index
    )


def _kernel_at(ops: Sequence[PreparedOp], index: int, where: str) -> PreparedKernel:
    op = ops[index]
    if not isinstance(op, PreparedKernel):
        raise ExecutionError(f"{where} expected compiled kernel at op index {index}")
    return op


_lane = threading.local()
_host_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    """The host threads of this process, made at first use."""
    global _host_pool
    with _pool_lock:
        if _host_pool is None:
            numbers = count(1)

            def name_lane() -> None:
                _lane.number = next(numbers)

            # Programs may also wait for a device, so one thread beside the caller is the least.
            threads = max(1, thread_budget().threads - 1)
            _host_pool = ThreadPoolExecutor(threads, "svod-lane", initializer=name_lane)
        return _host_pool


def _forget_pool() -> None:
    """In a forked child: the threads stayed with the parent."""
    global _host_pool, _pool_lock
    _host_pool = None
    _pool_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
