"""How much of core ATen runs as plans: ``python -m tests.frontend.torch.coverage``.

An operator counts where each of its cases gives what eager gives, without a call of torch.
"""

from __future__ import annotations

import os
import sys
from collections import Counter

os.environ.setdefault("SVOD_VERIFY", "1")

from svod.frontend.torch.ops import TABLE
from tests.frontend.torch.cases import (
    CASES,
    FIRST_ONLY,
    FUNCTIONAL,
    LEFT,
    SHAPES_ONLY,
    core_operators,
    overload,
)
from tests.frontend.torch.running import check, compiled


def state_of(name: str) -> tuple[str, str]:
    """What becomes of an operator, and why where it is not right."""
    if name in LEFT:
        return ("size" if name.startswith("sym_") else "left"), LEFT[name]
    name = FUNCTIONAL.get(name, name)
    try:
        if name in SHAPES_ONLY:
            args, named = SHAPES_ONLY[name]()
            run, tensors = compiled(overload(name), args, named)
            assert run(tensors), "no result"
        else:
            for make in CASES.get(name, ()):
                check(overload(name), *make(), count=1 if name in FIRST_ONLY else None)
            if name not in CASES:
                return "no case", ""
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {str(error)[:300]}"
    return ("table" if f"aten.{name}" in TABLE else "decomposed"), ""


def main() -> int:
    states = {name: state_of(name) for name in core_operators()}
    for name, (state, why) in states.items():
        if state in ("wrong", "no case", "left"):
            print(f"{state:10} {name:45} {why}")
    counts = Counter(state for state, _ in states.values())
    good = counts["table"] + counts["decomposed"] + counts["size"]
    listed = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    print(f"core ATen: {good} of {len(states)} run as plans, {good / len(states):.1%} ({listed})")
    print(f"the table has {len(TABLE)} operators")
    return 0 if good / len(states) >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
