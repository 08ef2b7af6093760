"""``svod.distributed``: tensors split over the ranks of a mesh"""

from svod.distributed.batches import BatchesOfRank, from_own_rows, own_rows
from svod.distributed.carrier import Transfer, transfers
from svod.distributed.checkpoints import (
    CheckpointError,
    checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from svod.distributed.experts import Experts, expert_parallel
from svod.distributed.meshes import mesh
from svod.distributed.parallel import (
    DataParallel,
    layout_of,
    shard_module,
    tensor_parallel,
    zero,
)
from svod.distributed.report import Report, placement
from svod.distributed.stages import Pipeline
from svod.ir.placement import Link, Mesh, Placement
from svod.reference.docstrings import describe

__all__ = [
    "BatchesOfRank",
    "CheckpointError",
    "DataParallel",
    "Experts",
    "Link",
    "Mesh",
    "Pipeline",
    "Placement",
    "Report",
    "Transfer",
    "checkpoints",
    "expert_parallel",
    "from_own_rows",
    "layout_of",
    "load_checkpoint",
    "mesh",
    "own_rows",
    "placement",
    "save_checkpoint",
    "shard_module",
    "tensor_parallel",
    "transfers",
    "zero",
]

describe(globals(), "svod.distributed")
