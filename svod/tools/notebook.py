"""What a notebook shows of tensors, plans and profiles: short HTML in the colours around it.

In: the object. Out: text without scripts, requests or style sheets. Large tensors show their
corners and how their values are spread.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from svod.tools.report import byte_size, duration

EDGE = 4  # rows and columns at each end
MOST_SAMPLED = 1_000_000  # elements that are counted for the spread of values
FEWEST_SPREAD = 32  # elements, below which their values say more
BARS = 32
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:4px 0"
_CELL = "padding:2px 8px;text-align:right;border:0;white-space:nowrap;font-size:inherit"
_LEFT = "padding:2px 8px;text-align:left;border:0;white-space:nowrap;font-size:inherit"
_QUIET = "opacity:.65"


def tensor_html(tensor: Any) -> str:
    """Values as a table, what they are, and a small picture of how they are spread."""
    from svod.tensor.ops.display import shown_values

    values = shown_values(tensor)
    sizes = " × ".join([str(n) for n in tensor.shape]) or "scalar"
    head = f"<b>{type(tensor).__name__}</b> {sizes} {tensor.dtype.name} on {tensor.device}"
    if isinstance(values, str):
        return f"<div>{head}<pre>{html.escape(values)}</pre></div>"
    found = np.asarray(values)
    return f"<div>{head}{_values(found)}{_spread(found)}</div>"


def _values(values: np.ndarray[Any, Any]) -> str:
    if 0 in values.shape:
        return f"<div style='{_QUIET}'>no elements</div>"
    if values.ndim not in (1, 2):
        text = np.array2string(values, separator=", ", threshold=200, edgeitems=2)
        return f"<pre>{html.escape(text)}</pre>"
    rows = values.reshape(1, -1) if values.ndim == 1 else values
    down, across = _places(rows.shape[0]), _places(rows.shape[1])
    lines = []
    for row in down:
        if row is None:
            lines.append(f"<tr>{_cell('⋮') * len(across)}</tr>")
            continue
        cells = [_cell("…" if c is None else _number(rows[row, c])) for c in across]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table style='{_TABLE}'>{''.join(lines)}</table>"


def _places(size: int) -> list[int | None]:
    """Which rows or columns are shown; None stands for those that are not."""
    if size <= 2 * EDGE + 1:
        return list(range(size))
    return [*range(EDGE), None, *range(size - EDGE, size)]


def _cell(text: str, style: str = _CELL) -> str:
    return f"<td style='{style}'>{html.escape(text)}</td>"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)


def _spread(values: np.ndarray[Any, Any]) -> str:
    """Least, mean and most of the finite values, and their counts as bars."""
    if values.dtype.kind not in "fiu" or values.size < FEWEST_SPREAD:
        return ""
    flat = values.reshape(-1)[:: max(1, values.size // MOST_SAMPLED)].astype(np.float64)
    finite = flat[np.isfinite(flat)]
    lost = flat.size - finite.size
    note = f"{lost:,} of {flat.size:,} are not finite" if lost else ""
    if not finite.size:
        return f"<div style='{_QUIET}'>{note}</div>"
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(over="ignore"):
        mean, deviation = float(finite.mean()), float(finite.std())
    facts = f"{low:.4g} to {high:.4g}, mean {mean:.4g}, deviation {deviation:.4g}"
    facts += f", {note}" if note else ""
    if low == high or not np.isfinite(high - low):
        return f"<div style='{_QUIET}'>{facts}</div>"
    counts, _ = np.histogram(finite, BARS, (low, high))
    heights = np.maximum(counts / counts.max() * 36, counts > 0)
    bars = [
        f"<rect x='{place * 6}' y='{40 - height:.1f}' width='5' height='{height:.1f}'/>"
        for place, height in enumerate(heights)
    ]
    picture = (
        f"<svg width='{BARS * 6}' height='41' role='img' aria-label='{facts}' "
        f"style='fill:currentColor;opacity:.5;display:block'>{''.join(bars)}</svg>"
    )
    return f"{picture}<div style='{_QUIET}'>{facts}</div>"


def plan_html(plan: Any) -> str:
    """A plan in a few lines: what it takes and gives, its calls, its memory."""
    kernels = plan.prepared_kernels()
    ports = [
        f"{'→' if port.is_output else '←'} {html.escape(port.name)} "
        f"{port.dtype.name} [{', '.join([str(n) for n in port.shape])}]"
        for port in plan.ports[:12]
    ]
    more = len(plan.ports) - len(ports)
    ports += [f"and {more} more"] if more > 0 else []
    work: dict[str, int] = {}
    for op in kernels:
        work[op.kernel.entry_point] = work.get(op.kernel.entry_point, 0) + (op.kernel.flops or 0)
    largest = sorted(work.items(), key=lambda item: -item[1])[:8]
    calls = {name: 0 for name, _ in largest}
    for op in kernels:
        if op.kernel.entry_point in calls:
            calls[op.kernel.entry_point] += 1
    rows = [
        f"<tr>{_cell(name, _LEFT)}{_cell(str(calls[name]))}{_cell(f'{flops:,}')}</tr>"
        for name, flops in largest
    ]
    head = f"<tr>{_cell('kernels with most work', _LEFT)}{_cell('calls')}{_cell('FLOP')}</tr>"
    return (
        f"<div><b>Plan</b> {len(plan.prepared_ops()):,} calls of {len(work):,} kernels on "
        f"{html.escape(plan.device())}, {byte_size(plan.memory.planned_bytes)} of intermediates"
        f"<div style='{_QUIET}'>{'<br>'.join(ports)}</div>"
        f"<table style='{_TABLE}'>{head}{''.join(rows)}</table>"
        f"<div style='{_QUIET}'><code>plan.view()</code> shows it as a page</div></div>"
    )


def profile_html(table: Any) -> str:
    """A profile as a table, with the share of each kernel as a bar."""
    names = ("kernel", "calls", "time", "share", "GB/s", "GFLOP/s", "of the roofline")
    head = "".join([_cell(n, _LEFT if n == "kernel" else _CELL) for n in names])
    rows = []
    for row in table.rows[:40]:
        bar = (
            f"{_CELL};background:linear-gradient(to left,rgb(110 150 210 / .35) {row.share:.1%},"
            "transparent 0)"
        )
        roof = "" if row.of_roofline is None else f"{row.of_roofline:.0%}"
        rates = [_rate(row.gigabytes_per_second), _rate(row.gigaflops), roof]
        rows.append(
            f"<tr>{_cell(row.name, _LEFT)}{_cell(str(row.calls))}"
            f"{_cell(duration(row.total_ns / 1e9))}{_cell(f'{row.share:.1%}', bar)}"
            f"{''.join([_cell(r) for r in rates])}</tr>"
        )
    left = len(table.rows) - len(rows)
    if left > 0:
        rows.append(f"<tr>{_cell(f'and {left} more kernels', _LEFT)}</tr>")
    total = f"{duration(table.total_ns / 1e9)} in kernels, {duration(table.wall_ns / 1e9)} in all"
    body = f"<table style='{_TABLE}'><tr>{head}</tr>{''.join(rows)}</table>"
    return f"<div><b>Profile</b> {total}{body}</div>"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
