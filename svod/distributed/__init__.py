"""``svod.distributed``: tensors split over the ranks of a mesh"""

from svod.distributed.checkpoints import (
    CheckpointError,
    checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from svod.distributed.meshes import mesh
from svod.distributed.parallel import (
    DataParallel,
    layout_of,
    shard_module,
    tensor_parallel,
    zero,
)
from svod.distributed.pipeline import Pipeline
from svod.distributed.report import Report, placement
from svod.distributed.samplers import BatchesOfRank, from_own_rows, own_rows
from svod.ir.placement import Link, Mesh, Placement

__all__ = [
    "BatchesOfRank",
    "CheckpointError",
    "DataParallel",
    "Link",
    "Mesh",
    "Pipeline",
    "Placement",
    "Report",
    "checkpoints",
    "from_own_rows",
    "layout_of",
    "load_checkpoint",
    "mesh",
    "own_rows",
    "placement",
    "save_checkpoint",
    "shard_module",
    "tensor_parallel",
    "zero",
]
