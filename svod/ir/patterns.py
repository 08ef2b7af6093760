"""The language of rewrite rules, and their translation to Python source.

A rule is one line of data: ``rule("add_zero", (ADD, "x", -0.0), "x")``. The left side is a
pattern, the right side a template of the same language, or a function of the captured nodes
that may return None to decline. ``svod.ir.rewrite`` compiles lists of rules.

Patterns:
  ``"x"``              any node; the same name again means the same node
  ``"x:int"``          any node of that class of dtype, see ``KINDS``
  ``"#c"``             a CONST node
  ``0``, ``1.5``       a CONST of this value in any dtype; 0.0 and -0.0 differ, but both are
                       the 0 of an integer
  ``True``             a bool CONST
  ``(ADD, p, q)``      a node of this op; a frozenset of ops means any of them
  ``(~ADD, p, q)``     only in the written order
  ``(LOAD, p, ...)``   more sources may follow
Commutative ops match in both orders. A template that drops a variable is used only where
that does not change the shape of the node. Functions and guards name what they want as
parameters: captured names, ``root`` for the matched node, ``ctx`` for the pass's context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import copysign
from typing import Any, NamedTuple

from svod.base.errors import GraphError
from svod.ir import ops as O

# Any: patterns nest tuples, names and numbers without a fixed depth
Pattern = Any
Path = tuple[int, ...]

KINDS = {"int": "iux", "float": "f", "bool": "b", "whole": "biux"}

_ARITY: dict[int, int] = {
    **dict.fromkeys(O.UNARY, 1),
    **dict.fromkeys(O.BINARY_OPS, 2),
    **dict.fromkeys(O.TERNARY, 3),
    **dict.fromkeys(O.MOVEMENT, 1),
    **dict.fromkeys((O.CAST, O.BITCAST, O.BROADCAST, O.GEP, O.LANE_REDUCE, O.CONTIGUOUS), 1),
}


class Rule(NamedTuple):
    """One rewrite rule; made by ``rule``."""

    name: str
    pattern: Pattern
    result: Pattern  # a template, or a function returning a node or None
    when: Callable[..., bool] | None


def rule(
    name: str, pattern: Pattern, result: Pattern, when: Callable[..., bool] | None = None
) -> Rule:
    """The rule that turns ``pattern`` into ``result``, where ``when`` holds."""
    return Rule(name, pattern, result, when)


def root_ops(pattern: Pattern) -> tuple[int, ...]:
    """The ops a pattern's root may have."""
    if not isinstance(pattern, tuple):
        raise GraphError(f"a rule must start from an op, not from {pattern!r}")
    return tuple([op if op >= 0 else ~op for op in _ops_of(pattern[0])])


def ordered(ops: frozenset[int]) -> frozenset[int]:
    """The ops, matched only in the written order."""
    return frozenset([~op for op in ops])


def _ops_of(op: int | frozenset[int]) -> list[int]:
    return [op] if isinstance(op, int) else sorted(op)


# -- from patterns to tests --------------------------------------------------------------------


class Test(NamedTuple):
    """One question about the node at ``path``; equal tests are asked once."""

    what: str  # op, sources, at_least, value, kind or same
    path: Path
    value: Any  # an op, a count, the text of a number, kinds, or the path of the other node


class Case(NamedTuple):
    """One order of the operands of a rule: tests, then the captured paths."""

    rule: Rule
    tests: tuple[Test, ...]
    names: dict[str, Path]
    constants: frozenset[str]


def cases_of(rule: Rule, op: int) -> list[Case]:
    """The orders of operands in which a rule can match at a root with this op."""
    count: dict[str, int] = {}
    _count_names(rule.pattern, count)
    is_free = op in _ops_of(rule.pattern[0])
    found: list[Case] = []
    for order in _orders((op if is_free else ~op, *rule.pattern[1:]), count):
        case = _case(rule, order)
        if case.tests not in [other.tests for other in found]:
            found.append(case)
    return found


