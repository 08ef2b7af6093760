"""The native launcher and the thread pool: one call from Python runs a whole plan."""

from svod.runtime.native.code import launcher_ir
from svod.runtime.native.launcher import Launcher, launcher, load, set_threads, thread_budget
from svod.runtime.native.records import Kind, RecordArray, Slice, Stamps

__all__ = [
    "Kind",
    "Launcher",
    "RecordArray",
    "Slice",
    "Stamps",
    "launcher",
    "launcher_ir",
    "load",
    "set_threads",
    "thread_budget",
]
