"""A kernel as C-like text, for people to look at: nothing here is meant to be compiled.

In: the tree of loops that the LLVM renderer reads too, so what is shown is what runs. Vector
types are written ``f32x16``, a vector in memory ``p1[i0*64 : +16]``, accumulators are variables.
Values that are used once are written where they are used.
"""

from __future__ import annotations

from svod.codegen.linearize import Loop
from svod.codegen.render.expression import (
    expression,
    loop_names,
    memory_name,
    memory_of,
    place,
)
from svod.ir import ops as O
from svod.ir.node import UOp, stored_shape
from svod.optimize.opts import CORE

_WIDTH = 100
_ROOM = 56  # characters of a value that is written inside another
_ROOM_ALONE = 80  # and of one that is all of what is stored or carried on
_IN_PLACE = frozenset({O.PARAM, O.DEFINE_LOCAL, O.INDEX, O.CONST, O.LANES, O.DEFINE_VAR})
_IN_PLACE |= {O.BROADCAST, O.BIND, O.AFTER}
_INDEX_OPS = frozenset(
    {O.ADD, O.SUB, O.MUL, O.IDIV, O.MOD, O.MAX, O.MIN, O.RANGE, O.DEFINE_VAR, O.CONST, O.CAST}
)


def render_c(name: str, sink: UOp, root: Loop) -> str:
    """The function's text; ``sink`` is the lowered kernel that ``root`` was made from."""
    return _Writer(sink).render(name, root)


class _Writer:
    def __init__(self, sink: UOp) -> None:
        self.nodes = sink.toposort()
        self.names = loop_names(sink)
        self.lines: list[str] = []
        self.users: dict[UOp, list[UOp]] = {}
        for node in self.nodes:
            for s in node.src:
                self.users.setdefault(s, []).append(node)
        self.counters = self._counters()
        self.temporaries = 0
        self.accumulators = 0

    def render(self, name: str, root: Loop) -> str:
        for node in self.nodes:
            if node.op == O.DEFINE_VAR and node.arg.name == CORE:
                self._line(1, f"// core = 0..{node.arg.hi}, side by side")
            elif node.op == O.DEFINE_LOCAL:
                self._line(1, f"{node.dtype!r} {memory_name(node)}[{node.arg.size}];")
        self._items(root, 1)
        parameters = self._parameters()
        head = f"void {name}({', '.join(parameters)}) {{"
        if len(head) > _WIDTH:
            head = f"void {name}(\n    " + ",\n    ".join(parameters) + ") {"
        return "\n".join([head, *self.lines, "}"]) + "\n"

    def _parameters(self) -> list[str]:
        written = {memory_of(n.src[0]) for n in self.nodes if n.op == O.STORE}
        found = []
        for node in sorted([n for n in self.nodes if n.op == O.PARAM], key=lambda n: n.arg.slot):
            shape = "".join([f"[{n}]" for n in stored_shape(node.arg.shape)]) or "[1]"
            const = "" if node in written else "const "
            found.append(f"{const}{node.dtype!r} p{node.arg.slot}{shape}")
        variables = {n.arg.name for n in self.nodes if n.op == O.DEFINE_VAR} - {CORE}
        return found + [f"i64 {name}" for name in sorted(variables)]

    def _counters(self) -> set[UOp]:
        """Integer arithmetic over loop counters alone: always written where it is used."""
        found: set[UOp] = set()
        for node in self.nodes:
            is_integer = node.dtype.kind in "ix" and node.op in _INDEX_OPS
            if is_integer and all(s in found for s in node.src):
                found.add(node)
        return found

    # -- statements ----------------------------------------------------------------------------

    def _items(self, loop: Loop, depth: int) -> None:
        for position, item in enumerate(loop.items):
            if isinstance(item, Loop):
                self._loop(item, depth)
            elif item.op == O.STORE:
                target = place(item.src[0], item.src[1].dtype.lanes, self.names)
                self._line(depth, f"{target} = {expression(item.src[1], self.names)};")
            elif not self._stays_inside(item, loop, position):
                self._name(item, depth)

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def _name(self, node: UOp, depth: int) -> None:
        text = expression(node, self.names)
        name = f"t{self.temporaries}"
        self.temporaries += 1
        self._line(depth, f"{node.dtype!r} {name} = {text};")
        self.names[node] = name

    def _loop(self, loop: Loop, depth: int) -> None:
        assert loop.range is not None
        self._declare(loop.carried, depth)
        counter = self.names[loop.range]
        limit = expression(loop.range.src[0], self.names)
        self._line(depth, f"for ({counter} = 0; {counter} < {limit}; {counter}++) {{")
        self._items(loop, depth + 1)
        for node in loop.carried:
            name = self.names[node.src[0]]
            if node.src[-1] is loop.range:  # the innermost of its loops makes the update
                self._line(depth + 1, f"{name} = {expression(node.src[1], self.names)};")
        self._line(depth, "}")
        for node in loop.carried:
            self.names[node] = self.names[node.src[0]]

    def _declare(self, carried: list[UOp], depth: int) -> None:
        """Accumulators of one type and start on one line."""
        groups: dict[str, list[str]] = {}
        for node in carried:
            accumulator = node.src[0]
            if accumulator not in self.names:
                name = self.names[accumulator] = f"acc{self.accumulators}"
                self.accumulators += 1
                start = expression(accumulator.src[0], self.names)
                groups.setdefault(f"{accumulator.dtype!r} %s = {start};", []).append(name)
        for text, names in groups.items():
            few = names if len(names) <= 8 else [names[0], "..", names[-1]]
            self._line(depth, text % ", ".join(few))

    # -- what needs no name --------------------------------------------------------------------

    def _stays_inside(self, node: UOp, loop: Loop, position: int) -> bool:
        """Whether the value is written where it is used."""
        if node in self.counters or node.op in _IN_PLACE:
            return True
        users = self.users.get(node, [])
        if len(users) != 1 or users[0].src.count(node) > 1:
            return False
        user = users[0]
        while user.op in (O.BROADCAST, O.INDEX, O.AFTER):
            more = self.users.get(user, [])
            if len(more) != 1:
                return False
            user = more[0]
        alone = users[0] is user and user.op in (O.STORE, O.REDUCE)
        if len(expression(node, self.names)) > (_ROOM_ALONE if alone else _ROOM):
            return False
        return self._used_before_change(node, user, loop, position)

    def _used_before_change(self, node: UOp, user: UOp, loop: Loop, position: int) -> bool:
        """Whether the user comes in the same loop, with no loop or store between."""
        if user.op == O.REDUCE:  # the update, at the end of the loop
            return user.src[-1] is loop.range and not any(
                isinstance(i, Loop) or i.op == O.STORE for i in loop.items[position:]
            )
        for item in loop.items[position + 1 :]:
            if item is user:
                return True
            if isinstance(item, Loop) or item.op == O.STORE:
                return False
        return False
