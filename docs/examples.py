"""Run the examples of names, and write what they print: ``python docs/examples.py [name ..]``.

The examples are in ``svod/reference/*.txt``. This fills in outputs, of the names that are given or
of those that have none yet; a test runs all of them as `help` shows them.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import svod
from svod.reference import texts

PARSER = doctest.DocTestParser()


def run(text: str) -> tuple[str, bool]:
    """The example with what its statements print, and whether it came to its end."""
    names: dict[str, Any] = {"svod": svod, "__name__": "__example__"}
    lines: list[str] = []
    for part in PARSER.get_examples(text):
        first, *more = part.source.rstrip("\n").split("\n")
        lines += [f">>> {first}", *[f"... {line}".rstrip() for line in more]]
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(part.source, "<example>", "single"), names)
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
            return "\n".join(lines), False
        lines += [line or "<BLANKLINE>" for line in printed.getvalue().rstrip("\n").split("\n")]
        if not printed.getvalue():
            lines.pop()
    return "\n".join(lines), True


def outputs(entry: str, place: str, name: str) -> str:
    """An entry with its outputs."""
    shown = texts.written(entry, place, name, is_static(place, name))
    found, is_whole = run(shown)
    if not is_whole:
        print(f"{place}.{name} fails:\n{found}", file=sys.stderr)
        return entry
    parts, made = PARSER.get_examples(entry), PARSER.get_examples(found)
    lines: list[str] = []
    for part, other in zip(parts, made, strict=True):
        first, *more = part.source.rstrip("\n").split("\n")
        lines += [f">>> {first}", *[f"... {line}".rstrip() for line in more]]
        lines += other.want.rstrip("\n").split("\n") if other.want else []
    return "\n".join(lines)


def is_static(place: str, name: str) -> bool:
    """Whether the name is a static method of tensors."""
    if place != "svod.Tensor":
        return False
    base = next(c for c in svod.Tensor.__mro__ if name in vars(c))
    return isinstance(vars(base)[name], staticmethod)


def main(wanted: list[str]) -> int:
    """Write the files with the outputs of the wanted names, or of all that have none."""
    for file in texts.FILES:
        path = texts.FOLDER / f"{file}.txt"
        place, parts = "", []
        for where, name, entry in texts.read(path.read_text(encoding="utf-8")):
            if where != place:
                place = where
                parts.append(f"[{place}]\n")
            has_output = any(part.want for part in PARSER.get_examples(entry))
            if name in wanted if wanted else not has_output:
                entry = outputs(entry, place, name)
            parts.append(f"{name}\n{entry}\n\n")
        path.write_text("".join(parts).rstrip("\n") + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
