"""The page: one HTML file that holds its style, its program and its data, and asks for nothing.

In: plans. Out: text. Data are compressed JSON inside a script element that is never run; the policy
in the head forbids every request.
"""

from __future__ import annotations

import base64
import html
import json
import os
import zlib
from functools import cache
from importlib import resources
from typing import Any

from svod.runtime.plan import ExecutionPlan
from svod.tools.viz.plan_json import Progress, plan_data

SCRIPTS = (
    "base",
    "chart",
    "lists",
    "tree",
    "layout",
    "graph",
    "kernel",
    "timeline",
    "memory",
    "main",
)
ALONE = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def write_report(
    plan: ExecutionPlan,
    path: str | os.PathLike[str],
    *,
    before: ExecutionPlan | None = None,
    title: str = "plan",
    runs: int = 3,
    paths: bool = False,
    step: Progress | None = None,
) -> None:
    """Write all that is known of a plan as one HTML file; ``before`` is shown beside it."""
    plans = [plan_data(plan, title, runs=runs, paths=paths, step=step)]
    if before is not None:
        plans.append(plan_data(before, "before", runs=runs, paths=paths))
    with open(path, "w", encoding="utf-8") as file:
        file.write(report_html(page_data(plans, before is not None)))


def page_data(plans: list[dict[str, Any]], has_before: bool = False) -> dict[str, Any]:
    """What the page reads: plans, and which of them stands beside the first."""
    return {"plans": plans, "before": 1 if has_before else None}


def report_html(data: dict[str, Any]) -> str:
    """The page with data inside."""
    packed = base64.b64encode(zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9))
    title = data["plans"][0]["title"]
    held = f'<script type="application/octet-stream" id="data">{packed.decode()}</script>'
    return page_html(title, ALONE, held)


def page_html(title: str, policy: str, held: str) -> str:
    """The page around an element that holds data, or says where they are."""
    parts = {
        "title": html.escape(f"{title} · Svod"),
        "policy": html.escape(policy),
        "style": _part("page.css"),
        "data": held,
        "program": "\n".join([_part(f"{name}.js") for name in SCRIPTS]),
    }
    text = _part("page.html")
    for name, value in parts.items():
        text = text.replace(f"<!--{name}-->", value, 1)
    return text


@cache
def _part(name: str) -> str:
    return resources.files("svod.tools.viz").joinpath("page", name).read_text(encoding="utf-8")
