"""`python -m tests.frontend.onnx.coverage`: which cases of ONNX's backend suite pass, by operator.

Arguments: kinds (node, simple, pytorch-converted, pytorch-operator; all without one), or parts of
names with -k. The exit status is 1 where a case fails that is not left out with a reason.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter, defaultdict
from typing import Any

from tests.frontend.onnx.cases import cases, outcome
from tests.frontend.onnx.excluded import MOST_EXCLUDED, reason

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[], help=", ".join(KINDS))
    parser.add_argument("-k", default="", help="only cases whose name contains this")
    parser.add_argument("-v", action="store_true", help="a line for each case that fails")
    parser.add_argument("--slow", type=int, default=0, help="show so many of the slowest")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    failed: dict[str, list[tuple[str, str]]] = defaultdict(list)
    counts: Counter[str] = Counter()
    times: list[tuple[float, str]] = []
    left_out: dict[str, str] = {}  # cases that may fail, with the reason
    start = time.perf_counter()
    for kind in options.kinds or KINDS:
        for case in cases(kind):
            if options.k not in case.name:
                continue
            if why := reason(case.name):
                left_out[case.name] = why
                continue
            began = time.perf_counter()
            problem = outcome(case)
            times.append((time.perf_counter() - began, case.name))
            counts["failed" if problem else "passed"] += 1
            if problem:
                failed[_operator(case)].append((case.name, problem))
    for name, entries in sorted(failed.items(), key=lambda item: -len(item[1])):
        print(f"{len(entries):4d}  {name:28s} {entries[0][1][:110]}")
        if options.v:
            for case_name, problem in entries:
                print(f"        {case_name}: {problem[:300]}")
    for seconds, name in sorted(times, reverse=True)[: options.slow]:
        print(f"{seconds:8.2f} s  {name}")
    passed, total = counts["passed"], sum(counts.values())
    for name, why in sorted(left_out.items()):
        print(f"      left out: {name}: {why}")
    seconds = time.perf_counter() - start
    print(f"{passed} of {total} pass, {len(left_out)} are left out, {seconds:.0f} s")
    return int(bool(failed) or len(left_out) > MOST_EXCLUDED)


def _operator(case: Any) -> str:
    """What a case is about: its only operator, or its name without what follows."""
    nodes = case.model.graph.node if case.model is not None else []
    names = {n.op_type for n in nodes}
    return names.pop() if len(names) == 1 else case.name.split("_expanded")[0][5:]


if __name__ == "__main__":
    sys.exit(main())
