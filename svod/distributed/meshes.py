"""Meshes: ranks in a grid with named axes, all of them in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from svod.base.errors import ConfigError
from svod.device.names import canonical
from svod.ir.placement import Link, Mesh, add_mesh, next_name


def mesh(
    axes: Mapping[str, int],
    devices: Sequence[str] | None = None,
    link: Link | None = None,
) -> Mesh:
    """A grid of ranks: ``mesh({"data": 2, "model": 2})``.

    Every rank is in this process. ``link`` is what the choice between placements reckons with.
    """
    if not axes or any(type(n) is not int or n < 1 for n in axes.values()):
        raise ConfigError(f"a mesh needs axes with sizes of at least 1, got {dict(axes)}")
    found = tuple(axes.items())
    count = 1
    for _, size in found:
        count *= size
    names = tuple([canonical(d) for d in devices or [f"CPU:{i}" for i in range(count)]])
    if len(names) != count:
        raise ConfigError(f"a mesh of {count} ranks needs as many devices, got {len(names)}")
    if any(n.partition(":")[0] != "CPU" for n in names):
        raise ConfigError(f"the ranks of a mesh are CPUs for now, not {', '.join(names)}")
    hosted = tuple(range(count))
    return add_mesh(Mesh(next_name(), found, names, hosted, link or Link()))
