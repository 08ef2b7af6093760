"""Plans over a mesh: what of their inputs and results this process has.

A plan is made of the parts of a partition. Tensors speak of whole values: here the names, shapes
and places of these are turned into those of the parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.ir.node import UOp
from svod.ir.placement import Placed, is_mesh
from svod.runtime.assemble import PortNames
from svod.runtime.ports import Shape
from svod.schedule.partition import Partition

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class Held(NamedTuple):
    """The mesh that a result is on, and how its memory holds it: None where it is whole."""

    mesh: str
    placed: Placed | None


Place = Held | None


# Names of inputs by their BUFFERs, names of outputs, complex inputs, places of complex outputs.
Names = tuple[
    Mapping[UOp, tuple[str, Shape]], Sequence[str] | None, Collection[str], Collection[int]
]


def places_of(tensors: Sequence[Tensor], parts: Partition | None) -> list[Place]:
    """Where results are held, and how."""
    if parts is None:
        return [None] * len(tensors)
    placed = iter(parts.placed)  # nothing is computed of what has no elements
    own = [None if 0 in t.uop.shape else next(placed) for t in tensors]
    name = parts.mesh.name
    pairs = zip(tensors, own, strict=True)
    return [Held(name, p) if is_mesh(t._device) else None for t, p in pairs]


def names_of_parts(names: Names | PortNames | None, parts: Partition) -> Names | PortNames | None:
    """The names of inputs and outputs for the memory and the shapes that this process has."""
    if names is None:
        return None
    if isinstance(names, PortNames):
        known = {node.sn: node for node in parts.memory}
        inputs = {
            (parts.memory[known[sn]].sn if sn in known else sn): (
                name,
                parts.shape_of(known[sn], shape) if sn in known else shape,
            )
            for sn, (name, shape) in names.inputs.items()
        }
        outputs = [
            (name, root.shape) for (name, _), root in zip(names.outputs, parts.roots, strict=False)
        ]
        return replace(names, inputs=inputs, outputs=outputs)
    given = {
        parts.memory.get(node, node): (name, parts.shape_of(node, shape))
        for node, (name, shape) in names[0].items()
    }
    return (given, *names[1:])


def shapes_of(
    tensors: Sequence[Tensor], roots: Sequence[UOp], are_parts: bool
) -> list[tuple[Any, ...]]:
    """The shapes of results: over a mesh those of what this process has."""
    own = iter(roots)
    return [t.uop.shape if 0 in t.uop.shape or not are_parts else next(own).shape for t in tensors]