def _count_names(pattern: Pattern, count: dict[str, int]) -> None:
    if isinstance(pattern, tuple):
        for part in pattern[1:]:
            _count_names(part, count)
    elif isinstance(pattern, str):
        name = pattern.partition(":")[0].lstrip("#")
        count[name] = count.get(name, 0) + 1


def _orders(pattern: Pattern, count: dict[str, int]) -> Iterator[Pattern]:
    if not isinstance(pattern, tuple):
        yield pattern
        return
    parts = [list(_orders(part, count)) for part in pattern[1:]]
    for op in _ops_of(pattern[0]):
        for chosen in product(*parts):
            yield (op if op >= 0 else ~op, *chosen)
            if op in O.COMMUTATIVE and len(chosen) == 2 and not _symmetric(*chosen, count=count):
                yield (op, chosen[1], chosen[0])


def _symmetric(a: Pattern, b: Pattern, count: dict[str, int]) -> bool:
    """Swapping two operands is only a renaming when both are plain names used nowhere else."""
    if a == b and type(a) is type(b):
        return True
    plain = isinstance(a, str) and isinstance(b, str) and not {"#", ":"} & set(a + b)
    return plain and count[a] == 1 and count[b] == 1


def _case(rule: Rule, pattern: Pattern) -> Case:
    tests: list[Test] = []
    late: list[Test] = []
    names: dict[str, Path] = {}
    constants = set()
    queue: list[tuple[Path, Pattern]] = [((), pattern)]
    for path, part in queue:  # breadth first, so that rules share the tests near the root
        if isinstance(part, tuple):
            op, inner = part[0], part[1:]
            if path:
                tests.append(Test("op", path, op))
            is_open = bool(inner) and inner[-1] is ...
            if is_open:
                inner = inner[:-1]
                tests.append(Test("at_least", path, len(inner)))
            elif op not in _ARITY:
                tests.append(Test("sources", path, len(inner)))
            elif _ARITY[op] != len(inner):
                raise GraphError(
                    f"rule {rule.name}: {O.NAMES[op]} has {_ARITY[op]} sources, not {len(inner)}"
                )
            queue.extend([((*path, i), child) for i, child in enumerate(inner)])
        elif isinstance(part, str):
            name, _, kind = part.partition(":")
            if name.startswith("#"):
                name = name[1:]
                constants.add(name)
                tests.append(Test("op", path, O.CONST))
            if not name.isidentifier() or (kind and kind not in KINDS):
                raise GraphError(f"rule {rule.name}: {part!r} is not a name")
            if kind:
                late.append(Test("kind", path, KINDS[kind]))
            if name in names:
                late.append(Test("same", path, names[name]))
            else:
                names[name] = path
        elif isinstance(part, (bool, int, float)):
            tests.append(Test("op", path, O.CONST))
            late.append(Test("value", path, repr(part)))
        else:
            raise GraphError(f"rule {rule.name}: {part!r} is not a pattern")
    # values of constants first among the late tests: they reject most often
    late.sort(key=lambda test: ("value", "same", "kind").index(test.what))
    return Case(rule, tuple(tests + late), names, frozenset(constants))


# -- merging: a tree of shared tests -------------------------------------------------------------


class _Tree:
    """Tests that share a prefix; ``items`` holds cases and subtrees in order of priority."""

    __slots__ = ("branches", "items")

    def __init__(self) -> None:
        self.items: list[Case | Test] = []
        self.branches: dict[Test, _Tree] = {}

    def insert(self, case: Case) -> None:
        tree = self
        for test in case.tests:
            inner = tree.branches.get(test)
            if inner is None:
                inner = tree.branches[test] = _Tree()
                tree.items.append(test)
            tree = inner
        tree.items.append(case)


