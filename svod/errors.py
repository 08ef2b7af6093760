"""``svod.errors``: what Svod raises; `SvodError` is the base of all."""

from svod.base.deprecation import SvodDeprecationWarning as SvodDeprecationWarning
from svod.base.errors import *  # noqa: F403

__all__ = [
    "AllocationError", "ArgumentError", "BatchOutputMismatch", "BufferNotFound", "CacheError",
    "CompileError", "ComplexOperand", "ConfigError", "CreateProgramError", "DTypeError",
    "DeviceError", "EmptySchedule", "ExecutionError", "GraphError", "IndexRangeError",
    "IndexingError", "LinAlgError", "PlanFormatError", "RangeError", "RenderError",
    "RewriteLoopError", "ShapeError", "SvodDeprecationWarning", "SvodError", "SvodWarning",
    "UnsupportedError", "UntrustedPlanError", "VariableError", "VerifyError", "WriteError",
]  # fmt: skip
