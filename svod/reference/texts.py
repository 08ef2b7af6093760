"""The texts: what arguments mean (`arguments.txt`), and an example for every name.

In: the files beside this one. Out: a sentence for an argument of a function, and the example of a
name. In an example ``call`` stands for the name, so that one serves a method and a function.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
FILES = ("tensor", "functions", "functional", "modules", "others")

# Where else the example of a name may stand.
ELSEWHERE = {
    "svod": ("svod.Tensor",),
    "svod.nn.functional": ("svod.Tensor", "svod"),
    "svod.special": ("svod.Tensor", "svod"),
    "svod.optim.lr_scheduler": ("svod.optim",),
    "svod.autograd": ("svod",),
    "svod.nn.utils": ("svod.optim",),
}


@cache
def examples() -> dict[str, dict[str, str]]:
    """The example of every name, by module."""
    found: dict[str, dict[str, str]] = {}
    for file in FILES:
        for place, name, text in read((FOLDER / f"{file}.txt").read_text(encoding="utf-8")):
            found.setdefault(place, {})[name] = text
    return found


def read(text: str) -> list[tuple[str, str, str]]:
    """The entries of a file: module, name, example."""
    place, found = "", []
    for block in text.split("\n\n"):
        head, _, rest = block.strip("\n").partition("\n")
        if head.startswith("["):
            place = head[1:-1]
            head, _, rest = rest.partition("\n")
        if rest:
            found.append((place, head, rest))
    return found


def example(place: str, name: str, is_static: bool = False) -> str:
    """The example of a name as a user of this module writes it; empty where there is none."""
    for where in (place, *ELSEWHERE.get(place, ())):
        text = examples().get(where, {}).get(name)
        if text:
            return written(text, place, name, is_static)
    return ""


def written(text: str, place: str, name: str, is_static: bool = False) -> str:
    """An example with the name in place of ``call``."""
    if place != "svod.Tensor" or is_static:
        return re.sub(r"\bcall\b", f"{place}.{name}", text)
    return _METHOD.sub(lambda m: f"{_operand(m[1])}.{name}({m[2]}", text)


_METHOD = re.compile(r"\bcall\(((?:[^(),]|\([^()]*\))+)(?:, )?(.*?\)|\))", re.DOTALL)


def _operand(text: str) -> str:
    return text if text.isidentifier() or (text.endswith(")") and " " not in text) else f"({text})"


@cache
def _arguments() -> tuple[dict[str, str], dict[tuple[str, str], str], dict[str, dict[str, str]]]:
    """What arguments mean: everywhere, for functions by name, and for functions by pattern."""
    general: dict[str, str] = {}
    named: dict[tuple[str, str], str] = {}
    matched: dict[str, dict[str, str]] = {}
    functions: list[str] = []
    for line in (FOLDER / "arguments.txt").read_text(encoding="utf-8").split("\n"):
        if line.startswith("["):
            functions = line[1:-1].split()
        elif line and not line.startswith("#"):
            name, _, text = line.partition(": ")
            if not functions:
                general[name] = text
            for function in functions:
                if "*" in function:
                    matched.setdefault(name, {})[function] = text
                else:
                    named[function, name] = text
    return general, named, matched


def argument(function: str, name: str, kind: str = "") -> str:
    """What an argument of a function means; empty where the texts do not say.

    ``kind`` is its type as written: ``dim@int`` is the text of an axis that is one number.
    """
    general, named, matched = _arguments()
    found = named.get((function, name))
    if found is not None:
        return found
    for pattern, text in matched.get(name, {}).items():
        if fnmatchcase(function, pattern):
            return text
    return general.get(f"{name}@{kind}") or general.get(name, "")
