"""How hard the rewriting engine works: visits, rewrites and new nodes while a plan is made."""

from __future__ import annotations

from collections.abc import Iterator

from svod.tools.bench.bar import Case, Line, figure, whole
from svod.tools.bench.preparation import measured

SUBJECTS = (
    ("matmul 1024³", "matmul"),
    ("3×3 convolution, 64 channels, 56²", "convolution"),
    ("12-layer GPT-2 schedule", "gpt2"),
)


def work() -> Iterator[Line]:
    """Counts in all, per distinct kernel, and per second of preparation outside LLVM."""
    for title, name in SUBJECTS:
        (run,) = measured(name, rounds=1)
        kernels, seconds = max(1, run["kernels"]), run["total"] - run["llvm"]
        for counted in ("visits", "rewrites", "new_nodes"):
            count = run[counted]
            text = f"{whole(count)}: {whole(count / kernels)} per kernel, "
            text += f"{whole(count / seconds)} per second"
            note = f"{run['kernels']} distinct kernels" if counted == "visits" else ""
            yield figure(f"{title}: {counted.replace('_', ' ')}", text, note)


CASES = (Case("rewriting", "visits, rewrites and new nodes of the rewriting engine", work),)
