"""Names that say what a kernel does: ``matmul_add_gelu_512x3072_768``."""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.node import UOp, depth_first

_WORDS = {O.ADD: "sum", O.MUL: "prod", O.MAX: "max", O.MIN: "min", O.AND: "all", O.OR: "any"}
_SKIP = O.MOVEMENT | {O.CONST, O.PARAM, O.CAST, O.BITCAST, O.STORE, O.SINK, O.IOTA}


def kernel_name(body: UOp) -> str:
    """Role and shape of a kernel."""
    words: list[str] = []
    reduced = ""
    for node in depth_first(body):
        if node.op in _SKIP:
            continue
        if node.op == O.REDUCE_AXIS:
            word = _reduction_word(node)
            if word == "matmul" and words and words[-1] == "mul":
                words.pop()
            words.append(word)
            reduced = "x".join([_size(node.src[0].shape[a]) for a in node.arg.axes])
        elif node.op in O.NAMES:
            words.append(O.NAMES[node.op].lower())
    brief: list[str] = []
    for word in words:
        if not brief or brief[-1] != word:
            brief.append(word)
    if not brief:
        brief = ["copy"]
    if len(brief) > 5:
        brief = [*brief[:3], "etc", brief[-1]]
    target = body.src[0].src[0] if body.src and body.src[0].src else body
    shape = "x".join([_size(n) for n in target.shape if n != 1]) or "1"
    parts = ["_".join(brief), shape]
    if reduced:
        parts.append(reduced)
    return "_".join(parts)


def _size(size: object) -> str:
    """A number, or the names of the variables a run-time size depends on."""
    if not isinstance(size, UOp):
        return str(size)
    return "_".join([n.arg.name for n in size.toposort() if n.op == O.DEFINE_VAR])


def _reduction_word(node: UOp) -> str:
    value = node.src[0]
    is_product = node.arg.op == O.ADD and value.op == O.MUL and value.src[0] is not value.src[1]
    if is_product and all(_reads_memory(s) for s in value.src):
        return "matmul"
    return _WORDS.get(node.arg.op, "reduce")


def _reads_memory(node: UOp) -> bool:
    while node.op in O.MOVEMENT or node.op == O.CAST:
        node = node.src[0]
    return node.op != O.CONST
