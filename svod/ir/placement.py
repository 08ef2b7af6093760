"""Where the parts of a value are: meshes of ranks, and placements of values over their axes.

A mesh is a device: tensors on it have the device `MESH:1`, whatever their placement. A placement
names for each axis of a value the mesh axis that it is split over, or None; and the mesh axes
along which every rank holds a term of the value that still has to be folded with the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Final, NamedTuple

from svod.base.errors import ConfigError, DeviceError

MESH_PREFIX: Final = "MESH:"
BUCKET_BYTES: Final = 4 << 20
Dims = tuple[str | None, ...]


class Placement(NamedTuple):
    dims: Dims  # for each axis of the value the mesh axis that splits it
    partial: tuple[tuple[str, int], ...] = ()  # mesh axes with terms, and the op that folds them

    def text(self) -> str:
        """As it is printed: `[data, .] + model`."""
        own = "[" + ", ".join([d or "." for d in self.dims]) + "]"
        return own + "".join([f" + {axis}" for axis, _ in self.partial])


class Placed(NamedTuple):
    """How the memory behind a BUFFER of a mesh holds its value: parts of hosted ranks in a row."""

    shape: tuple[int, ...]  # of the whole value
    dims: Dims


@dataclass(frozen=True, slots=True)
class Link:
    """What moving data between ranks costs."""

    seconds: float = 20e-6  # for any collective
    bytes_per_second: float = 5e9  # from one rank to another

    def cost(self, nbytes: float) -> float:
        """Seconds for a collective that sends so many bytes from each rank."""
        return self.seconds + nbytes / self.bytes_per_second if nbytes else 0.0


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks in a grid with named axes; ``hosted`` are those of this process."""

    name: str
    axes: tuple[tuple[str, int], ...]
    devices: tuple[str, ...]  # of each rank
    hosted: tuple[int, ...]
    link: Link = field(default=Link(), compare=False)
    bucket: int = field(default=BUCKET_BYTES, compare=False)  # bytes of folds that go together

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return prod([size for _, size in self.axes])

    @property
    def is_whole(self) -> bool:
        """Whether this process hosts every rank."""
        return len(self.hosted) == self.ranks

    def size(self, axis: str) -> int:
        """How many ranks lie along an axis."""
        for name, size in self.axes:
            if name == axis:
                return size
        names = ", ".join([name for name, _ in self.axes])
        raise ConfigError(f"the mesh has no axis {axis!r}: its axes are {names}")

    def coordinate(self, rank: int, axis: str) -> int:
        """Where along an axis a rank is."""
        for name, size in reversed(self.axes):
            rank, place = divmod(rank, size)
            if name == axis:
                return place
        return self.size(axis)

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """The ranks of the line along an axis that a rank is on, in order."""
        step = 1
        for name, size in reversed(self.axes):
            if name == axis:
                first = rank - self.coordinate(rank, axis) * step
                return tuple([first + step * i for i in range(size)])
            step *= size
        raise ConfigError(f"the mesh has no axis {axis!r}")

    def check(self, dims: Dims, shape: tuple[int, ...]) -> None:
        """Whether a value of a shape can be split so."""
        if len(dims) != len(shape):
            raise ConfigError(f"a placement of {len(dims)} axes for a tensor of shape {shape}")
        used = [d for d in dims if d is not None]
        if len(set(used)) != len(used):
            raise ConfigError(f"a mesh axis can split one axis of a tensor, not two: {dims}")
        for axis, (d, n) in enumerate(zip(dims, shape, strict=True)):
            if d is not None and self.size(d) and (type(n) is not int or n < 1):
                raise ConfigError(
                    f"axis {axis} of shape {shape} cannot be split: its size is not fixed"
                )


_meshes: dict[str, Mesh] = {}  # by device name, for the life of the process


def add_mesh(mesh: Mesh) -> Mesh:
    """Make a mesh known under its name."""
    _meshes[mesh.name] = mesh
    return mesh


def next_name() -> str:
    """The device name of the next mesh: the same in every process that makes the same meshes."""
    return f"{MESH_PREFIX}{len(_meshes) + 1}"


def mesh_of(name: str) -> Mesh:
    """The mesh with a device name."""
    found = _meshes.get(name)
    if found is None:
        raise DeviceError(f"there is no mesh {name}: make one with svod.distributed.mesh")
    return found


def has_meshes() -> bool:
    """Whether there is any mesh in this process."""
    return bool(_meshes)


def is_mesh(name: str | None) -> bool:
    """Whether a device name is that of a mesh."""
    return name is not None and name.startswith(MESH_PREFIX)
