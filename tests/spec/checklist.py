"""The checklist: rows, the tests that name them, and the page made of both.

``python -m tests.spec.checklist`` writes docs/checklist.md.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
PAGE = HERE.parents[1] / "docs" / "checklist.md"
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
    """The tests with a marker that names a row: `file::test`, the file as seen from tests/spec."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.glob("**/test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "pytest.mark.row(" not in text:
            continue
        file = path.name if path.parent == HERE else path.relative_to(TESTS).as_posix()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                for row in marked_rows(node):
                    found.setdefault(row, []).append(f"{file}::{node.name}")
    return found


def marked_rows(test: ast.FunctionDef) -> list[str]:
    """The row numbers in the markers of a test."""
    return [
        argument.value
        for mark in test.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row"
        for argument in mark.args
        if isinstance(argument, ast.Constant)
    ]


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
