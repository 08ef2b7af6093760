"""The rewrite engine: rules merged into decision functions, and the pass that applies them.

In: root nodes and a ``Matcher``. Out: the roots with no rule left to apply anywhere below.
The pass visits nodes in creation order, sources first, so every node is matched once with
settled sources; only what a rule just built is settled on a stack of its own. A bit per matcher
on the node remembers that it and all below it are at rest, so a second pass costs nothing.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from svod.base.errors import RewriteLoopError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import node as nodes
from svod.ir import ops as O
from svod.ir.node import UOp, const, make, serial
from svod.ir.patterns import Rule, alike, is_zero, root_ops, write_function
from svod.ir.symbolic import rebuild

# Any: with a context the first argument is whatever the pass gave, then the node
MatchFunction = Callable[..., UOp | None]

# A rule that unrolls itself may nest this deep; more is taken for a loop.
_MAX_NESTING = 10_000


class Stats:
    """Work done by all passes of the process, for the benchmark."""

    __slots__ = ("new_nodes", "rewrites", "visits")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.visits = 0  # nodes looked at
        self.rewrites = 0  # rules that fired
        self.new_nodes = 0  # nodes interned while passes ran


stats = Stats()
_bits = count()


class Matcher:
    """Rules compiled to one function per root op; each is generated when it is first needed."""

    __slots__ = ("_by_op", "_sources", "bit", "context", "name", "rules", "table")

    def __init__(self, rules: Sequence[Rule], name: str, context: bool) -> None:
        self.rules = tuple(rules)
        self.name = name
        self.context = context
        self.bit = 0 if context else 1 << next(_bits)  # the result of a context is not a property
        self.table: list[MatchFunction | None] = [None] * 128
        self._by_op: dict[int, list[Rule]] = {}
        self._sources: dict[int, str] = {}
        for rule in self.rules:
            for op in root_ops(rule.pattern):
                self._by_op.setdefault(op, []).append(rule)
        for op in self._by_op:
            self.table[op] = partial(self._first, op)

    def __call__(self, node: UOp, ctx: Any = None) -> UOp | None:
        """What the first matching rule makes of the node, or None."""
        match = self.table[node.op]
        if match is None:
            return None
        return match(ctx, node) if self.context else match(node)

    @property
    def source(self) -> str:
        """The Python source of all decision functions."""
        self.generate()
        return "\n\n".join(self._sources.values())

    def generate(self) -> None:
        """Make every function now."""
        for op in self._by_op:
            if op not in self._sources:
                self._generate(op)

    def bound(self, ctx: Any) -> list[MatchFunction | None]:
        """The table for one pass."""
        if not self.context:
            return self.table
        self.generate()
        return [None if match is None else partial(match, ctx) for match in self.table]

    def rules_that_give(self, node: UOp, result: UOp, ctx: Any = None) -> list[str]:
        """Names of the rules that turn this node into this result."""
        found = []
        for rule in self._by_op.get(node.op, ()):
            _, match = _function(node.op, [rule], self.context, f"{self.name} {rule.name}")
            if (match(ctx, node) if self.context else match(node)) is result:
                found.append(rule.name)
        return found

    def _first(self, op: int, *args: Any) -> UOp | None:
        return self._generate(op)(*args)

    def _generate(self, op: int) -> MatchFunction:
        rules = self._by_op[op]
        for other in self._sources:
            if alike(other) == alike(op) and self._by_op[other] == rules:
                self._sources[op] = f"match_{O.NAMES[op]} = match_{O.NAMES[other]}\n"
                match = self.table[other]
                assert match is not None
                break
        else:
            self._sources[op], match = _function(op, rules, self.context, self.name)
        self.table[op] = match
        return match


def compile_rules(rules: Sequence[Rule], name: str = "rules", context: bool = False) -> Matcher:
    """All rules as one matcher; with ``context``, its functions may ask for ``ctx``."""
    return Matcher(rules, name, context)


def _function(
    op: int, rules: Sequence[Rule], context: bool, name: str
) -> tuple[str, MatchFunction]:
    namespace: dict[str, Any] = {
        "build": build,
        "const": const,
        "bool_like": bool_like,
        "is_zero": is_zero,
    }
    source = write_function(op, rules, context, namespace)
    file = f"<{name}: {O.NAMES[op]}>"
    exec(compile(source, file, "exec"), namespace)
    # so that a traceback shows the generated line
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    return source, namespace[f"match_{O.NAMES[op]}"]


def build(op: int, dtype: DType, src: tuple[UOp, ...]) -> UOp:
    """A node for a template, in normal form where it is index arithmetic."""
    node = make(op, dtype, src)
    return rebuild(node, src) if src[0].dtype is dt.index else node


def bool_like(dtype: DType) -> DType:
    """The dtype of a comparison of such values."""
    return dt.bool_ if dtype.lanes == 1 else dt.bool_.vec(dtype.lanes)


# -- the pass ----------------------------------------------------------------------------------


def rewrite(roots: tuple[UOp, ...], matcher: Matcher, ctx: Any = None) -> tuple[UOp, ...]:
    """The roots with every rule applied until none matches, sources before users."""
    bit = matcher.bit
    seen = {r for r in roots if not r.nf & bit}
    if not seen:
        return roots
    found = list(seen)
    see, append = seen.add, found.append
    for node in found:  # grows while it is read
        for s in node.src:
            if s not in seen and not s.nf & bit:
                see(s)
                append(s)
    found.sort(key=serial)
    newest = nodes._next_sn
    work = _Pass(matcher, ctx)
    work.run(found)
    stats.visits += work.visits
    stats.rewrites += work.rewrites
    stats.new_nodes += nodes._next_sn - newest
    memo = work.memo
    for node, new in memo.items():
        if new.origin is None and node.origin is not None and new.src:
            new.origin = node.origin
    return tuple([memo.get(r, r) for r in roots]) if memo else roots


class _Pass:
    """One walk. ``memo`` maps changed nodes to settled ones; a node at rest has the bit set,
    or is in ``rest`` when the matcher has no bit."""

    __slots__ = ("bit", "ctx", "matcher", "memo", "rest", "rewrites", "table", "visits")

    def __init__(self, matcher: Matcher, ctx: Any) -> None:
        self.matcher = matcher
        self.ctx = ctx
        self.bit = matcher.bit
        self.table = matcher.bound(ctx)
        self.memo: dict[UOp, UOp] = {}
        self.rest: set[UOp] = set()
        self.visits = 0
        self.rewrites = 0

    def run(self, order: list[UOp]) -> None:
        """Visit nodes given sources first."""
        bit, table, memo, rest = self.bit, self.table, self.memo, self.rest
        self.visits += len(order)
        for node in order:
            current = node
            if memo:
                src = node.src
                for s in src:
                    if s in memo:
                        src = tuple([memo.get(x, x) for x in src])
                        current = rebuild(node, src)
                        break
                if current is not node:
                    if current.nf & bit:
                        memo[node] = current
                        continue
                    if current.src != src or current.op != node.op:
                        self.settle(node, current)  # normal form made more than one node
                        continue
            match = table[current.op]
            if match is not None:
                result = match(current)
                if result is not None and result is not current:
                    self.rewrites += 1
                    if result.nf & bit:
                        memo[node] = result
                    else:
                        self.settle(current, result)
                        memo[node] = memo[current]
                    continue
            if bit:
                current.nf |= bit
            else:
                rest.add(current)
            if current is not node:
                memo[node] = current

    def settle(self, origin: UOp, first: UOp) -> None:
        """Bring ``first`` to rest and note it as the result of ``origin``."""
        bit, table, memo, rest = self.bit, self.table, self.memo, self.rest
        pending = {origin: first}  # nodes that wait for what they became
        stack = [origin, first]
        while stack:
            node = stack[-1]
            target = pending.get(node)
            if target is not None:
                memo[node] = memo.get(target, target)
                del pending[node]
                stack.pop()
                continue
            if node.nf & bit or node in memo or node in rest:
                stack.pop()
                continue
            src = node.src
            waiting = [s for s in src if not (s.nf & bit or s in memo or s in rest)]
            if waiting:
                for s in waiting:
                    if s in pending:
                        raise self.loop(pending, s)
                stack.extend(waiting)
                continue
            self.visits += 1
            for s in src:
                if s in memo:
                    target = rebuild(node, tuple([memo.get(x, x) for x in src]))
                    break
            else:
                match = table[node.op]
                target = match(node) if match is not None else None
                if target is None or target is node:
                    if bit:
                        node.nf |= bit
                    else:
                        rest.add(node)
                    stack.pop()
                    continue
                self.rewrites += 1
            if target in pending or len(pending) > _MAX_NESTING:
                pending[node] = target
                raise self.loop(pending, target)
            pending[node] = target
            stack.append(target)

    def loop(self, pending: dict[UOp, UOp], again: UOp) -> RewriteLoopError:
        """The error for a node whose result needs the node itself, or that grows for ever."""
        steps = list(pending.items())
        starts = [i for i, (node, _) in enumerate(steps) if node is again]
        steps = steps[starts[0] :] if starts else steps[-8:]
        names: list[str] = []
        lines = []
        for node, target in steps:
            fired = self.matcher.rules_that_give(node, target, self.ctx)[:1]
            names.extend([name for name in fired if name not in names])
            why = fired[0] if fired else "new sources"
            lines.append(f"  {describe(node)} -> {describe(target)}  by {why}")
        listed = ", ".join(names) or "none"
        return RewriteLoopError(
            f"the rules of {self.matcher.name!r} do not come to rest at {describe(steps[0][0])}; "
            f"fired in the loop: {listed}. Give one of them a guard.\n" + "\n".join(lines[:8])
        )


def describe(node: UOp) -> str:
    """A node and its sources, one line."""
    inner = [f"{O.NAMES[s.op]} {s.arg}" if s.op == O.CONST else O.NAMES[s.op] for s in node.src]
    arg = "" if node.arg is None else f" {node.arg}"
    return f"{O.NAMES[node.op]} {node.dtype!r}{arg}" + (f" ({', '.join(inner)})" if inner else "")
