"""Build the documentation site: ``python docs/site/build.py [folder]``, or ``make docs``.

In: the pages of ``docs``, the list of public names and their docstrings. Out: HTML that needs no
network. Pages keep their names; the reference has a page for each public module.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from reference import pages

# Groups of the contents, in order; pages that no group names come under the last one.
GROUPS = {
    "Learn": ["tutorial", "plan", "jit", "autograd", "aliasing", "scan", "distributed"],
    "How to": [
        "howto/serve-a-model", "howto/train-on-a-gpu", "howto/bring-a-torch-model",
        "howto/why-is-it-slow", "howto/dynamic-shapes", "howto/save-and-load",
        "howto/custom-function", "howto/contribute-a-target",
    ],
    "Other programs": ["onnx", "torch", "torch-compile", "torch-compile-ops", "llm", "array_api"],
    "Promises": ["numerics", "stability", "benchmarks", "glossary", "knobs"],
    "Inside": [],
}  # fmt: skip
BESIDE = {"README.md": "readme", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}
BESIDE |= {"SECURITY.md": "security", "LICENSE": "license"}


def gather(folder: Path) -> None:
    """All pages in one folder, with links that stay inside of it."""
    shutil.rmtree(folder, ignore_errors=True)
    docs = ROOT / "docs"
    for page in sorted(docs.rglob("*.md")):
        target = folder / page.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_inside(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, page in BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "LICENSE":
            text = f"# Licence\n\n```text\n{text}\n```\n"
        text = re.sub(r"\]\(docs/", "](", text)
        (folder / f"{page}.md").write_text(_inside(text), encoding="utf-8")
    for name, text in pages().items():
        target = folder / "reference" / f"{name}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    index = folder / "index.md"
    index.write_text(index.read_text(encoding="utf-8") + contents(folder), encoding="utf-8")
    shutil.copy(Path(__file__).parent / "conf.py", folder / "conf.py")


def _inside(text: str) -> str:
    """Links to files beside the pages lead to their copies."""
    for name, page in BESIDE.items():
        text = re.sub(rf"\]\((\.\./)*{re.escape(name)}\)", f"](/{page}.md)", text)
    return text.replace("```python needs-torch", "```python")


def contents(folder: Path) -> str:
    """The tables of contents."""
    every = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.md"))
    named = {page for group in GROUPS.values() for page in group}
    reference = ["reference/index"]
    rest = [p for p in every if p not in named and p != "index" and not p.startswith("reference/")]
    groups = {**GROUPS, "Reference": reference, "Inside": rest}
    parts = []
    for title, group in groups.items():
        missing = [page for page in group if page not in every]
        if missing:
            raise FileNotFoundError(f"the contents name pages that are not there: {missing}")
        lines = "\n".join(group)
        parts.append(f"\n```{{toctree}}\n:caption: {title}\n:hidden:\n\n{lines}\n```\n")
    return "".join(parts)


def main(target: Path) -> int:
    """Build; warnings are errors."""
    from sphinx.cmd.build import build_main

    source = target / "source"
    gather(source)
    return build_main(["-b", "html", "-W", "--keep-going", "-q", str(source), str(target / "html")])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")))
