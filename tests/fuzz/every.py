"""``python -m tests.fuzz 0 100000``: random programs of every kind, by their seeds.

Programs of operations and dtypes against NumPy, the evaluator and REF; views and writes against
arrays; recorded functions with state and several results; run-time sizes; networks with gradients.
Prints the seeds that differ, each with the command that shows it alone, and ends with 1 if any did.
"""

from __future__ import annotations

import os
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

os.environ.setdefault("SVOD_VERIFY", "1")
os.environ.setdefault("SVOD_FALLBACK", "0")
os.environ.setdefault("SVOD_THREADS", "1")

BLOCK = 50
CHUNK = 1000  # seeds of one process
KINDS = ("programs", "aliases", "recorded", "sizes", "aliases", "recorded", "programs", "networks")


def problem(seed: int) -> str:
    """What is wrong with the program of a seed, or nothing."""
    kind = KINDS[seed % len(KINDS)]
    try:
        if kind == "programs":
            from tests.fuzz.check import failure
            from tests.fuzz.programs import make_program

            return failure(make_program(seed), True) or ""
        if kind == "aliases":
            from tests.fuzz.aliases import Program

            Program(seed).run()
            return ""
        if kind == "networks":
            from tests.fuzz.networks import network_failure

            return network_failure(seed) or ""
        if kind == "recorded":
            from tests.fuzz.recorded import difference
        else:
            from tests.fuzz.sizes import difference
        return difference(seed)
    except Exception:
        return traceback.format_exc(limit=-3)


def block(first: int, last: int) -> list[tuple[int, str]]:
    """The seeds of a range that differ, and how."""
    return [(seed, text) for seed in range(first, last) if (text := problem(seed))]


def main(first: int, last: int, workers: int = 2) -> int:
    """Run a range of seeds; gives back how many differ."""
    wrong, start = 0, time.monotonic()
    step = CHUNK * workers
    for begin in range(first, last, step):
        end = min(begin + step, last)
        ranges = [(a, min(a + BLOCK, end)) for a in range(begin, end, BLOCK)]
        # Fresh processes for every chunk, so that caches of one do not grow for hours.
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            for found in pool.map(block, *zip(*ranges, strict=True)):
                for seed, text in found:
                    wrong += 1
                    kind = KINDS[seed % len(KINDS)]
                    print(f"seed {seed} ({kind}): {text}\n  python -m tests.fuzz {seed} {seed + 1}")
        print(f"{end - first} programs, {wrong} differ", flush=True)
    seconds = time.monotonic() - start
    print(f"seeds {first} to {last - 1}: {wrong} differ, {seconds:.0f} s")
    return wrong
