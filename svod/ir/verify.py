"""What must hold of a graph at each stage; a stage that breaks its own rules is stopped here.

``verify_tensor_graph`` is for graphs of tensors: what the user built, and kernel bodies before
rangeify. ``verify_kernel`` is for kernel bodies as loops over scalars and vectors. Both visit
every node once, sources first, so a check may trust the sources of its node. A broken rule
raises VerifyError with the stage, the reason and the node.
"""

from __future__ import annotations

from svod.base.errors import VerifyError
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.checks.kernels import COPIED, EFFECTS, KERNEL
from svod.ir.checks.lowered import LOWERED
from svod.ir.checks.tensors import TENSOR
from svod.ir.checks.values import Table
from svod.ir.node import UOp, serial
from svod.ir.text import brief


def verify_tensor_graph(root: UOp, stage: str = "tensor graph") -> None:
    """Shapes, dtypes and arguments of every op agree with its sources."""
    for node in root.toposort():
        why = _check(node, TENSOR)
        if why is None and node.dtype.lanes != 1:
            why = "a tensor has a scalar dtype; vectors belong to kernels"
        if why is not None:
            _fail(stage, node, why)


def verify_calls(root: UOp, stage: str) -> None:
    """Results are memory, perhaps after calls or seen through views; calls have a body."""
    if root.op != O.SINK:
        _fail(stage, root, "a graph of calls is a SINK of results")
    for result in root.src:
        while result.op in O.MOVEMENT or result.op == O.AFTER:
            result = result.src[0]
        if result.op not in MEMORY:
            _fail(stage, result, "a result of calls is not memory")
    for node in root.toposort():
        if node.op == O.CALL and node.src[0].op not in BODIES:
            _fail(stage, node, f"it calls a {O.NAMES[node.src[0].op]}")


MEMORY = frozenset({O.BUFFER, O.PARAM, O.BUFFER_VIEW, O.MSELECT, O.MSTACK})
BODIES = frozenset({O.SINK, O.COPY, O.CUSTOM_FUNCTION, O.BUFFER_VIEW})


def verify_kernel(
    root: UOp,
    stage: str = "rangeify",
    *,
    shared_loops: bool = False,
    lowered: bool = False,
    table: Table | None = None,
) -> None:
    """A kernel body holds no tensor op, and its loops, loads and stores are well formed.

    A loop is closed once. With ``shared_loops``, for stages after the optimiser has copied a
    body, several reductions or stores may close the same loop, side by side but not nested, and
    a reduction may have copies of its value instead of loops.
    With ``lowered``, indices are machine integers and arguments tell the renderer which form of
    an operation is meant. ``table`` has the rules of kernels that threads of a GPU run.
    """
    order = root.toposort()
    is_of_threads = table is not None
    if table is None:
        table = LOWERED if lowered else COPIED if shared_loops else KERNEL
    for node in order:
        why = _check(node, table)
        if why is not None:
            _fail(stage, node, why)
    if root.op != O.SINK:
        _fail(stage, root, "a kernel is a SINK of stores")
    _check_users(order, stage)
    _check_loops(root, order, stage, shared_loops, is_of_threads)


def _fail(stage: str, node: UOp, why: str) -> None:
    sources = "".join([f"\n    source {i}: {brief(s)}" for i, s in enumerate(node.src[:8])])
    raise VerifyError(why, stage, brief(node) + sources)


def _check(node: UOp, table: Table) -> str | None:
    rule = table.get(node.op)
    if rule is None:
        name = O.NAMES.get(node.op, str(node.op))
        return f"{name} does not belong into {'tensor graphs' if table is TENSOR else 'kernels'}"
    least, most, check = rule
    if len(node.src) < least or (most is not None and len(node.src) > most):
        upper = "or more" if most is None else f"to {most}"
        wanted = f"{least}" if most == least else f"{least} {upper}"
        return f"it has {len(node.src)} sources, not {wanted}"
    return check(node)


POINTING = frozenset({O.INDEX, O.AFTER, O.BARRIER})  # tiles of a GPU read arguments themselves


def _check_users(order: list[UOp], stage: str) -> None:
    """Effects are held by effects and waited for by AFTER; memory is only pointed into."""
    for node in order:
        for position, source in enumerate(node.src):
            if source.op in EFFECTS and not (
                node.op in EFFECTS or (node.op == O.AFTER and position)
            ):
                _fail(stage, node, f"it uses the {O.NAMES[source.op]} as a value")
            if source.op in (O.PARAM, O.DEFINE_LOCAL) and node.op not in POINTING:
                _fail(
                    stage, node, f"it uses the {O.NAMES[source.op]} itself, without INDEX and LOAD"
                )
            if source.op == O.INDEX and node.op not in (O.LOAD, O.STORE):
                _fail(stage, node, "it uses a place in memory as a value, without LOAD")
            if source.op == O.DEVICE and node.op != O.PARAM:
                _fail(stage, node, "it uses a DEVICE")


def _check_loops(
    root: UOp, order: list[UOp], stage: str, shared_loops: bool, is_of_threads: bool
) -> None:
    closers: dict[UOp, UOp] = {}
    closed: dict[UOp, frozenset[UOp]] = {}  # the loops that end below a node
    numbers: dict[int, UOp] = {}
    for node in order:
        below: frozenset[UOp] = frozenset()
        for source in node.src[:1] if node.op == O.AFTER else node.src:
            if not closed[source] <= below:
                below |= closed[source]
        if node.op == O.RANGE and numbers.setdefault(node.arg.id, node) is not node:
            other = brief(numbers[node.arg.id])
            _fail(stage, node, f"its id is also that of another loop: {other}")
        if node.op in (O.END, O.REDUCE):
            ranges = [s for s in node.src[1:] if s.op == O.RANGE]
            for loop in ranges:
                if loop in below or ranges.count(loop) > 1:
                    _fail(
                        stage, node, f"it closes {brief(loop)}, which is already closed inside it"
                    )
                if closers.setdefault(loop, node) is not node and not shared_loops:
                    other = brief(closers[loop])
                    _fail(stage, node, f"it closes {brief(loop)}, which {other} closes too")
            # A thread folds the lanes of a vector that it goes on with, lane by lane.
            kept = [r for r in ranges if is_of_threads and r.arg.kind is AxisKind.LANE]
            below = below.union([r for r in ranges if r not in kept])
        closed[node] = below
    for node in order:
        if node.op == O.RANGE and node not in closers:
            _fail(stage, node, "no END or REDUCE closes this loop")
    if root.ranges:
        loop = min(root.ranges, key=serial)
        _fail(stage, loop, f"it is also used outside of {brief(closers[loop])}, which closes it")
