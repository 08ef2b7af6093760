"""ONNX models: Svod, onnxruntime and openvino in one run, and how soon each has a first result.

`python -m bench.onnx_models [names] [--threads 2] [--rounds 12] [--peers onnxruntime,openvino]`

Models are exported once, with random weights, by the exporters of the tests. Contenders take turns
within one process, get the same inputs and threads, and their results are compared; a figure is the
median of the rounds in wall time or, with `--cpu`, the least in process time, for machines that
others use as well. The ratio is the best peer's time over ours: 1.00 or more is the bar.

First results have a process each, from opening the file to numbers, after the contender's import:
cold has no kept files, warm is the next process. onnxruntime and openvino keep none and run once.
`--profile` prints the kernels of Svod's plans that take most time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

PEERS = ("onnxruntime", "openvino")
TOLERANCE = 1e-3  # of the largest number of a result
Run = Callable[[], Any]


def _images() -> Any:
    return np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)


def _tokens() -> Any:
    return np.random.default_rng(0).integers(1, 30000, (1, 128))


def _sound() -> Any:
    return np.random.default_rng(0).standard_normal((1, 80, 3000)).astype(np.float32)


INPUTS: dict[str, Callable[[], Any]] = {
    "resnet50": _images, "mobilenetv3": _images, "bert": _tokens, "gpt2": _tokens,
    "whisper_encoder": _sound, "swin_tiny": _images, "convnext_tiny": _images,
    "efficientnet_b0": _images, "vit_b16": _images,
}  # fmt: skip
BARS = ("resnet50", "mobilenetv3", "bert", "gpt2", "whisper_encoder")


def _svod(path: str, threads: int, x: Any) -> Run:
    import svod

    svod.set_threads(threads)
    model = svod.onnx.load(path)
    return lambda: model(x)


def _onnxruntime(path: str, threads: int, x: Any) -> Run:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, feeds)[0]


def _openvino(path: str, threads: int, x: Any) -> Run:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
    return lambda: request.infer([x])[0]


CONTENDERS: dict[str, Callable[[str, int, Any], Run]] = {
    "svod": _svod,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def _imported(contender: str) -> None:
    """Import what a contender is, which is no part of its first result."""
    if contender == "svod":
        import svod.frontend.onnx  # noqa: F401
    else:
        __import__(contender)


def exported(name: str, folder: Path) -> Path:
    """The file of a model; made by a process of its own, whose threads would disturb."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "bench.onnx_models", "--export", path], check=True)
    return path


def _export(path: Path) -> None:
    from tests.frontend.onnx import zoo

    zoo.export(zoo.case_of(path.stem, small=False), path)


def steady(
    path: Path, contenders: list[str], chosen: argparse.Namespace
) -> tuple[dict[str, float], float, Run]:
    """Seconds per run of each contender, the largest difference, and our run."""
    x = INPUTS[path.stem]()
    runs = {name: CONTENDERS[name](str(path), chosen.threads, x) for name in contenders}
    results = {name: np.array(run()) for name, run in runs.items()}
    worst = max([_difference(results["svod"], r) for r in results.values()])
    clock = time.process_time if chosen.cpu else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(chosen.rounds):
        for name, run in runs.items():
            run()  # its caches and threads are warm again
            start = clock()
            run()
            times[name].append(clock() - start)
            time.sleep(chosen.rest)  # threads of pools stop spinning
    middle = min if chosen.cpu else median
    return {name: middle(found) for name, found in times.items()}, worst, runs["svod"]


def _difference(ours: Any, theirs: Any) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def first_results(path: Path, contenders: list[str], chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds from the file to the first result, the least of some processes; ours cold and
    warm."""
    found: dict[str, list[float]] = {}
    for _ in range(chosen.first):
        for name in contenders:
            with tempfile.TemporaryDirectory() as kept:
                turns = ("svod cold", "svod warm") if name == "svod" else (name,)
                for turn in turns:
                    found.setdefault(turn, []).append(_first(path, name, kept, chosen))
    return {turn: min(seconds) for turn, seconds in found.items()}


def _first(path: Path, name: str, kept: str, chosen: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "bench.onnx_models", "--timed", name, str(path)]
    command += ["--threads", str(chosen.threads)] + (["--cpu"] if chosen.cpu else [])
    environment = {**os.environ, "SVOD_CACHE_DIR": kept}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout.split()[-1])


def _timed(name: str, path: Path, chosen: argparse.Namespace) -> None:
    """What a process for a first result does."""
    clock = time.process_time if chosen.cpu else time.perf_counter
    x = INPUTS[path.stem]()
    _imported(name)
    start = clock()
    CONTENDERS[name](str(path), chosen.threads, x)()
    print(clock() - start)


def kernels(run: Run, most: int) -> list[str]:
    """The kernels of one run that take most time: milliseconds, how often, name."""
    import svod

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with svod.profile(path):
            run()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    spent: dict[str, list[float]] = {}
    for event in events:
        if event.get("ph") == "X":
            spent.setdefault(event["name"], []).append(event["dur"] / 1e3)
    ordered = sorted(spent.items(), key=lambda item: -sum(item[1]))[:most]
    return [f"  {sum(times):9.3f} ms {len(times):5} {name}" for name, times in ordered]


def measure(name: str, contenders: list[str], chosen: argparse.Namespace) -> str:
    """The lines of one model."""
    path = exported(name, Path(chosen.folder))
    times, worst, run = steady(path, contenders, chosen)
    cells = [f"{contender} {times[contender] * 1e3:.2f} ms" for contender in contenders]
    theirs = [times[c] for c in contenders if c != "svod"]
    if theirs:
        cells.append(f"ratio {min(theirs) / times['svod']:.2f}")
    cells.append(f"difference {worst:.0e}" + (" (too large)" if worst > TOLERANCE else ""))
    lines = [f"{name:16} " + ", ".join(cells)]
    if chosen.first:
        first = first_results(path, contenders, chosen)
        lines.append("  first result   " + ", ".join([f"{n} {s:.2f} s" for n, s in first.items()]))
    if chosen.profile:
        lines += kernels(run, chosen.profile)
    return "\n".join(lines)


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.onnx_models", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(INPUTS)}; the bars by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--first", type=int, default=2, help="processes for each first result")
    parser.add_argument("--rest", type=float, default=0.05, help="seconds between turns")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--folder", default="build/zoo", help="where the files are")
    parser.add_argument("--cpu", action="store_true", help="process time")
    parser.add_argument("--profile", type=int, default=0, help="how many kernels to show")
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--timed", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    if chosen.export:
        return _export(chosen.export)
    if chosen.timed:
        return _timed(chosen.timed[0], Path(chosen.timed[1]), chosen)
    wanted = [p for p in PEERS if p in chosen.peers.split(",")]
    contenders = ["svod", *[p for p in wanted if find_spec(p) is not None]]
    for name in chosen.names or BARS:
        print(measure(name, contenders, chosen), flush=True)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
