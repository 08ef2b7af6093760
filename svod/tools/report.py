"""What a verb of the command line answers, and the tables it is printed as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """The same answer for machines (`data`, ready for JSON) and for people (`text`)."""

    data: dict[str, Any]  # JSON values of any depth
    text: str
    ok: bool = True


def table(
    rows: Sequence[Sequence[object]], indent: int = 0, right: frozenset[int] = frozenset()
) -> str:
    """Rows as aligned columns; the columns in `right` are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [
        max(len(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells)))
    ]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ]
        lines.append((" " * indent + "  ".join(padded)).rstrip())
    return "\n".join(lines)


def byte_size(count: int) -> str:
    """A number of bytes for people: 3.1 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def duration(seconds: float) -> str:
    """A time for people: 12.3 ms."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
