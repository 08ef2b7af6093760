"""`svod run`, `compile`, `explain` and `profile`: a model or a plan from the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from svod.base.errors import ArgumentError
from svod.base.progress import shown, watch
from svod.tools.model_arguments import (
    file_name,
    given_arrays,
    is_plan,
    model_arrays,
    open_model,
    open_plan,
    prepared,
    random_array,
    require_file,
    shape_text,
)
from svod.tools.report import Report, byte_size, duration, table


def run(options: argparse.Namespace) -> Report:
    """Run once; outputs are described, and written as files where a folder is given."""
    call, _ = _callable(options, fill=options.random)
    start = time.perf_counter()
    results = call()
    seconds = time.perf_counter() - start
    rows = [_result(name, value) for name, value in results.items()]
    if options.output_dir is not None:
        _write(results, rows, Path(options.output_dir))
    lines = [
        [r["name"], r["type"], shape_text(r["shape"]), r.get("range", ""), r.get("file", "")]
        for r in rows
    ]
    data = {"model": options.model, "seconds": seconds, "outputs": rows}
    return Report(data, f"{table(lines)}\nran in {duration(seconds)}")


def _callable(
    options: argparse.Namespace, fill: bool
) -> tuple[Callable[[], dict[str, Any]], list[str]]:
    """A function that runs what the command line names, compiled already, and notes on it."""
    if is_plan(options.model):
        plan = open_plan(options)
        feeds = _plan_arrays(plan, options, fill)
        names = [p.name for p in plan.ports if p.is_output]

        def call_plan() -> dict[str, Any]:
            found = plan(**feeds)
            return dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))

        return call_plan, []
    model = open_model(options)
    feeds = model_arrays(model, options, fill)
    if prepared(model, options.model) is None:
        with watch(f"compiling {os.path.basename(options.model)} for these inputs"):
            model.run(feeds)
    names = [o.name for o in model.outputs]
    return lambda: dict(zip(names, model.run(feeds), strict=True)), list(model.notes)


def _plan_arrays(plan: Any, options: argparse.Namespace, fill: bool) -> dict[str, Any]:
    import numpy as np

    ports = [p for p in plan.ports if not p.is_output]
    found = given_arrays(options.input, [p.name for p in ports])
    missing = [p for p in ports if p.name not in found]
    if missing and not fill:
        names = " ".join([f"--input {p.name}=FILE" for p in missing])
        raise ArgumentError(f"inputs are missing: give {names}, or --random")
    generator = np.random.default_rng(0)
    for port in missing:
        shape = [n if isinstance(n, int) else max(n.vmin, 1) for n in port.shape]
        found[port.name] = random_array(generator, shape, port.array_dtype)
    return found


def _result(name: str, value: Any) -> dict[str, Any]:
    """An output in words; the range of its numbers where it has one."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        return {"name": name, "type": type(value).__name__, "shape": None}
    row: dict[str, Any] = {"name": name, "type": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "fiub":
        row["least"], row["most"] = float(value.min()), float(value.max())
        row["range"] = f"{row['least']:.6g} to {row['most']:.6g}"
    return row


def _write(results: Mapping[str, Any], rows: list[dict[str, Any]], folder: Path) -> None:
    import numpy as np

    taken: set[str] = set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for row, value in zip(rows, results.values(), strict=True):
            if not isinstance(value, np.ndarray) or value.dtype == object:
                raise ArgumentError(f"output {row['name']!r} is no array of numbers: no .npy file")
            name = file_name(row["name"])
            while name in taken:
                name += "_"
            taken.add(name)
            row["file"] = str(folder / f"{name}.npy")
            np.save(row["file"], value, allow_pickle=False)
    except OSError as error:
        raise ArgumentError(f"{folder}: {error.strerror}") from None


def compile_model(options: argparse.Namespace) -> Report:
    """Write the plan of a model."""
    if is_plan(options.model):
        raise ArgumentError(f"{options.model} is a plan already")
    model = open_model(options)
    start = time.perf_counter()
    plan = prepared(model, options.model)
    if plan is None:
        raise ArgumentError(f"there is no single plan to write: {'; '.join(model.notes)}")
    seconds = time.perf_counter() - start
    plan.save(options.output, portable=options.portable)
    data = {
        "model": options.model,
        "plan": options.output,
        "seconds": seconds,
        "kernels": len(set(plan.kernels())),
        "bytes": os.path.getsize(options.output),
    }
    text = (
        f"{options.output}: {data['kernels']} kernels, {byte_size(data['bytes'])}, "
        f"compiled in {duration(seconds)}"
    )
    return Report(data, text)


def explain(options: argparse.Namespace) -> Report:
    """The kernels that a model becomes, and why there is more than one plan where that is so."""
    from svod.tools.explain import explanation

    notes: list[str] = []
    parts: list[tuple[str, Any]] = []  # plans, each with where it ends and why
    if is_plan(options.model):
        parts.append(("", open_plan(options)))
    else:
        model = open_model(options)
        plan = prepared(model, options.model)
        if plan is None:
            with watch(f"compiling {os.path.basename(options.model)} in parts"):
                parts = [(part.text, part.plan) for part in model.explained()]
        else:
            parts.append(("", plan))
        notes = list(model.notes)
    shown, stages = list(notes), []
    for number, (text, plan) in enumerate(parts, 1):
        if text:
            shown.append(f"{number}. {text}")
        kernels = plan.prepared_kernels() if plan is not None else ()
        calls = [op.kernel.entry_point for op in kernels]
        stages.append({"text": text, "calls": calls})
        if calls:
            shown.append(explanation(plan, code=options.code).rstrip())
    if not parts:
        shown.append("there is no plan for all sizes")
    calls = [name for stage in stages for name in stage["calls"]]
    text = "\n".join(shown)
    data = {"model": options.model, "notes": notes, "calls": calls, "stages": stages, "text": text}
    return Report(data, text)


def profile(options: argparse.Namespace) -> Report:
    """The time of each kernel over some runs of a model, or over a script."""
    if options.model.endswith(".py"):
        require_file(options.model)
        with _recorded(options) as profiles:
            run_script(options.model, options.arguments, options.json)
    else:
        if options.arguments:
            raise ArgumentError("arguments are for scripts")
        call, _ = _callable(options, fill=True)
        call()
        with _recorded(options) as profiles:
            for _ in shown(range(options.runs), f"running {options.model}"):
                call()
    return _profile_report(options, profiles)


@contextlib.contextmanager
def _recorded(options: argparse.Namespace) -> Any:
    """Profile and origin of every kernel that runs in the block; the trace where it is wanted."""
    from svod.runtime import plan as plans
    from svod.runtime.trace import profile as trace

    found: list[Any] = []

    def note(plan: Any, run: Any) -> None:
        ops = plan.prepared_ops()
        found.extend([(p, ops[p.index].origin) for p in plan.profiles_of(run)])

    with trace(options.trace) if options.trace else contextlib.nullcontext():
        plans.watchers.append(note)
        try:
            yield found
        finally:
            plans.watchers.remove(note)


def run_script(script: str, arguments: Sequence[str], is_quiet: bool = False) -> None:
    """Run a program as Python would; what it prints goes to stderr where it shall be quiet."""
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    to = contextlib.redirect_stdout(sys.stderr) if is_quiet else contextlib.nullcontext()
    try:
        with to:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise ArgumentError(f"{script} ended with status {leaving.code}") from None
    finally:
        sys.argv, sys.path[:] = before


def _profile_report(options: argparse.Namespace, recorded: list[Any]) -> Report:
    from svod.runtime.profile import profile_table
    from svod.runtime.roofline import measured_roofline

    profiles = [profile for profile, _ in recorded]
    roofline = measured_roofline() if any(p.kernel.bytes_moved for p in profiles) else None
    found = profile_table(profiles, roofline)
    data = {
        "model": options.model,
        "runs": None if options.model.endswith(".py") else options.runs,
        "total_ns": found.total_ns,
        "wall_ns": found.wall_ns,
        "kernels": [{name: getattr(row, name) for name in row.__slots__} for row in found.rows],
        "trace": options.trace,
    }
    sums = {by: _sums(recorded, by) for by in ("module", "line")}
    data["by"] = sums
    text = str(found) if profiles else "no kernel ran"
    if options.by != "kernel" and profiles:
        rows: list[Sequence[object]] = [(options.by, "calls", "time", "share")]
        for row in sums[options.by]:
            part = f"{row['ns'] / max(1, found.total_ns):.1%}"
            rows.append((row["name"], row["calls"], duration(row["ns"] / 1e9), part))
        text = table(rows, right=frozenset({1, 2, 3}))
    if options.trace:
        text += f"\n{options.trace} opens in ui.perfetto.dev"
    return Report(data, text)


def _sums(recorded: list[Any], by: str) -> list[dict[str, Any]]:
    """Calls and time by module, or by line of user code, the longest first."""
    found: dict[str, dict[str, Any]] = {}
    for profile, origin in recorded:
        if origin is None:
            name = "(no line)"
        elif by == "module":
            name = origin[2] or "(outside of modules)"
        else:
            name = f"{os.path.basename(origin[0])}:{origin[1]}"
        row = found.setdefault(name, {"name": name, "calls": 0, "ns": 0})
        row["calls"] += 1
        row["ns"] += profile.elapsed_ns
    return sorted(found.values(), key=lambda row: -row["ns"])
