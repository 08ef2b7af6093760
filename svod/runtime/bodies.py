"""Kernels of portable plans: graphs as text, which the process that loads them compiles itself.

In: the text of a kernel's body, from a file nobody vouches for. Out: a body that is well formed, in
which every access to memory follows from shapes, so that code made of it stays within the buffers
it is given; they are checked against the body's parameters. Anything else is a `PlanFormatError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from svod.base.errors import GraphError, PlanFormatError, SvodError, UnsupportedError
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import IndexCheck
from svod.ir.checks.tensors import TENSOR
from svod.ir.node import UOp, is_symbolic, toposort
from svod.ir.text import dump, parse
from svod.ir.verify import verify_tensor_graph
from svod.runtime.ops import CompiledKernel, PreparedKernel

MOST_TEXT = 1 << 24  # characters of one body
MOST_NODES = 100_000
MOST_ELEMENTS = 1 << 40  # of one value; sums of such sizes stay far from the largest index
# Memory and functions outside the graph, and steps of a sort that trust numbers in memory.
_ELSEWHERE = frozenset({
    O.BUFFER, O.BUFFER_VIEW, O.COPY, O.UNIQUE, O.LUNIQUE, O.MSELECT, O.MSTACK, O.DEVICE,
    O.CUSTOM_FUNCTION, O.RADIX, O.DEFINE_VAR, O.BIND,
})  # fmt: skip
ALLOWED = frozenset(TENSOR) - _ELSEWHERE


def body_text(op: PreparedKernel) -> str:
    """The body of a prepared kernel, for a file."""
    foreign = sorted({O.NAMES[node.op] for node in toposort((op.ast,)) if node.op not in ALLOWED})
    if not op.ast.src or foreign:
        what = f"it holds {', '.join(foreign)}" if foreign else "its graph was not kept"
        raise UnsupportedError(
            f"kernel {op.kernel.entry_point} cannot be written as a portable graph: {what}. Save "
            "the plan without portable=True",
            "plan",
        )
    try:
        text = dump(op.ast)
    except GraphError:
        raise UnsupportedError(
            f"kernel {op.kernel.entry_point} has sizes that change from run to run, which a "
            "portable graph does not hold. Save the plan without portable=True",
            "plan",
        ) from None
    read_body(text, op.kernel.entry_point)  # what is written can be read
    return text


def read_body(text: str, where: str) -> UOp:
    """The body of a text; refuses what is malformed, too large, or more than arithmetic."""
    if len(text) > MOST_TEXT:
        raise PlanFormatError(f"{where}: a body of {len(text)} characters is too long")
    try:
        body = parse(text)
        nodes = body.toposort()
        if len(nodes) > MOST_NODES:
            raise PlanFormatError(f"{where}: a body of {len(nodes)} nodes is too large")
        for node in nodes:
            if node.op not in ALLOWED or type(node.arg) is IndexCheck:  # marks for plans, not code
                raise PlanFormatError(f"{where}: {O.NAMES[node.op]} does not belong into it")
        verify_tensor_graph(body, "loading")
        _check_sizes(nodes, where)
    except PlanFormatError:
        raise
    except (SvodError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as why:
        raise PlanFormatError(f"{where}: expected the graph of a kernel ({why})") from None
    if body.op != O.SINK or not body.src or not all(map(_is_store, body.src)):
        raise PlanFormatError(f"{where}: expected a SINK of stores")
    return body


def _is_store(node: UOp) -> bool:
    """Whether a node writes a parameter: a STORE, or a SCATTER into it."""
    return node.op == O.STORE or (node.op == O.SCATTER and node.src[0].op == O.PARAM)


def memory_problem(
    body: UOp, kernel: CompiledKernel, memory: Mapping[int, tuple[int, DType]]
) -> str | None:
    """Why buffers, as elements and dtype by slot, are not what the body's parameters say."""
    for node in body.toposort():
        if node.op == O.PARAM and node.arg.slot in memory:
            size, dtype = memory[node.arg.slot]
            if dtype is not node.dtype or size < prod(node.shape):
                wanted = f"{node.dtype.name} of shape {node.shape} at slot {node.arg.slot}"
                return f"{wanted}, which has {size} elements of {dtype.name}"
    lacking = [slot for slot in kernel.globals if slot not in memory]
    return f"a buffer for slot {lacking[0]}" if lacking else None


def _check_sizes(nodes: Sequence[UOp], where: str) -> None:
    for node in nodes:
        if node.op in (O.SINK, O.STORE):
            continue
        if is_symbolic(node.shape) or prod(node.shape) > MOST_ELEMENTS:
            raise PlanFormatError(f"{where}: a value of shape {node.shape} is too large")
