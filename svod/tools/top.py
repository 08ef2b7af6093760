"""`svod top`: the plans of running processes, as they say themselves (``SVOD_TOP=1``)."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any

from svod.tools.publishing import SECONDS, folder
from svod.tools.report import Report, byte_size, duration, table

QUIET = 10.0  # seconds after which nothing has run lately
HELP = "no process says what it runs: start one with SVOD_TOP=1"


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """How long it is shown."""
    verb.add_argument("--once", action="store_true", help="print once, as in a pipe")


def top(options: argparse.Namespace) -> Report:
    """On a terminal again and again until Ctrl-C, else once."""
    if options.once or options.json or not sys.stdout.isatty():
        found = processes()
        return Report({"processes": found}, text_of(found))
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            sys.stdout.write("\x1b[H\x1b[2J" + text_of(processes()) + "\n")
            sys.stdout.flush()
            time.sleep(SECONDS)
    return Report({"processes": processes()}, "")


def processes() -> list[dict[str, Any]]:
    """What living processes have written, by pid; files of others are taken away."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            data = json.loads(path.read_bytes())
            age = time.time() - path.stat().st_mtime
            if not _is_alive(int(data["pid"])):
                path.unlink()
                continue
            found.append({**data, "age": age})
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it went away, or nobody of ours wrote it
    return found


def text_of(found: list[dict[str, Any]]) -> str:
    """The processes with their plans as a table."""
    if not found:
        return HELP
    rows: list[list[str]] = []
    head = ["plan", "runs", "runs/s", "one run", "busy", "memory"]
    lines = []
    for one in found:
        is_quiet = one["age"] > QUIET
        quiet = f", last run {duration(one['age'])} ago" if is_quiet else ""
        lines.append(f"{one['program']} (pid {one['pid']}{quiet})")
        rows = [head]
        for row in one["plans"]:
            rate = 0.0 if is_quiet else row["rate"]
            rows.append(
                [
                    row["title"], f"{row['runs']:,}", f"{rate:.1f}", duration(row["ns"] / 1e9),
                    f"{rate * row['ns'] / 1e9:.0%}", byte_size(row["bytes"]),
                ]
            )  # fmt: skip
        lines.append(table(rows, 2, frozenset({1, 2, 3, 4, 5})))
    return "\n".join(lines)


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # a signal would end it there; its file goes with it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
