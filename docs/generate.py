"""Write the generated parts of the documentation: ``python docs/generate.py``.

Everything between ``<!-- generated: name -->`` and ``<!-- end -->`` in a page comes from the code:
passes from their tuples, ops from the comments of ``svod/ir/ops.py``, knobs from their
declarations, the map from the docstrings of the modules. A test compares the pages with the code.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SOURCE = ROOT / "svod"

# The way of a computation, around the lists of passes.
BEFORE = (("normalize", "schedule/normalize.py"),)
BETWEEN = (
    ("order calls", "schedule/preschedule.py"),
    ("prepare", "runtime/prepare.py"),
    ("plan memory", "runtime/memory.py"),
)
AFTER = (
    ("linearize", "codegen/linearize.py"),
    ("render for CPUs", "codegen/render/llvm.py"),
    ("render for GPUs", "codegen/render/nvptx.py"),
    ("compile for CPUs", "device/cpu/compiler.py"),
    ("compile for GPUs", "device/cuda/compiler.py"),
    ("build", "runtime/plan.py"),
)
FOLDERS = (
    "tools", "llm", "frontend", "nn", "tensor", "runtime", "device", "codegen", "optimize",
    "schedule", "ir", "dtype", "base", "reference",
)  # fmt: skip


def passes() -> str:
    """Every step from a graph to a plan."""
    from svod.codegen.targets import cpu, cuda
    from svod.schedule.schedule import SCHEDULE_PASSES

    lines = ["| Step | What it does | Where |", "|---|---|---|"]
    lines += [f"| {name} | {sentence(path)} | `svod/{path}` |" for name, path in BEFORE]
    lines += [_row(step) for step in SCHEDULE_PASSES]
    lines += [f"| {name} | {sentence(path)} | `svod/{path}` |" for name, path in BETWEEN]
    for target, kind in ((cpu, "CPU"), (cuda, "GPU")):
        lines.append(f"| | *for each distinct kernel of a {kind}:* | |")
        lines += [_row(step) for step in (*target.CHOOSING, *target.LOWERING)]
        lines.append("| | *or, where it is a sort:* | |")
        lines += [_row(step) for step in target.SORTING]
    lines.append("| | *and then:* | |")
    lines += [f"| {name} | {sentence(path)} | `svod/{path}` |" for name, path in AFTER]
    return "\n".join(lines)


def _row(step: Any) -> str:
    where = step.where.__module__.replace(".", "/")
    return f"| **{step.name}** | {step.why} | `{where}.py` |"


def planners() -> str:
    """The ways to run a kernel on a GPU, in the order in which they are asked."""
    from svod.optimize.gpu import PLANNERS

    lines = ["| Plan | What it is | Where |", "|---|---|---|"]
    for planner in PLANNERS:
        where = planner.plan.__module__.replace(".", "/")
        lines.append(f"| {planner.name} | {planner.why} | `{where}.py` |")
    return "\n".join(lines)


def ops() -> str:
    """The op list in its groups, with the comment of each op."""
    text = (SOURCE / "ir" / "ops.py").read_text(encoding="utf-8")
    text = re.sub(r": Final = \(\n +(.*)\n\)", r": Final = \1", text)  # what the formatter broke
    lines: list[str] = []
    for line in text.split("\n"):
        if found := re.match(r"# -- (.*?) -+$", line):
            lines += [
                "",
                f"### {found[1][0].upper()}{found[1][1:]}",
                "",
                "| Op | Meaning |",
                "|---|---|",
            ]
        elif found := re.match(r"([A-Z_0-9]+): Final = \d+(?:  # (.*))?$", line):
            lines.append(f"| `{found[1]}` | {cell(found[2] or '')} |")
        elif (found := re.match(r"#   (.*)$", line)) and lines:
            lines[-1] = f"{lines[-1][:-2]} {cell(found[1])} |"
    return "\n".join(lines).strip()


def knob_table() -> str:
    """Every `SVOD_*` variable."""
    from svod.base.knobs import all_knobs

    lines = ["| Variable | Default | Meaning |", "|---|---|---|"]
    for knob in all_knobs():
        default = int(knob.default) if isinstance(knob.default, bool) else knob.default
        notes = [n for n in ("codegen", "numerics") if getattr(knob, f"affects_{n}")]
        doc = knob.doc + (f" Affects {' and '.join(notes)}." if notes else "")
        lines.append(f"| `{knob.name}` | {'empty' if default == '' else default} | {cell(doc)} |")
    return "\n".join(lines)


def repository() -> str:
    """A sentence per file, folder by folder, from the top of the layers down."""
    parts = [_folder(SOURCE, list(SOURCE.glob("*.py")))]
    for name in FOLDERS:
        files = list((SOURCE / name).rglob("*.py"))
        if files:
            parts.append(_folder(SOURCE / name, files))
    return "\n\n".join(parts)


def _folder(folder: Path, files: list[Path]) -> str:
    lines = [f"### {folder.relative_to(ROOT)}", "", "| File | What it holds |", "|---|---|"]
    for path in sorted(files):
        if path.name not in ("__init__.py", "_version.py"):
            text = sentence(str(path.relative_to(SOURCE)))
            lines.append(f"| `{path.relative_to(folder)}` | {text} |")
    return "\n".join(lines)


def sentence(path: str) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((SOURCE / path).read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return cell(re.split(r"(?<=[a-z0-9`)])[.:] (?=[A-Z`])", first, maxsplit=1)[0].rstrip("."))


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def torch_names() -> str:
    """The torch names that are compared with torch, by where they live."""
    import json

    import numpy as np

    import svod
    from svod.nn import functional

    with np.load(ROOT / "tests" / "torch" / "recorded.npz") as kept:
        index = json.loads(bytes(kept["index"]).decode())
    forms = index.pop("forms")
    index.pop("signatures")
    compared = {key.split()[0] for key in index if not key.split()[2].startswith("error")}
    lines = [f"{len(compared)} names are compared with torch."]
    places = (
        ("t", "Functions", "svod", svod),
        ("m", "Methods", "Tensor", svod.Tensor),
        ("f", "nn.functional", "svod.nn.functional", functional),
        ("s", "special", "svod.special", svod.special),
    )
    for form, title, prefix, where in places:
        found = sorted([n for n in compared if form in forms[n] and hasattr(where, n)])
        lines += ["", f"### {title}", "", f"{len(found)} names of `{prefix}`:", ""]
        lines.append(", ".join([f"`{name}`" for name in found]))
    return "\n".join(lines)


def cost_table() -> str:
    """The numbers of the cost models, one table per target."""
    from svod.schedule.costs import costs_of
    from svod.schedule.costs_cpu import CPU
    from svod.schedule.costs_gpu import GPU

    lines: list[str] = []
    for title, costs in (("CPU", CPU), ("NVIDIA GPUs", GPU)):
        lines += ["", f"## {title}", "", "| Cost | Value | Unit | Origin |", "|---|---|---|---|"]
        for c in costs_of(costs):
            lines.append(f"| `{c.name}` | {c.value:,} | {cell(c.unit)} | {cell(c.origin)} |")
    return "\n".join(lines).strip()


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "passes": ("pipeline.md", passes),
    "planners": ("pipeline.md", planners),
    "ops": ("ir.md", ops),
    "knobs": ("knobs.md", knob_table),
    "costs": ("costs.md", cost_table),
    "repository": ("repomap.md", repository),
    "torch": ("torch.md", torch_names),
}


def updated(name: str) -> tuple[Path, str]:
    """A page and its text with the generated part as the code says now."""
    page, make = PARTS[name]
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    head, mark, rest = text.partition(f"<!-- generated: {name} -->\n")
    _, end, tail = rest.partition("\n<!-- end -->")
    if not mark or not end:
        raise ValueError(f"{page} has no part marked 'generated: {name}'")
    return path, f"{head}{mark}\n{make()}\n{end}{tail}"


def main() -> int:
    """Write every page that has changed."""
    for name in PARTS:
        path, text = updated(name)
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
