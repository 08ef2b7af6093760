"""The reference: a page for each public module, from signatures and docstrings.

In: the list of public names. Out: Markdown by page name. What `help` shows is what a page shows.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import svod
from svod.public import PUBLIC
from svod.reference import docstrings


def pages() -> dict[str, str]:
    """Every page with its text."""
    found = {}
    for module in PUBLIC:
        if module in ("svod.torch", "svod.hub") and find_spec("torch") is None:
            continue
        found[module] = page(module)
    lines = "\n".join(found)
    table = "\n".join([f"| [`{m}`]({m}.md) | {_first(_place(m).__doc__)} |" for m in found])
    found["index"] = (
        f"# Reference\n\nEvery public name, with its arguments and an example.\n\n| Module | |\n"
        f"|---|---|\n{table}\n\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"
    )
    return found


def page(module: str) -> str:
    """The page of one module."""
    where = _place(module)
    parts = [f"# {module}\n\n{_prose(docstrings.summary(where.__doc__ or ''))}\n"]
    for name in PUBLIC[module].split():
        if name == "torch":
            continue
        value = inspect.getattr_static(where, name) if isinstance(where, type) else None
        parts.append(entry(module, name, getattr(where, name) if value is None else value))
    return "\n".join(parts)


def entry(module: str, name: str, value: Any) -> str:
    """One name: signature, summary, arguments, example."""
    target = getattr(value, "__func__", value)
    title = f"## {name}\n"
    if isinstance(target, ModuleType):
        full = f"{module}.{name}"
        link = f" See [`{full}`]({full}.md)." if full in PUBLIC else ""
        return f"{title}\nA module: {_first(target.__doc__)}.{link}\n"
    if not callable(target) and not isinstance(target, property):
        return f"{title}\n`{_constant(target)}`\n"
    text = inspect.getdoc(target) or ""
    call = f"```python\n{module}.{name}{_signature(target)}\n```\n"
    return f"{title}\n{call}\n{_formatted(text)}\n"


def _signature(target: Any) -> str:
    if isinstance(target, property) or hasattr(target, "__members__"):
        return ""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return "(...)"
    plain = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values() if p.name not in ("self", "cls")
    ]  # fmt: skip
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"<[^<>]*>", "...", text)


def _formatted(text: str) -> str:
    """A docstring as Markdown: arguments as a list, examples as blocks."""
    text, _, example = text.partition("\n\nExample:\n")
    text, _, arguments = text.partition("\n\nArguments:\n")
    parts = [_prose(text)]
    if arguments:
        rows = re.findall(r"^ {4}(\w+): (.*)$", arguments, re.MULTILINE)
        parts.append("\n".join([f"- **{name}**: {_escaped(about)}" for name, about in rows]))
    if example:
        parts.append("```pycon\n" + inspect.cleandoc(example) + "\n```")
    return "\n\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """Paragraphs, and what is indented as blocks."""
    found = []
    for part in text.split("\n\n"):
        if part.startswith("    ") or part.lstrip().startswith(">>>"):
            kind = "pycon" if ">>>" in part else "text"
            found.append(f"```{kind}\n{inspect.cleandoc(part)}\n```")
        else:
            found.append(_escaped(part))
    return "\n\n".join(found)


def _escaped(text: str) -> str:
    """Text whose signs are not taken for Markdown, except code."""
    pieces = re.split(r"(``[^`]*``|`[^`]*`)", text)
    return "".join([p if i % 2 else re.sub(r"([*_<>|\[\]\\])", r"\\\1", p)
                    for i, p in enumerate(pieces)])  # fmt: skip


def _first(text: str | None) -> str:
    line = (text or "").strip().split("\n")[0].rstrip(".")
    return _escaped(re.sub(r"^``svod[.\w]*``: ", "", line))


def _constant(value: Any) -> str:
    return f"{value!r:.60}".replace("`", "")


def _place(module: str) -> Any:
    if module == "svod.Tensor":
        return svod.Tensor
    return svod.timing if module == "svod.timing" else import_module(module)
