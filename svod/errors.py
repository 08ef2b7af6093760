"""``svod.errors``: what Svod raises; `SvodError` is the base of all."""

from svod.base.deprecation import SvodDeprecationWarning as SvodDeprecationWarning
from svod.base.errors import (
    AllocationError,
    ArgumentError,
    BatchOutputMismatch,
    BufferNotFound,
    CacheError,
    CompileError,
    ComplexOperand,
    ConfigError,
    CreateProgramError,
    DeviceError,
    DTypeError,
    EmptySchedule,
    ExecutionError,
    GraphError,
    IndexingError,
    IndexRangeError,
    LinAlgError,
    PlanFormatError,
    RangeError,
    RenderError,
    RewriteLoopError,
    ShapeError,
    SvodError,
    SvodWarning,
    UnsupportedError,
    UntrustedPlanError,
    VariableError,
    VerifyError,
    WriteError,
)
from svod.reference.docstrings import describe

__all__ = [
    "AllocationError", "ArgumentError", "BatchOutputMismatch", "BufferNotFound", "CacheError",
    "CompileError", "ComplexOperand", "ConfigError", "CreateProgramError", "DTypeError",
    "DeviceError", "EmptySchedule", "ExecutionError", "GraphError", "IndexRangeError",
    "IndexingError", "LinAlgError", "PlanFormatError", "RangeError", "RenderError",
    "RewriteLoopError", "ShapeError", "SvodDeprecationWarning", "SvodError", "SvodWarning",
    "UnsupportedError", "UntrustedPlanError", "VariableError", "VerifyError", "WriteError",
]  # fmt: skip

describe(globals(), "svod.errors")
