"""Plans as code for programs without Python: an object, a C header and the weights."""

from svod.runtime.export.export import export_plan

__all__ = ["export_plan"]
