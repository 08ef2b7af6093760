"""The figures as a page of the docs, and as one JSON object."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from svod._version import __version__
from svod.base.threads import thread_budget
from svod.tools.bench.bar import FAILED, FIGURE, NO_PEER, OK, SHORT, Line

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEADER = """# Benchmarks

Every bar of the project with what it requires and what was measured. The ratio tells how far a
bar is reached: 1.00 is exactly, more is better. Lines without a verdict are figures, not bars.

"""
PACKAGES = ("numpy", "llvmlite", "torch", "jax", "onnxruntime", "openvino")


def machine() -> dict[str, str]:
    """What the figures depend on."""
    budget = thread_budget()
    facts = {
        "processor": processor(),
        "cores": f"{budget.affinity} of {budget.cpus}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "svod": __version__,
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    if hasattr(os, "getloadavg"):
        facts["load before the run"] = f"{os.getloadavg()[0]:.1f}"
    return facts


def processor() -> str:
    """The name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()


def as_data(
    groups: Mapping[str, Sequence[Line]], facts: Mapping[str, str], command: str
) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {
        "command": command,
        "machine": dict(facts),
        "summary": summary(groups),
        "groups": {group: [line.data() for line in lines] for group, lines in groups.items()},
    }


def summary(groups: Mapping[str, Sequence[Line]]) -> dict[str, int]:
    """How many lines have each verdict."""
    verdicts = [line.verdict for lines in groups.values() for line in lines]
    return {name: verdicts.count(name) for name in (OK, SHORT, NO_PEER, FAILED, FIGURE)}


def summary_text(groups: Mapping[str, Sequence[Line]]) -> str:
    """The summary as one sentence."""
    count = summary(groups)
    bars = count[OK] + count[SHORT] + count[NO_PEER] + count[FAILED]
    parts = [f"{count[OK]} of {bars} bars are reached"]
    for name, text in ((SHORT, "short"), (NO_PEER, "without a peer"), (FAILED, "failed")):
        if count[name]:
            parts.append(f"{count[name]} {text}")
    return ", ".join(parts) + "."


def as_markdown(
    groups: Mapping[str, Sequence[Line]], facts: Mapping[str, str], command: str
) -> str:
    """The measured part of the page."""
    parts = [f"Measured by `{command}`.", ""]
    parts += [f"- {name}: {value}" for name, value in facts.items()]
    parts += ["", summary_text(groups)]
    for group, lines in groups.items():
        parts += ["", f"## {group.capitalize()}", ""]
        parts += ["| bar | required | measured | ratio | | note |", "|---|---|---|---|---|---|"]
        parts += [row(line) for line in lines]
    return "\n".join(parts) + "\n"


def row(line: Line) -> str:
    """A line as a row of the table."""
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    verdict = "" if line.verdict == FIGURE else line.verdict
    cells = (line.name, line.required, line.measured, ratio, verdict, line.note)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write_page(path: Path, measured: str) -> None:
    """Put the measured part between the markers of a page; the rest of the page stays."""
    block = f"{BEGIN}\n{measured}{END}\n"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = HEADER + block
    if BEGIN in text and END in text:
        before, rest = text.split(BEGIN, 1)
        text = before + block + rest.split(END, 1)[1].removeprefix("\n")
    else:
        text = text.rstrip("\n") + "\n\n" + block
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
