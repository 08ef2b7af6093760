"""Every exception Svod raises on purpose.

All derive from `SvodError`, and each also from the builtin class a Python user would catch.
A message says what happened, where, the values, and what to do. All of them survive pickling,
because compiles may run in worker processes.
"""

from __future__ import annotations


class SvodError(Exception):
    """The base of every error Svod raises on purpose."""


class SvodWarning(UserWarning):
    """The category of every warning Svod gives."""


class ShapeError(SvodError, ValueError, RuntimeError):
    """Shapes, axes, sizes or options that do not fit together.

    A ValueError as in NumPy, and a RuntimeError, which is what torch raises for many of them.
    """


class DTypeError(SvodError, TypeError, RuntimeError):
    """A dtype that an operation does not take, or a pair with no common dtype.

    A TypeError as in NumPy, and a RuntimeError, which is what torch raises for many of them.
    """


class RangeError(SvodError, ValueError, OverflowError, RuntimeError):
    """A whole number that no dtype can hold."""


class ComplexOperand(DTypeError):
    """A complex operand where the graph takes real ones; tensors of complex numbers have formulas
    of their own for what they can do."""


class ArgumentError(SvodError, TypeError):
    """A call with arguments that the function does not take."""


class IndexingError(SvodError, IndexError):
    """An index that is out of range or of a kind that cannot index a tensor."""


class IndexRangeError(IndexingError, RuntimeError):
    """An index, a label or a class number that lies outside of its axis.

    An IndexError as in NumPy, and a RuntimeError, which is what torch raises for many of them.
    """


class WriteError(SvodError, RuntimeError):
    """A write in place to what does not have elements of its own, each at one position."""


class DeviceError(SvodError, RuntimeError):
    """A device that does not exist, is not usable here, or differs between operands."""


class ConfigError(SvodError, ValueError):
    """A knob or an option with a value that is not accepted."""


class CompileError(SvodError, RuntimeError):
    """A kernel that could not be turned into machine code."""


class RenderError(CompileError):
    """A kernel that could not be turned into the text its compiler reads."""


class CreateProgramError(CompileError):
    """Compiled code that the runtime of its device could not load."""


class RewriteLoopError(SvodError, RuntimeError):
    """A set of rules that does not come to rest."""


class GraphError(SvodError, ValueError):
    """A malformed graph: a node with the wrong sources, dtype or argument."""


class AllocationError(SvodError, MemoryError):
    """A device could not provide the memory that was asked for."""


class EmptySchedule(SvodError, ValueError):
    """There is nothing to compute."""


class VariableError(SvodError, ValueError):
    """A symbolic variable that is unbound, bound twice, or out of its range."""


class ExecutionError(SvodError, RuntimeError):
    """A prepared plan failed while it ran."""


class LinAlgError(ExecutionError, ValueError):
    """A matrix that a factorisation or a solution does not exist for.

    A RuntimeError as in torch, and a ValueError as in NumPy.
    """


class CacheError(SvodError, RuntimeError):
    """A cache was asked for something it cannot do; a broken entry is a miss, not this."""


class PlanFormatError(SvodError, ValueError):
    """A saved plan that is not one, is damaged, or has another format version."""


class UntrustedPlanError(SvodError, PermissionError):
    """A saved plan with machine code that somebody else has written, or that was changed."""


class VerifyError(SvodError, RuntimeError):
    """A stage produced a graph that breaks its own rules; carries the stage and the node."""

    def __init__(self, message: str, stage: str = "", node: str = "") -> None:
        super().__init__(message, stage, node)
        self.message, self.stage, self.node = message, stage, node

    def __str__(self) -> str:
        where = f"after {self.stage}: " if self.stage else ""
        node = f"\n  at {self.node}" if self.node else ""
        return f"{where}{self.message}{node}"


class BufferNotFound(SvodError, KeyError):
    """A plan refers to a buffer it does not hold."""

    def __init__(self, buffer: object, where: str = "") -> None:
        super().__init__(buffer, where)
        self.buffer, self.where = buffer, where

    def __str__(self) -> str:  # KeyError would print only the repr of the key
        return f"no buffer {self.buffer}" + (f" in {self.where}" if self.where else "")


class BatchOutputMismatch(SvodError, RuntimeError):
    """A batch gave another number of outputs than the tensors that wait for one."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(expected, actual)
        self.expected, self.actual = expected, actual

    def __str__(self) -> str:
        return f"the plan has {self.actual} outputs, but {self.expected} tensors wait for one"


class UnsupportedError(SvodError, NotImplementedError):
    """Something Svod does not do; `kind` says what sort of thing (operator, dtype, …)."""

    def __init__(self, message: str, kind: str = "operation") -> None:
        super().__init__(message, kind)
        self.message, self.kind = message, kind

    def __str__(self) -> str:
        return f"unsupported {self.kind}: {self.message}"
