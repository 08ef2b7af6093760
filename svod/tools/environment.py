"""`svod env`: every knob with its value, where that comes from, its default and its meaning."""

from __future__ import annotations

import difflib
import textwrap
from typing import Any

from svod.base.errors import ConfigError
from svod.base.knobs import Knob, all_knobs, knobs, unknown_variables
from svod.tools.report import Report


def environment() -> Report:
    """All knobs; not ok where a value is refused. Misspelt variables are pointed out."""
    described = [_describe(knob) for knob in all_knobs()]
    unknown = {name: _nearest(name) for name in unknown_variables()}
    ok = all(knob["error"] is None for knob in described)
    lines = [_lines(knob) for knob in described]
    lines += [_complaint(name, nearest) for name, nearest in unknown.items()]
    return Report({"knobs": described, "unknown": unknown, "ok": ok}, "\n".join(lines), ok)


def _describe(knob: Knob[Any]) -> dict[str, Any]:
    value, error = None, None
    try:
        value = getattr(knobs, knob.attribute)
    except ConfigError as refused:
        error = str(refused)
    return {
        "name": knob.name,
        "value": value,
        "default": knob.default,
        "source": knobs.source(knob),
        "accepts": knob.accepts,
        "affects_codegen": knob.affects_codegen,
        "affects_numerics": knob.affects_numerics,
        "doc": knob.doc,
        "error": error,
    }


def _lines(knob: dict[str, Any]) -> str:
    head = f"{knob['name']} = {_show(knob['value'])}"
    if knob["error"]:
        head = f"{knob['name']}: error: {knob['error']}"
    elif knob["source"] != "default":
        head += f"  ({knob['source']}; default {_show(knob['default'])})"
    notes = [name for name in ("codegen", "numerics") if knob[f"affects_{name}"]]
    doc = knob["doc"] + (f" Affects {' and '.join(notes)}." if notes else "")
    return head + "\n" + textwrap.indent(textwrap.fill(doc, 92), "    ")


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if value != "" else "(empty)"


def _nearest(name: str) -> str | None:
    close = difflib.get_close_matches(name, [knob.name for knob in all_knobs()], 1)
    return close[0] if close else None


def _complaint(name: str, nearest: str | None) -> str:
    guess = f"; did you mean {nearest}?" if nearest else ""
    return f"{name} is set, but there is no such variable{guess}"
