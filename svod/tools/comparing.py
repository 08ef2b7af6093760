"""`svod bench`: a model beside onnxruntime, where it is installed.

Both get the same inputs and number of threads. After a first run, which is timed on its own, they
take turns in blocks with a rest between them, so that neither has the quieter minutes nor runs
beside the other's spinning threads; the median of single runs is compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from svod.base.errors import ArgumentError
from svod.base.progress import shown, watch
from svod.tools.model_arguments import is_plan, model_arrays, open_model
from svod.tools.report import Report, duration, table

BLOCKS = 8  # turns of each runtime
REST = 0.05  # seconds after a block: pools of threads stop spinning


def bench(options: argparse.Namespace) -> Report:
    """The verb."""
    if is_plan(options.model):
        raise ArgumentError("bench takes an ONNX file; svod profile times a plan")
    import svod.frontend.onnx  # noqa: F401  # importing is no part of loading a model
    from svod.base.threads import thread_budget

    threads = thread_budget().threads
    start = time.perf_counter()
    model = open_model(options)
    feeds = model_arrays(model, options, fill=True)
    names = [i.name for i in model.inputs]
    with watch(f"compiling {os.path.basename(options.model)}"):
        ours = model.run(feeds)
    runners: dict[str, Callable[[], Any]] = {"svod": lambda: model.run(feeds)}
    first = {"svod": time.perf_counter() - start}
    notes = list(model.notes)
    peer, problem = _onnxruntime(options.model, threads)
    error = None
    if peer is not None:
        given = {n: feeds[n] for n in names}
        try:
            theirs = peer[0].run(None, given)
        except Exception as failure:  # whatever it raises, ours is still timed
            problem = f"onnxruntime does not run it: {str(failure).splitlines()[0]:.200}"
        else:
            first["onnxruntime"] = time.perf_counter() - peer[1]
            error = _error(ours, theirs)
            runners["onnxruntime"] = lambda: peer[0].run(None, given)
    times = interleaved(runners, options.seconds)
    rows = [
        {
            "runtime": name,
            "median": statistics.median(times[name]),
            "best": min(times[name]),
            "runs": len(times[name]),
            "first": first[name],
        }
        for name in runners
    ]
    data: dict[str, Any] = {
        "model": options.model, "threads": threads, "runtimes": rows, "error": error,
        "notes": notes + ([problem] if problem else []),
    }  # fmt: skip
    if len(rows) == 2:
        data["ratio"] = rows[1]["median"] / rows[0]["median"]
    return Report(data, _text(data))


def interleaved(runners: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Times of single runs, in turns; ``seconds`` is for each runner, and each runs thrice."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in shown(range(BLOCKS), "timing"):
        for name, runner in runners.items():
            end = time.perf_counter() + seconds / BLOCKS
            runner()  # its caches and threads are warm again
            while True:
                start = time.perf_counter()
                runner()
                now = time.perf_counter()
                times[name].append(now - start)
                if now >= end:
                    break
            time.sleep(REST)
    return times


def _onnxruntime(path: str, threads: int) -> tuple[tuple[Any, float] | None, str]:
    """A session and when its making began, or why there is none."""
    try:
        import onnxruntime
    except ImportError:
        return None, "onnxruntime is not installed: pip install onnxruntime to compare"
    start = time.perf_counter()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])
    except Exception as failure:
        return None, f"onnxruntime does not load it: {str(failure).splitlines()[0]:.200}"
    return (session, start), ""


def _error(ours: list[Any], theirs: list[Any]) -> float | None:
    """The largest difference relative to the largest number of each output."""
    import numpy as np

    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.shape != b.shape:
            return None
        if a.size and a.dtype.kind in "fiub":
            wide = b.astype(np.float64)
            scale = float(np.max(np.abs(wide))) or 1.0
            worst = max(worst, float(np.max(np.abs(a.astype(np.float64) - wide))) / scale)
    return worst


def _text(data: dict[str, Any]) -> str:
    header = ["runtime", "median", "best", "runs", "load and first run"]
    rows = [
        [r["runtime"], duration(r["median"]), duration(r["best"]), r["runs"], duration(r["first"])]
        for r in data["runtimes"]
    ]
    lines = [table([header, *rows], right=frozenset({1, 2, 3, 4}))]
    if "ratio" in data:
        lines.append(f"onnxruntime's time / ours = {data['ratio']:.2f}, {data['threads']} threads")
    if data["error"] is not None:
        lines.append(f"the results differ by {data['error']:.1e} of the largest number at most")
    return "\n".join(lines + data["notes"])
