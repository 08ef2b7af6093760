"""Calls of tools: what is offered, forms that ask for a call, and calls found in an answer.

A call is written as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as models of
Qwen's and Hermes' kind do; anything else stays text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svod.llm.grammar import Form
from svod.llm.grammar.expressions import Choice, compiled, text
from svod.llm.grammar.expressions import Sequence as InOrder
from svod.llm.grammar.schema import SchemaReader
from svod.llm.server.fields import FieldError

TOOLS = 128
BEGIN, END = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; arguments are JSON text."""

    name: str
    arguments: str
    id: str


def checked_tools(tools: Any) -> list[dict[str, Any]]:
    """Tools in the form that templates take, from both forms that clients send."""
    if not isinstance(tools, list) or len(tools) > TOOLS:
        raise FieldError("tools", f"a list of at most {TOOLS} tools")
    found = []
    for tool in tools:
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            raise FieldError("tools", "tools are functions")
        function = tool.get("function", {k: v for k, v in tool.items() if k != "type"})
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise FieldError("tools", "a function has a name")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise FieldError("tools", "the parameters of a function are a schema")
        about = {**function, "parameters": {"properties": {}, **parameters}}
        found.append({"type": "function", "function": about})
    return found


def tool_form(tools: Sequence[Mapping[str, Any]], name: str | None) -> Form:
    """The form of a call of one of the tools, or of the one that is named."""
    calls, rules = [], {}
    for number, tool in enumerate(tools):
        function = tool["function"]
        if name is not None and function["name"] != name:
            continue
        reader = SchemaReader(function["parameters"], prefix=f"{number} ")
        arguments = reader.expression(function["parameters"], 0)
        rules |= reader.rules
        before = f'{BEGIN}{{"name": {json.dumps(function["name"])}, "arguments": '
        calls.append(InOrder((text(before), arguments, text("}" + END))))
    return Form(compiled(Choice(tuple(calls)), rules))


class CallReader:
    """Separates text from calls while an answer comes."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, more: str) -> tuple[str, list[Call]]:
        """Text that can be shown now, and calls that are complete."""
        self._held += more
        shown, calls = "", []
        while True:
            begin = self._held.find(BEGIN)
            if begin < 0:
                kept = next(
                    (n for n in range(len(BEGIN) - 1, 0, -1) if self._held.endswith(BEGIN[:n])), 0
                )
                cut = len(self._held) - kept
                shown, self._held = shown + self._held[:cut], self._held[cut:]
                return shown, calls
            shown, self._held = shown + self._held[:begin], self._held[begin:]
            end = self._held.find(END)
            if end < 0:
                return shown, calls
            whole, self._held = self._held[: end + len(END)], self._held[end + len(END) :]
            call = _call(whole[len(BEGIN) : -len(END)])
            if call is None:
                shown += whole
            else:
                calls.append(call)

    def finish(self) -> str:
        """What was begun and is no call."""
        rest, self._held = self._held, ""
        return rest


def _call(content: str) -> Call | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = json.dumps(found.get("arguments", {}), ensure_ascii=False)
    return Call(found["name"], arguments, f"call_{secrets.token_hex(12)}")
