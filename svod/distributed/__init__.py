"""``svod.distributed``: tensors split over the ranks of a mesh"""

from svod.distributed.meshes import mesh
from svod.distributed.report import Report, placement
from svod.ir.placement import Link, Mesh, Placement

__all__ = ["Link", "Mesh", "Placement", "Report", "mesh", "placement"]
