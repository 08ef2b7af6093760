"""Everything a plan knows, as one JSON object: what the page shows, and what programs may read.

In: a plan. Out: plain dictionaries, lists, numbers and texts. Files of user code are named without
their folders unless paths are asked for. Kernels are listed once, ops refer to them by number.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable
from math import prod
from typing import Any

from svod._version import __version__
from svod.base import timing
from svod.base.errors import SvodError
from svod.device.buffer import Buffer
from svod.runtime.ops import (
    CompiledKernel,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)
from svod.runtime.plan import ExecutionPlan
from svod.runtime.profile import KernelProfile
from svod.schedule.reasons import RULES, Reason
from svod.tools.viz.buffer_lives import buffers, read_of, written_of
from svod.tools.viz.kernel_json import body_nodes, body_order, kernel_details
from svod.tools.viz.timeline import measured, timeline, times_by_op

FORMAT = 1  # of the object
MOST_DETAILED = 400  # kernels with their passes and code; those with the most work come first
MOST_SPANS = 3000  # of preparation

Progress = Callable[[int, int], None]


def plan_data(
    plan: ExecutionPlan,
    title: str = "plan",
    *,
    runs: int = 3,
    profiles: list[KernelProfile] | None = None,
    paths: bool = False,
    details: bool = True,
    step: Progress | None = None,
) -> dict[str, Any]:
    """All that is known of a plan; ``runs=0`` does not run it and leaves out times.

    Runs are those of a copy, so weights and state stay as they are; ``profiles`` are those of a run
    that was watched, and take their place. With ``details=False`` the passes and the code of
    kernels are left out, which is what takes long.
    """
    ops = plan.prepared_ops()
    preparation = _preparation()  # not that of the details
    problem = ""
    if profiles is None:
        try:
            profiles = measured(plan, runs) if runs else []
        except SvodError as error:  # inputs that nobody has bound yet may hold anything
            profiles, problem = [], f"{type(error).__name__}: {error}"
            if not paths:
                problem = _FOLDERS.sub("", problem)
    times = times_by_op(profiles)
    held = plan.buffers()
    origins = _Origins(paths)
    table = _Kernels(ops, times)
    level = {index: number for number, group in enumerate(plan.levels) for index in group}
    step_of = {index: number for number, index in enumerate(plan.order)}
    rows = []
    for index, op in enumerate(ops):
        row = {
            "kind": _KINDS[type(op)],
            "name": _name(op),
            "step": step_of[index],
            "level": level.get(index, 0),
            "writes": written_of(op),
            "reads": read_of(op),
            "device": _device(op, held, plan.device()),
            "origin": origins.number(getattr(op, "origin", None)),
        }
        if index in times:
            row["ns"] = times[index]
        if isinstance(op, PreparedKernel):
            row["kernel"] = table.numbers[op.kernel]
            if len(op.kernel.globals) == len(op.buffer_indices):
                row["args"] = list(op.buffer_indices)
            row.update(_facts(plan, op, origins))
        elif isinstance(op, PreparedCustomFunction) and op.kind.startswith("distributed."):
            row["mesh"], row["axis"] = str(op.attrs[0]), str(op.attrs[1])
        rows.append(row)
    if details:
        table.add_details(step)
    return {
        "format": FORMAT,
        "version": __version__,
        "title": title,
        "device": plan.device(),
        "ops": rows,
        "kernels": table.rows,
        "buffers": buffers(plan),
        "memory": _memory(plan),
        "origins": origins.rows,
        "rules": RULES,
        "timeline": timeline(profiles),
        "roofline": _roofline() if profiles else None,
        "problem": problem,
        "preparation": preparation,
        "variables": plan.variables,
    }


# The folders before a file and its line.
_FOLDERS = re.compile(r"(?:[A-Za-z]:)?[^\s('\"]*[/\\](?=[^/\\]+, line \d)")

_KINDS: dict[type, str] = {
    PreparedKernel: "kernel",
    PreparedCopy: "copy",
    PreparedBufferView: "view",
    PreparedCustomFunction: "function",
}


def _device(op: PreparedOp, held: tuple[Buffer, ...], primary: str) -> str:
    """Where an op runs; what is no kernel runs where its first buffer is."""
    if isinstance(op, PreparedKernel):
        return op.device
    return held[op.buffer_indices[0]].device if op.buffer_indices else primary


def _name(op: PreparedOp) -> str:
    if isinstance(op, PreparedKernel):
        return shown_name(op.kernel.entry_point)
    return op.kind if isinstance(op, PreparedCustomFunction) else _KINDS[type(op)]


def shown_name(entry_point: str) -> str:
    """The name of a kernel without the digest that makes it unique."""
    head, _, tail = entry_point.rpartition("_")
    is_digest = len(tail) == 10 and all(c in "0123456789abcdef" for c in tail)
    return head if head and is_digest else entry_point


class _Origins:
    """Origins by number, each once, with the text of its line."""

    def __init__(self, paths: bool) -> None:
        self.paths = paths
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}

    def number(self, origin: tuple[str, int, str] | None) -> int | None:
        if origin is None:
            return None
        found = self._numbers.get(origin)
        if found is None:
            file, line, module = origin
            found = self._numbers[origin] = len(self.rows)
            shown = file if self.paths else os.path.basename(file)
            text = linecache.getline(file, line).strip()
            self.rows.append({"file": shown, "line": line, "module": module, "text": text})
        return found


def _facts(plan: ExecutionPlan, op: PreparedKernel, origins: _Origins) -> dict[str, Any]:
    """Where the parts of a kernel come from, and why its result is stored and they are not."""
    row: dict[str, Any] = {}
    reason = plan.facts.reason(op.id)
    if reason is not None:
        row["reason"] = _reason(reason)
    kept, marks = plan.facts.kept(op.id), list(plan.facts.origins(op.id))
    if kept or marks:
        place = body_order(op.ast)
        row["inside"] = [[place[n], _reason(r)] for n, r in kept if n in place]
        row["marks"] = [[place[n], origins.number(o)] for n, o in marks if n in place]
    return row


def _reason(reason: Reason) -> list[Any]:
    """Rule, whether it is stored, uses, evaluations, elements, and the two costs."""
    return [reason.rule, int(reason.is_stored), *reason[2:]]


class _Kernels:
    """The distinct kernels of a plan, those with the most work with all details."""

    def __init__(self, ops: tuple[PreparedOp, ...], times: dict[int, int]) -> None:
        self.numbers: dict[CompiledKernel, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.first: list[PreparedKernel] = []
        self.spent: list[int] = []
        for index, op in enumerate(ops):
            if not isinstance(op, PreparedKernel):
                continue
            number = self.numbers.get(op.kernel)
            if number is None:
                number = self.numbers[op.kernel] = len(self.rows)
                self.rows.append(_kernel(op))
                self.first.append(op)
                self.spent.append(0)
            self.rows[number]["calls"] += 1
            self.spent[number] += times.get(index, op.kernel.flops or 0)

    def add_details(self, step: Progress | None) -> None:
        order = sorted(range(len(self.rows)), key=lambda n: -self.spent[n])[:MOST_DETAILED]
        for done, number in enumerate(order):
            self.rows[number]["details"] = kernel_details(self.first[number])
            if step is not None:
                step(done + 1, len(order))


def _kernel(op: PreparedKernel) -> dict[str, Any]:
    kernel = op.kernel
    opts, by = kernel.choice or ((), "")
    return {
        "name": shown_name(kernel.entry_point),
        "symbol": kernel.entry_point,
        "device": kernel.device,
        "calls": 0,
        "flops": kernel.flops,
        "bytes": kernel.bytes_moved,
        "opts": [str(o) for o in opts],
        "by": by,
        "launch": [list(size) for size in kernel.dims if size] if kernel.dims else [],
        "hardware": _hardware(kernel),
        "slots": list(kernel.globals),
        "nodes": body_nodes(op.ast) if op.ast.src else [],
    }


def _hardware(kernel: CompiledKernel) -> dict[str, int]:
    """What a launch takes of a GPU, where the driver says so."""
    ask = getattr(kernel.program, "resources", None)
    if ask is None or kernel.dims is None:
        return {}
    try:
        return dict(ask(prod(kernel.dims.local_size or (1,))))
    except SvodError:  # a page without these numbers is better than none
        return {}


def _memory(plan: ExecutionPlan) -> dict[str, Any]:
    report = plan.memory
    names = ("buffers", "reused", "logical_bytes", "planned_bytes", "lower_bound", "fixed_bytes",
             "constant_bytes", "peak_bytes")  # fmt: skip
    return {"mode": report.mode.value, **{name: getattr(report, name) for name in names}}


def _roofline() -> dict[str, float]:
    from svod.runtime.roofline import measured_roofline

    found = measured_roofline()
    return {"gbs": found.gigabytes_per_second, "gflops": found.gigaflops}


def _preparation() -> list[list[Any]]:
    """The latest steps of preparation in this process: name, start and end, thread."""
    spans = timing.spans()[-MOST_SPANS:]
    origin = min([s.start_ns for s in spans], default=0)
    threads: dict[int, int] = {}
    return [
        [s.name, s.start_ns - origin, s.end_ns - origin, threads.setdefault(s.thread, len(threads))]
        for s in spans
    ]
