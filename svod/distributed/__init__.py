"""``svod.distributed``: tensors split over the ranks of a mesh"""

from svod.distributed.meshes import mesh
from svod.distributed.report import Report, placement
from svod.ir.placement import Link, Mesh, Placement
from svod.reference.docstrings import describe

__all__ = ["Link", "Mesh", "Placement", "Report", "mesh", "placement"]

describe(globals(), "svod.distributed")
