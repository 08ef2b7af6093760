"""Running: prepared ops, execution plans, the memory planner, profiles."""

from svod.runtime.builder import ExecutionPlanBuilder
from svod.runtime.custom import (
    register_custom_function,
    registered_custom_functions,
    unregister_custom_function,
)
from svod.runtime.failures import OpError, RunErrors
from svod.runtime.memory import MemoryItem, MemoryMode, MemoryPlan, MemoryReport, plan_memory
from svod.runtime.ops import (
    CompiledKernel,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    RuntimeVar,
    collect_runtime_vars,
)
from svod.runtime.plan import ExecutionPlan
from svod.runtime.profile import KernelProfile, ProfileTable, Roofline, profile_table, write_trace

__all__ = [
    "CompiledKernel",
    "ExecutionPlan",
    "ExecutionPlanBuilder",
    "KernelProfile",
    "MemoryItem",
    "MemoryMode",
    "MemoryPlan",
    "MemoryReport",
    "OpError",
    "PreparedBufferView",
    "PreparedCopy",
    "PreparedCustomFunction",
    "PreparedKernel",
    "PreparedOp",
    "ProfileTable",
    "Roofline",
    "RunErrors",
    "RuntimeVar",
    "collect_runtime_vars",
    "plan_memory",
    "profile_table",
    "register_custom_function",
    "registered_custom_functions",
    "unregister_custom_function",
    "write_trace",
]