class _Writer:
    """Writes the decision function of one root op."""

    def __init__(self, op: int, context: bool, namespace: dict[str, Any]) -> None:
        self.op = op
        self.namespace = namespace
        self.lines = [f"def match_{O.NAMES[op]}({'ctx, n' if context else 'n'}):"]

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def tree(self, tree: _Tree, depth: int, known: set[str], ops: dict[Path, int]) -> None:
        written: set[Path] = set()  # paths whose op tests already stand in one if-chain
        for item in tree.items:
            if isinstance(item, Case):
                self.case(item, depth, known, ops)
            elif item.what == "op":
                if item.path not in written:
                    written.add(item.path)
                    self.chain(tree, item.path, depth, known, ops)
            else:
                self.line(depth, f"if {self.condition(item, depth, known, ops)}:")
                self.tree(tree.branches[item], depth + 1, set(known), dict(ops))

    def chain(
        self, tree: _Tree, path: Path, depth: int, known: set[str], ops: dict[Path, int]
    ) -> None:
        """One if/elif over the op of one node."""
        tests = [t for t in tree.items if isinstance(t, Test) and t.what == "op" and t.path == path]
        subject = f"{self.node(path, depth, known, ops)}.op"
        if len(tests) > 1:
            self.line(depth, f"{_name(path)}_op = {subject}")
            subject = f"{_name(path)}_op"
        word = "if"
        for test in tests:
            self.line(depth, f"{word} {subject} == {test.value}:  # {O.NAMES[test.value]}")
            self.tree(tree.branches[test], depth + 1, set(known), {**ops, path: test.value})
            word = "elif"

    def condition(self, test: Test, depth: int, known: set[str], ops: dict[Path, int]) -> str:
        node = self.node(test.path, depth, known, ops)
        if test.what == "sources":
            return f"len({node}.src) == {test.value}"
        if test.what == "at_least":
            return f"len({node}.src) >= {test.value}"
        if test.what == "kind":
            verb = "==" if len(test.value) == 1 else "in"
            return f"{node}.dtype.kind {verb} {test.value!r}"
        if test.what == "same":
            return f"{node} is {self.node(test.value, depth, known, ops)}"
        if test.value in ("True", "False"):
            return f"{node}.arg is {test.value}"
        if float(test.value) == 0:
            return f"{node}.arg == 0 and is_zero({node}.arg, {test.value})"
        return f"{node}.arg == {test.value}"

    def node(self, path: Path, depth: int, known: set[str], ops: dict[Path, int]) -> str:
        """The local that holds the node at ``path``, bound here if no outer block did."""
        name = _name(path)
        if path and name not in known:
            parent = path[:-1]
            above = self.node(parent, depth, known, ops)
            arity = _ARITY.get(self.op if not parent else ops[parent], 0)
            if arity > 1:
                names = [_name((*parent, i)) for i in range(arity)]
                self.line(depth, f"{', '.join(names)} = {above}.src")
                known.update(names)
            else:
                self.line(depth, f"{name} = {above}.src[{path[-1]}]")
                known.add(name)
        return name

    def case(self, case: Case, depth: int, known: set[str], ops: dict[Path, int]) -> None:
        """The guard and the result of one rule."""
        rule = case.rule
        names = {"root": "n", "ctx": "ctx"}
        used = _names_used(rule)
        for name, path in case.names.items():
            if name in used:
                names[name] = self.node(path, depth, known, ops)
        guards = []
        if not callable(rule.result):
            shape = self.shape_guard(case, names)
            if shape:
                guards.append(shape)
        if rule.when is not None:
            guards.append(self.call("when", rule, rule.when, names))
        if guards:
            self.line(depth, f"if {' and '.join(guards)}:")
            depth += 1
        if callable(rule.result):
            self.line(depth, f"r = {self.call('result', rule, rule.result, names)}")
            self.line(depth, "if r is not None:")
            self.line(depth + 1, "return r")
        else:
            text, _ = self.template(rule, rule.result, names, "n.dtype")
            self.line(depth, f"return {text}  # {rule.name}")

    def call(
        self, role: str, rule: Rule, function: Callable[..., Any], names: dict[str, str]
    ) -> str:
        wanted = _parameters(function)
        missing = [w for w in wanted if w not in names]
        if missing:
            raise GraphError(f"rule {rule.name}: {role} asks for {missing[0]}, which nothing binds")
        name = f"{role}_{rule.name}"
        if self.namespace.setdefault(name, function) is not function:
            raise GraphError(f"two rules are called {rule.name}")
        return f"{name}({', '.join([names[w] for w in wanted])})"

    def shape_guard(self, case: Case, names: dict[str, str]) -> str:
        """Dropping a variable must not drop the shape it gave the node."""
        kept: dict[str, int] = {}
        _count_names(case.rule.result, kept)
        variables = [n for n in case.names if n not in case.constants]
        shapes = [f"{names[n]}.shape" for n in variables if n in kept]
        if len(shapes) == len(variables):
            return ""
        if not shapes:
            return "not n.shape"
        return f"{shapes[0] if len(shapes) == 1 else '(' + ' or '.join(shapes) + ')'} == n.shape"

    def template(
        self, rule: Rule, template: Pattern, names: dict[str, str], dtype: str
    ) -> tuple[str, str]:
        """The expression that builds a template, and the one that gives its dtype."""
        if isinstance(template, str):
            name = names.get(template.lstrip("#"))
            if name is None:
                raise GraphError(f"rule {rule.name}: nothing binds {template!r}")
            return name, f"{name}.dtype"
        if isinstance(template, (bool, int, float)):
            return f"const({template!r}, {dtype})", dtype
        op, parts = template[0], template[1:]
        if op not in O.ALU:
            raise GraphError(f"rule {rule.name}: {O.NAMES[op]} needs a function to build it")
        # numbers take the dtype of the operand beside them
        typed = [p for p in parts if isinstance(p, (str, tuple))]
        sources = []
        own = dtype
        if typed:
            own = self.template(rule, typed[1 if op == O.WHERE else 0], names, dtype)[1]
        for i, part in enumerate(parts):
            is_condition = op == O.WHERE and i == 0
            sources.append(self.template(rule, part, names, "n.dtype" if is_condition else own)[0])
        if op in O.COMPARE:
            own = f"bool_like({own})"
        listed = ", ".join(sources) + ("," if len(sources) == 1 else "")
        return f"build({op}, {own}, ({listed}))", own


