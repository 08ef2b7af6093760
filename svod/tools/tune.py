"""`svod tune`: search for better loops and keep what is found, for every later process.

A target is a built-in workload with its sizes, such as ``matmul:512x768x768``, or ``module:name``
of a function that returns lazy tensors. Each distinct kernel of a target is tuned on its own.
``svod tune machine`` measures the numbers of the cost model (`svod.tools.machine`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from svod.base.errors import ConfigError
from svod.tools.report import Report, duration, table

DEFAULT_TARGETS = ("matmul:512x512x512", "matmul:1024x1024x1024", "matvec:4096x4096")


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """The grammar of `svod tune`."""
    verb.add_argument(
        "targets",
        nargs="*",
        help=f"{', '.join(f'{n}:{s}' for n, (s, _) in WORKLOADS.items())}, or module:function; "
        "machine alone measures what the cost model takes for granted; "
        f"without any: {' '.join(DEFAULT_TARGETS)}",
    )
    verb.add_argument("--budget", type=_seconds, default=60.0, help="seconds for all (default 60)")
    verb.add_argument("--width", type=_width, default=4, help="candidates kept (default 4)")
    verb.add_argument("--again", action="store_true", help="also search for what is tuned already")
    verb.add_argument("--export", metavar="FILE", help="write everything that is tuned to a file")
    verb.add_argument("--import", metavar="FILE", dest="take", help="take what a file holds first")


def tune(options: argparse.Namespace) -> Report:
    """Import, search, export: what the command line asks for."""
    from svod.optimize.tuned import tuned_store

    if options.targets == ["machine"]:
        from svod.tools.machine import tune_machine

        return tune_machine()
    data: dict[str, Any] = {}
    lines = []
    if options.take:
        data["imported"] = tuned_store().import_from(Path(options.take))
        lines.append(f"{data['imported']} entries taken from {options.take}")
    only_files = (options.take or options.export) and not options.targets
    if not only_files:
        targets = options.targets or DEFAULT_TARGETS
        data["kernels"] = tune_targets(targets, options.budget, options.width, options.again)
        lines.append(_kernel_table(data["kernels"]))
    if options.export:
        data["exported"] = tuned_store().export(Path(options.export))
        lines.append(f"{data['exported']} entries written to {options.export}")
    return Report(data, "\n".join(lines))


def tune_targets(
    targets: Sequence[str], budget: float, width: int = 4, again: bool = False
) -> list[dict[str, Any]]:
    """Search for every kernel of the targets; what time is left is shared by those left."""
    from svod.codegen.naming import kernel_name
    from svod.device.cpu.host import host_machine
    from svod.optimize.beam import BeamConfig
    from svod.optimize.tuned import tuned_store
    from svod.runtime.search import search_kernel
    from svod.runtime.search_pool import WorkerPool
    from svod.runtime.tuning import tuning_identity

    machine = host_machine()
    bodies = {body: target for target in targets for body in target_kernels(target)}
    end = time.monotonic() + budget
    found = []
    with WorkerPool() as pool:
        for place, (body, target) in enumerate(bodies.items()):
            row: dict[str, Any] = {"target": target, "kernel": kernel_name(body)}
            found.append(row)
            known = tuned_store().get(body.content_hash, tuning_identity(machine))
            left = (end - time.monotonic()) / (len(bodies) - place)
            if known is not None and known.width >= width and not again:
                row.update(state="known", seconds=known.seconds, opts=list(map(str, known.opts)))
            elif left <= 0:
                row.update(state="no time left")
            else:
                config = BeamConfig.from_environment(width, left)
                result = search_kernel(body, machine, config, None, pool)
                row.update(
                    state="heuristics" if result.is_heuristic else "faster",
                    seconds=result.seconds,
                    heuristic_seconds=result.heuristic_seconds,
                    tried=result.tried,
                    opts=list(map(str, result.opts)),
                )
    return found


def target_kernels(target: str) -> list[Any]:
    """The distinct kernels of a target, as they reach the compiler."""
    from svod.ir import ops as O
    from svod.tensor.recording.realize import schedule_of

    tensors = [t for t in _tensors(target) if t.uop.op != O.BUFFER]
    if not tensors:
        raise ConfigError(f"{target} gives no lazy tensor: there is nothing to tune")
    schedule, _ = schedule_of(tensors)
    return list(dict.fromkeys(i.body for i in schedule.items if i.body.op == O.SINK))


def _tensors(target: str) -> list[Any]:
    name, colon, rest = target.partition(":")
    if not colon:
        raise ConfigError(f"{target!r} is no target: use name:sizes or module:function")
    if name in WORKLOADS:
        form, build = WORKLOADS[name]
        sizes = rest.split("x")
        if len(sizes) != len(form.split("x")) or not all(s.isdigit() and int(s) for s in sizes):
            raise ConfigError(f"{target!r} has no sizes for {name}: use {name}:{form}")
        return [build(*map(int, sizes))]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(name), rest)
    except (ImportError, AttributeError) as problem:
        known = ", ".join(WORKLOADS)
        raise ConfigError(
            f"{target!r} is neither one of {known} nor a function: {problem}"
        ) from None
    made = function()
    return list(made) if isinstance(made, list | tuple) else [made]


def _zeros(*shape: int) -> Any:
    import numpy as np

    from svod import Tensor

    return Tensor(np.zeros(shape, np.float32))


def _softmax(rows: int, columns: int) -> Any:
    x = _zeros(rows, columns)
    grown = (x - x.amax(1, True)).exp()
    return grown / grown.sum(1, True)


def _layernorm(rows: int, columns: int) -> Any:
    x = _zeros(rows, columns)
    apart = x - x.mean(1, True)
    return apart * ((apart * apart).mean(1, True) + 1e-5).rsqrt()


WORKLOADS: dict[str, tuple[str, Callable[..., Any]]] = {
    "matmul": ("MxKxN", lambda m, k, n: _zeros(m, k) @ _zeros(k, n)),
    "matvec": ("MxK", lambda m, k: _zeros(m, k) @ _zeros(k)),
    "batched": ("BxMxKxN", lambda b, m, k, n: _zeros(b, m, k) @ _zeros(b, k, n)),
    "softmax": ("RxC", _softmax),
    "layernorm": ("RxC", _layernorm),
    "sum": ("RxC", lambda r, c: _zeros(r, c).sum(1)),
    "columns": ("RxC", lambda r, c: _zeros(r, c).sum(0)),
}


def _kernel_table(rows: Sequence[dict[str, Any]]) -> str:
    lines: list[tuple[object, ...]] = [("kernel", "time", "heuristics", "found")]
    for row in rows:
        times = [
            duration(row[key]) if key in row else "-" for key in ("seconds", "heuristic_seconds")
        ]
        lines.append((row["kernel"], *times, row["state"]))
    return table(lines, 0, frozenset({1, 2}))


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def _width(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError(f"{text} is not a width from 1 to 64")
    return value
