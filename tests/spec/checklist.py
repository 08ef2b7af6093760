"""The checklist: rows, the tests that name them, and the page made of both.

``python -m tests.spec.checklist`` writes docs/checklist.md.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "checklist.md"
_ROW = re.compile(r"(?<![A-Za-z0-9])([STQ])(\d+)(?:-[STQ]?(\d+))?(?![A-Za-z0-9])")
_SECTIONS = {
    "S1": "Execution plan: records", "S23": "Order and levels", "S37": "Variables at run time",
    "S50": "Running ops", "S70": "Looking at a plan and releasing it", "S80": "Building a plan",
    "S93": "Realising tensors", "S117": "Bound variables", "S119": "Schedule cache",
    "S138": "Preparing a plan", "S175": "Search for better loops",
    "S200": "Dependencies between calls", "S209": "Schedule loops",
    "S221": "Pre-schedule and instantiation", "S243": "Devices and programs",
    "T1": "Acceptance cases", "Q1": "Traps avoided",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row: its number, the file it lives in, what it asks."""

    id: str
    where: str
    what: str


def rows() -> dict[str, Row]:
    """All rows by number."""
    found = [Row(*[part.strip() for part in line.split("|", 2)]) for line in _lines("rows.txt")]
    return {row.id: row for row in found}


def pending() -> dict[str, str]:
    """Rows that have no test yet, with the reason."""
    parts = [line.split("|", 1) for line in _lines("pending.txt")]
    return {row.strip(): reason.strip() for row, reason in parts}


def naming_tests() -> dict[str, list[str]]:
    """The tests that name a row, in their name or docstring: `file::test`."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words = node.name.replace("_", " ") + " " + (ast.get_docstring(node) or "")
                for row in named_rows(words):
                    found.setdefault(row, []).append(f"{path.name}::{node.name}")
    return found


def named_rows(text: str) -> list[str]:
    """The row numbers a text names; `S3-S6` names four."""
    found: dict[str, None] = {}
    for kind, first, last in _ROW.findall(text):
        for number in range(int(first), int(last or first) + 1):
            found[f"{kind}{number}"] = None
    return list(found)


def page() -> str:
    """docs/checklist.md."""
    named, waiting = naming_tests(), pending()
    lines = [
        "# Checklist",
        "",
        "Every row of the acceptance checklist, the file it lives in, and the tests that name it.",
        "This page is made by `python -m tests.spec.checklist`; a test fails where a row has no",
        "test and no reason.",
        "",
        f"{len(rows())} rows, {len(rows()) - len(waiting)} with tests, {len(waiting)} pending.",
    ]
    for row in rows().values():
        if row.id in _SECTIONS:
            lines += ["", f"## {_SECTIONS[row.id]}", "", "| Row | What | Where | Tests |"]
            lines.append("|---|---|---|---|")
        where = "" if row.where == "-" else f"`svod/{row.where}`"
        cell = _tests_cell(named.get(row.id, []), waiting.get(row.id))
        lines.append(f"| {row.id} | {row.what.replace('|', '/')} | {where} | {cell} |")
    return "\n".join(lines) + "\n"


def _tests_cell(found: list[str], reason: str | None) -> str:
    if reason is not None:
        return f"pending: {reason}"
    files: dict[str, list[str]] = {}
    for test in found:
        file, name = test.split("::")
        files.setdefault(file, []).append(name)
    return "; ".join(
        f"`{file}`: " + ", ".join(f"`{name}`" for name in names) for file, names in files.items()
    )


def _lines(name: str) -> list[str]:
    text = (HERE / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
