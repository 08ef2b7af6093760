"""How large the values of a graph may become: a file of a few bytes must not fill the memory.

A node can make a huge tensor of nothing (`ConstantOfShape`, `Range`, `Tile`): tensors are lazy, but
something computes or keeps them in the end. Only sizes that the file fixes are looked at; those of
variables are the user's, who gives their ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from svod.base.errors import AllocationError
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.wire import DEPTH_LIMIT, Message
from svod.ir.node import UOp
from svod.tensor.tensor import Tensor

AXES_LIMIT = 64
ELEMENTS_LIMIT = 1 << 32  # of a result
GROWN_LIMIT = 1 << 28  # of a result that an operator makes larger than its inputs by an attribute
HOST_LIMIT = 1 << 26  # of an array that an operator makes on the host
TURNS_LIMIT = 1 << 18  # of a loop that nothing else ends
EXPANDED_LIMIT = 1 << 18  # nodes with the bodies of functions in the places of their calls
_GROWS = {
    "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "ConvTranspose", "Expand",
    "EyeLike", "HammingWindow", "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "Resize",
    "RoiAlign", "STFT", "DFT", "Tile", "Upsample",
}  # fmt: skip


def check_size(shape: Any, limit: int, what: str) -> None:
    """Refuse a shape with more elements than a limit, as far as its sizes are known."""
    known = [int(n) for n in shape if not isinstance(n, UOp)]
    if len(shape) > AXES_LIMIT:
        raise OnnxError(f"{what} has {len(shape)} axes, the limit is {AXES_LIMIT}")
    if 0 not in known and prod(known) > limit:
        raise OnnxError(
            f"{what} has the shape {list(shape)}, more than {limit} elements: the file is damaged, "
            "or the model is too large for one tensor"
        )


def check_host(*shape: int) -> None:
    """Refuse an array of whole places or weights that would be made while importing."""
    if (
        any(int(n) > HOST_LIMIT for n in shape)
        or prod([max(int(n), 0) for n in shape]) > HOST_LIMIT
    ):
        raise AllocationError(
            f"it needs a table of {list(shape)} elements, the limit is {HOST_LIMIT}"
        )


def check_results(op_type: str, values: list[Any], what: str) -> None:
    """Refuse results of a node that are too large."""
    limit = GROWN_LIMIT if op_type in _GROWS else ELEMENTS_LIMIT
    for value in values:
        if isinstance(value, (Tensor, np.ndarray)):
            check_size(value.shape, limit, f"the result of {what}")


def check_turns(proto: Message, inputs: list[Any], what: str) -> None:
    """Refuse a loop that the file itself makes endless: too many turns, and no condition."""
    if proto.op_type != "Loop" or not inputs or not isinstance(inputs[0], np.ndarray):
        return
    count = inputs[0].reshape(-1)[0] if inputs[0].size else 0
    if isinstance(count, UOp) or count <= TURNS_LIMIT:
        return
    for attribute in proto.attributes:
        if attribute.g is not None and _is_endless(attribute.g):
            raise OnnxError(f"{what} makes {count} turns, and its body does not end them")


def _is_endless(body: Message) -> bool:
    """Whether the condition that a body gives is a constant or the one that it was given."""
    if len(body.inputs) < 2 or not body.outputs:
        return False
    made = {name: node for node in body.nodes for name in node.outputs}
    name = body.outputs[0].name
    while name in made:
        node = made.pop(name)
        if node.op_type == "Constant":
            return True
        if node.op_type != "Identity" or not node.inputs:
            return False
        name = node.inputs[0]
    return True


def check_expansion(graph: Message, functions: Mapping[Any, Message], key_of: Any) -> None:
    """Refuse functions that call functions so often that few bytes become millions of nodes."""
    sizes: dict[Any, int] = {}

    def size(nodes: list[Message], open_: frozenset[Any]) -> int:
        total = 0
        for node in nodes:
            key = key_of(node)
            if key in functions and key not in open_ and len(open_) < DEPTH_LIMIT:
                if key not in sizes:
                    sizes[key] = size(functions[key].nodes, open_ | {key})
                total += sizes[key]
            else:
                total += 1
            for attribute in node.attributes:
                for inner in [g for g in (attribute.g, *attribute.graphs) if g is not None]:
                    total += size(inner.nodes, open_)
        return total

    found = size(graph.nodes, frozenset())
    if found > EXPANDED_LIMIT:
        raise OnnxError(
            f"the functions of the model expand to {found} nodes, the limit is {EXPANDED_LIMIT}"
        )
