"""Meshes: ranks in a grid with named axes, all of them in this process or one in each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from svod.base.errors import ConfigError
from svod.device.names import canonical
from svod.ir.placement import BUCKET_BYTES, Link, Mesh, add_mesh, next_name


def mesh(
    axes: Mapping[str, int],
    devices: Sequence[str] | None = None,
    carrier: str = "auto",
    link: Link | None = None,
    timeout: float = 10.0,
    bucket: int = BUCKET_BYTES,
) -> Mesh:
    """A grid of ranks: ``mesh({"data": 2, "model": 2})``.

    With the carrier ``"local"`` every rank is in this process, with ``"mpi"`` each process is one
    rank; ``"auto"`` is MPI where the process was started as one of several. ``link`` is what the
    choice between placements reckons with. A rank that is ``timeout`` seconds late for a
    collective makes the others raise an error. Folds that do not depend on each other go together,
    up to ``bucket`` bytes.
    """
    if not axes or any(type(n) is not int or n < 1 for n in axes.values()):
        raise ConfigError(f"a mesh needs axes with sizes of at least 1, got {dict(axes)}")
    if carrier not in ("auto", "local", "mpi"):
        raise ConfigError(f"the carrier {carrier!r} is none of auto, local and mpi")
    found = tuple(axes.items())
    count = 1
    for _, size in found:
        count *= size
    names = tuple([canonical(d) for d in devices or [f"CPU:{i}" for i in range(count)]])
    if len(names) != count:
        raise ConfigError(f"a mesh of {count} ranks needs as many devices, got {len(names)}")
    if any(n.partition(":")[0] != "CPU" for n in names):
        raise ConfigError(f"the ranks of a mesh are CPUs for now, not {', '.join(names)}")
    if carrier == "auto":
        carrier = "mpi" if is_launched() else "local"
    link = link or Link()
    if carrier == "local":
        return add_mesh(Mesh(next_name(), found, names, tuple(range(count)), link, bucket))
    from svod.distributed.carrier import connect

    world = connect(count, timeout)
    made = add_mesh(Mesh(next_name(), found, names, (world.rank,), link, bucket))
    world.add_groups(made.name)
    return made


def is_launched() -> bool:
    """Whether this process was started by MPI as one of several ranks."""
    return any(int(os.environ.get(name, "1")) > 1 for name in _SIZES)


_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # what launchers of MPI set
