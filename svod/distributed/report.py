"""What a program over a mesh moves: placements of its results, and every collective with bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.ir.placement import Mesh, Placement
from svod.schedule.collectives import Collective
from svod.schedule.partition import Partition

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Report:
    """What ``placement`` found; ``print`` shows it as a table."""

    mesh: Mesh
    results: tuple[tuple[tuple[int, ...], Placement], ...]  # shape and placement of each tensor
    collectives: tuple[Collective, ...]

    @property
    def nbytes(self) -> int:
        """What each rank sends in all."""
        return sum([c.nbytes for c in self.collectives])

    @property
    def seconds(self) -> float:
        """What the link of the mesh is taken to need for it."""
        return sum([self.mesh.link.cost(c.nbytes) for c in self.collectives])

    def __str__(self) -> str:
        axes = " x ".join([f"{name} {size}" for name, size in self.mesh.axes])
        lines = [f"{self.mesh.name}: {axes}"]
        lines += [f"result {list(shape)} {place.text()}" for shape, place in self.results]
        lines += [c.text() for c in self.collectives]
        lines.append(f"{len(self.collectives)} collectives, {self.nbytes:,} bytes from each rank")
        return "\n".join(lines)


def placement(*tensors: Tensor) -> Report:
    """Where the values of lazy tensors will be, and what has to be moved for that; runs nothing."""
    found = Partition([t.uop for t in tensors])
    results = []
    for tensor, placed in zip(tensors, found.placed, strict=True):
        dims = (None,) * tensor.ndim if placed is None else placed.dims
        results.append((tensor.shape, Placement(dims)))
    return Report(found.mesh, tuple(results), tuple(found.collectives))
