"""The schedule cache's key: a graph without the identity of its buffers.

BUFFER nodes become PARAMs marked with their device, numbered in the order of first visit, so two
graphs of the same shape over other data are the same node.
"""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.node import UOp, depth_first, make


def normalize(sink: UOp) -> tuple[UOp, list[UOp]]:
    """The sink over marked PARAMs, and the BUFFER behind each of them."""
    buffers: list[UOp] = []
    done: dict[UOp, UOp] = {}
    for node in depth_first(sink):
        if node.op == O.BUFFER:
            device = node.src[-1]
            arg = ParamArg(len(buffers), (node.arg.size,))
            done[node] = make(O.PARAM, node.dtype, (device,), arg)
            buffers.append(node)
        elif node.src:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
        else:
            done[node] = node
    return done[sink], buffers
