"""Write the generated parts of the documentation: ``python docs/generate.py``.

Everything between ``<!-- generated: name -->`` and ``<!-- end -->`` in a page comes from the code:
passes from the pipeline's tuple, ops from the comments of ``svod/ir/ops.py``, knobs from their
declarations, the map from the docstrings of the modules. A test compares the pages with the code.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SOURCE = ROOT / "svod"

# The way of a computation, before and after the passes of the pipeline.
BEFORE = (
    ("normalize", "schedule/normalize.py"),
    ("simplify", "ir/rules.py"),
    ("split reductions", "schedule/split_reduce.py"),
    ("decide storage", "schedule/storage.py"),
    ("cut", "schedule/cut.py"),
    ("schedule", "schedule/schedule.py"),
    ("prepare", "runtime/prepare.py"),
    ("plan memory", "runtime/memory.py"),
)
AFTER = (
    ("linearize", "codegen/linearize.py"),
    ("render", "codegen/render/llvm.py"),
    ("compile", "device/cpu/compiler.py"),
    ("build", "runtime/plan.py"),
)
FOLDERS = (
    "tools", "frontend", "nn", "tensor", "runtime", "device", "codegen", "optimize", "schedule",
    "ir", "dtype", "base",
)  # fmt: skip


def passes() -> str:
    """Every step from a graph to a plan."""
    from svod.codegen.pipeline import PASSES

    lines = ["| Step | What it does | Where |", "|---|---|---|"]
    lines += [f"| {name} | {sentence(path)} | `svod/{path}` |" for name, path in BEFORE]
    lines.append("| | *for each distinct kernel:* | |")
    for step in PASSES:
        where = step.run.__module__.replace(".", "/")
        lines.append(f"| **{step.name}** | {step.why} | `{where}.py` |")
    lines += [f"| {name} | {sentence(path)} | `svod/{path}` |" for name, path in AFTER]
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


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "passes": ("pipeline.md", passes),
    "ops": ("ir.md", ops),
    "knobs": ("knobs.md", knob_table),
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
