"""What a newcomer waits for: the import, and the first result of a fresh process."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from svod.tools.bench.bar import Case, Line, at_most, figure, holds, peer, times
from svod.tools.bench.measure import empty_folder, run_program
from svod.tools.report import duration

ROUNDS = 7
IMPORT = (
    "import time, sys, numpy\n"
    "start = time.perf_counter()\n"
    "import svod\n"
    "between = time.perf_counter()\n"
    "svod.Tensor\n"
    "end = time.perf_counter()\n"
    "print(between - start, end - between, 'llvmlite' in sys.modules, 'ml_dtypes' in sys.modules)"
)
ADD = "import {0}; print(({0}.{1}([1., 2., 3.]) + {0}.{1}([4., 5., 6.])).tolist())"
SVOD_ADD, TORCH_ADD = ADD.format("svod", "Tensor"), ADD.format("torch", "tensor")
WARM_ADD = f"{SVOD_ADD}; import sys; print('llvmlite' in sys.modules)"
SUM = "[5.0, 7.0, 9.0]"


def imports() -> Iterator[Line]:
    """`import svod` after `import numpy`, both in a fresh process."""
    found = [run_program(IMPORT).split() for _ in range(ROUNDS)]
    yield at_most("import svod, beyond numpy", min(float(row[0]) for row in found), 0.040)
    yield figure("first use of svod.Tensor", duration(min(float(row[1]) for row in found)))
    names = ("llvmlite", "ml_dtypes")
    loaded = [name for name, word in zip(names, found[0][2:], strict=True) if word == "True"]
    measured = " and ".join(loaded) or "neither"
    yield holds("import loads llvmlite or ml_dtypes", "neither", measured, not loaded)


def first_result() -> Iterator[Line]:
    """A fresh process that prints a sum of three elements."""
    peer("torch")
    warm, cold, torch = [], [], []
    with empty_folder() as kept:
        run_add(SVOD_ADD, kept)
        for _ in range(ROUNDS):
            warm.append(run_add(SVOD_ADD, kept))
            with empty_folder() as empty:
                cold.append(run_add(SVOD_ADD, empty))
            torch.append(run_add(TORCH_ADD, kept))
    theirs = min(torch)
    for name, ours, limit in (("warm", min(warm), 0.5), ("cold", min(cold), 0.7)):
        title = f"fresh process, first sum, {name} cache / torch"
        note = f"{duration(ours)}, torch {duration(theirs)}"
        yield at_most(title, ours / theirs, limit, times, note)


def warm_process() -> Iterator[Line]:
    """With every kernel in the object store, LLVM is not loaded."""
    with empty_folder() as kept:
        run_program(SVOD_ADD, SVOD_CACHE_DIR=kept)
        loads_it = run_program(WARM_ADD, SVOD_CACHE_DIR=kept).split()[-1] == "True"
    yield holds("warm process loads llvmlite", "no", "yes" if loads_it else "no", not loads_it)


def run_add(program: str, folder: str) -> float:
    """Seconds from the start of the process to its end."""
    start = perf_counter()
    output = run_program(program, SVOD_CACHE_DIR=folder)
    seconds = perf_counter() - start
    if output.strip() != SUM:
        raise RuntimeError(f"the fresh process printed {output.strip()!r}, not {SUM!r}")
    return seconds


CASES = (
    Case("import", "import svod after import numpy", imports),
    Case("first_result", "a fresh process prints a sum, against torch", first_result),
    Case("warm_process", "a warm object store needs no LLVM", warm_process),
)
