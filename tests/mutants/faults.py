"""Faults: one small change of one expression or statement of a source file.

In: the text of a file. Out: every fault that can be planted in its functions, each with a name that
stays the same while its function does, and the tree with one of them planted. Faults are what a
slip would be: a comparison the other way, a number off by one, a branch taken where it should not
be, a statement left out, the wrong one of two functions.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
# Functions whose only effect is a text for people or a measurement: no fault there is wrong.
QUIET = frozenset({"__repr__", "__str__", "debug", "span", "warn", "log"})


@dataclass(frozen=True)
class Fault:
    """One change: where it is, and how its line reads before and after."""

    file: str  # below svod/
    function: str
    kind: str
    line: int
    before: str
    after: str
    turn: int  # the same change may be possible at several spots of a function

    @property
    def name(self) -> str:
        """The same in every run, wherever in its file the function stands."""
        turn = f" #{self.turn}" if self.turn else ""
        return f"{self.file} {self.function}: {self.before} -> {self.after}{turn}"

    def rank(self, seed: int) -> str:
        """The order in which faults are drawn."""
        return hashlib.sha256(f"{seed} {self.name}".encode()).hexdigest()


def faults(text: str, file: str) -> list[Fault]:
    """Everything that can be planted in a file."""
    tree = ast.parse(text)
    counts: dict[tuple[str, str, str], int] = {}
    found = []
    for function, node in _spots(tree):
        for kind, change in _changes(node):
            before, after = _brief(node), _brief(change(copy.deepcopy(node)))
            key = (function, before, after)
            turn = counts[key] = counts.get(key, -1) + 1
            found.append(Fault(file, function, kind, node.lineno, before, after, turn))
    return found


def planted(text: str, fault: Fault) -> ast.Module:
    """The tree of a file with a fault in it."""
    tree = ast.parse(text)
    turn = -1
    for function, node in _spots(tree):
        if function != fault.function or _brief(node) != fault.before:
            continue
        for kind, change in _changes(node):
            changed = change(copy.deepcopy(node))
            if kind != fault.kind or _brief(changed) != fault.after:
                continue
            turn += 1
            if turn == fault.turn:
                whole = _Replace(node, changed).visit(tree)
                return ast.fix_missing_locations(whole)
    raise LookupError(f"there is no such spot any more: {fault.name}")


Spot = ast.expr | ast.stmt
Change = Callable[[ast.AST], ast.AST]


def _spots(tree: ast.Module) -> Iterator[tuple[str, Spot]]:
    """Expressions and statements inside functions, with the qualified name of the function."""
    todo: list[tuple[ast.AST, str, bool]] = [(n, "", False) for n in reversed(tree.body)]
    while todo:
        node, owner, inside = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name in QUIET:
                continue
            owner = f"{owner}.{node.name}" if owner else node.name
            inside = inside or isinstance(node, ast.FunctionDef)
            todo += [(child, owner, inside) for child in reversed(node.body)]
            continue
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.AnnAssign):
            continue  # texts of errors, what holds anyway, and types
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Call) and _called(node) in QUIET:
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # of zip: a check of ours, like an assertion
        if inside and isinstance(node, ast.expr | ast.stmt):
            yield owner, node
        todo += [(child, owner, inside) for child in reversed(list(ast.iter_child_nodes(node)))]


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _changes(node: Spot) -> list[tuple[str, Change]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return [("comparison", _comparison)]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _is_text(node):
        return [("operator", _operator)]
    if isinstance(node, ast.BoolOp):
        return [("and or", _and_or)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [("not", lambda n: n.operand)]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [("number", lambda n: ast.copy_location(ast.Constant(n.value + 1), n))]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return [("truth", lambda n: ast.copy_location(ast.Constant(not n.value), n))]
    if isinstance(node, ast.If | ast.IfExp):
        return [("branch", _negated)]
    if isinstance(node, ast.Call) and _called(node) in TWINS:
        return [("twin", _twin)]
    if isinstance(node, ast.Continue):
        return [("loop", lambda n: ast.copy_location(ast.Break(), n))]
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        if isinstance(node, ast.Expr) and _called(node.value) in QUIET:
            return []
        return [("left out", lambda n: ast.copy_location(ast.Pass(), n))]
    return []


def _comparison(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Compare)
    node.ops = [COMPARISONS[type(node.ops[0])]()]
    return node


def _operator(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BinOp)
    node.op = OPERATORS[type(node.op)]()
    return node


def _and_or(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return node


def _negated(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.If | ast.IfExp)
    node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
    return node


def _twin(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    if node.func.id == "sorted":
        node.keywords = []  # list takes no key
    node.func.id = TWINS[node.func.id]
    return node


def _is_text(node: ast.BinOp) -> bool:
    """Strings and lists have no minus: such a fault is only an error."""
    parts = (node.left, node.right)
    return any(isinstance(p, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp) for p in parts)


def _brief(node: ast.AST) -> str:
    """The first line of a statement, or an expression, on one line."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


class _Replace(ast.NodeTransformer):
    """One node by another; the rest stays."""

    def __init__(self, node: ast.AST, by: ast.AST) -> None:
        self.node, self.by = node, by

    def visit(self, node: ast.AST) -> ast.AST:
        return self.by if node is self.node else self.generic_visit(node)