def _name(path: Path) -> str:
    return "n" + "".join([str(i) for i in path])


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def _names_used(rule: Rule) -> set[str]:
    used = set(_parameters(rule.when)) if rule.when is not None else set()
    if callable(rule.result):
        return used.union(_parameters(rule.result))
    in_template: dict[str, int] = {}
    _count_names(rule.result, in_template)
    return used.union(in_template)


def is_zero(value: float, like: float) -> bool:
    """A zero with this sign; integers have only one."""
    return type(value) is not float or copysign(1.0, value) == copysign(1.0, like)


def alike(op: int) -> tuple[int, bool]:
    """Ops for which equal rules give equal functions have equal values of this."""
    return _ARITY.get(op, -1 - op), op in O.COMMUTATIVE


def write_function(op: int, rules: Sequence[Rule], context: bool, namespace: dict[str, Any]) -> str:
    """Source of the decision function of one root op; fills the namespace it runs in.

    Rules keep their order wherever the same tests lead to them. A rule that shares tests with
    an earlier one moves up to it, so rules that overlap must agree on the final result.
    """
    root = _Tree()
    for rule in rules:
        for case in cases_of(rule, op):
            root.insert(case)
    writer = _Writer(op, context, namespace)
    writer.tree(root, 1, set(), {})
    writer.line(1, "return None")
    return "\n".join(writer.lines) + "\n"
