"""Which module of a package imports which, read from the source without running it.

An import inside a function counts like one at the top, and so does ``import_module("a.b")`` with a
name that is written out: both make one module need the other. What only a type checker sees
(``if TYPE_CHECKING:``) does not count. That a package is loaded before its modules does not count
either, so its ``__init__`` may put modules together that do not know each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

Graph = dict[str, set[str]]


def import_graph(package: Path) -> Graph:
    """The modules of a package, each with those of the package that it imports."""
    files = dict(_modules(package))
    return {name: set(_imports(name, path, files)) - {name} for name, path in files.items()}


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import each other, directly or through others."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        path.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
            if other in path:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            group = path[path.index(name) :]
            del path[path.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return sorted(found)


def rooms(graph: Graph, package: str) -> Graph:
    """The graph between the subpackages of a package; a module beside them is a room of its own."""

    def room(name: str) -> str:
        return ".".join(name.split(".")[: package.count(".") + 2])

    inside = {name: used for name, used in graph.items() if name.startswith(f"{package}.")}
    found: Graph = {room(name): set() for name in inside}
    for name, used in inside.items():
        found[room(name)] |= {room(other) for other in used if other in inside} - {room(name)}
    return found


def _modules(package: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imports(name: str, path: Path, files: dict[str, Path]) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    here = name if path.name == "__init__.py" else name.rpartition(".")[0]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        for wanted in _names(node, here):
            parts = wanted.split(".")  # the longest beginning that is a module
            ends = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
            yield from [end for end in ends if end in files][:1]


def _names(node: ast.AST, here: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        parts = here.split(".") if node.level else []
        parts = parts[: len(parts) - node.level + 1] if node.level else parts
        base = ".".join([*parts, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        first = node.args[0] if node.args else None
        return [first.value] if isinstance(first, ast.Constant) else []
    return []
