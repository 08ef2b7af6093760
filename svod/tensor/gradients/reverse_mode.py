"""Reverse-mode gradients as graph rewriting.

In: a root, the gradient of the root (the seed), and target nodes. Out: a node per target, the
gradient with respect to it, or None where the root does not depend on it. Every node is visited
once, after all its users; its rule says what each source receives. The result is an ordinary
graph: it is scheduled and fused with everything else and can be differentiated again.

A BITCAST to its own dtype changes no value and marks a place: without an argument nothing flows
through it (detach), with a ``Mark`` it names an argument of a function or a custom gradient, with
``Hooks`` functions see what arrives there. A ``Result`` of a ``Call`` has the inputs of the call
as further sources, and they receive what its own backward function says. What was made of
nothing (``EMPTY``) names that as its second source, so that it gets its gradient without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from svod.base.errors import SvodError, UnsupportedError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make, substitute
from svod.ir.scan import loop_of
from svod.tensor.gradients.gradient_rules import FLAT, RULES, one_minus, product, summed
from svod.tensor.gradients.scan_gradient import loop_gradients

Origin = Callable[[UOp], "UOp | None"]
CustomRule = Callable[[UOp, UOp, Sequence[UOp]], "Sequence[UOp | None]"]


class GradientError(SvodError, RuntimeError):
    """A gradient that cannot be formed: nothing to differentiate, or a seed is missing."""


class Mark(NamedTuple):
    """The argument of a marking BITCAST; equal calls make equal nodes, so schedules are reused."""

    name: str  # of the function it belongs to
    role: str  # "argument", or "input" and "output" of a function with a gradient of its own
    position: int = 0
    options: tuple[Any, ...] = ()  # plain arguments of the function
    is_complex: bool = False  # the marked floats are pairs, seen by the function as complex


class Call:
    """One call of a function that says itself what its inputs receive; no two are equal.

    Sources of each result are its value, ``inputs`` nodes that gradients flow to, and what else
    ``backward`` reads: these are the same for all results of the call.
    """

    __slots__ = ("inputs",)

    inputs: int

    def backward(self, node: UOp, received: Mapping[int, UOp]) -> Sequence[UOp | None]:
        """What each input receives, given a result and the gradients of results by position."""
        raise NotImplementedError


class Result(NamedTuple):
    """The argument of a BITCAST that is one of the results of a call."""

    call: Call
    position: int


class Hooks:
    """The argument of a BITCAST where functions see, and may change, the gradient; by identity."""

    __slots__ = ("functions", "is_complex")

    def __init__(self, is_complex: bool = False) -> None:
        self.functions: dict[int, Callable[[UOp], UOp]] = {}
        self.is_complex = is_complex

    def passed(self, own: UOp) -> UOp:
        """The gradient after all functions have seen it, oldest first."""
        for function in list(self.functions.values()):
            own = function(own)
        return own


custom_rules: dict[str, CustomRule] = {}  # filled by svod.tensor.gradients.autograd.custom_gradient


def mark(x: UOp, argument: Mark | None = None) -> UOp:
    """x behind a marking node; without an argument gradients stop there."""
    node = make(O.BITCAST, x.dtype, (x,), argument)
    node._shape = x.shape
    return node


def is_mark(node: UOp) -> bool:
    """Whether the node names a place through which gradients flow."""
    return node.op == O.BITCAST and isinstance(node.arg, Mark)


def is_hooked(node: UOp) -> bool:
    """Whether functions see the gradient of this node."""
    return node.op == O.BITCAST and isinstance(node.arg, Hooks)


def is_result(node: UOp) -> bool:
    """Whether the node is a result of a call with its own backward function."""
    return node.op == O.BITCAST and isinstance(node.arg, Result)


def gradient(
    root: UOp, seed: UOp, targets: Sequence[UOp], origin: Origin | None = None
) -> list[UOp | None]:
    """The gradients of the root with respect to the targets, given the root's own."""
    return gradients([(root, seed)], targets, origin)


def gradients(
    roots: Sequence[tuple[UOp, UOp]], targets: Sequence[UOp], origin: Origin | None = None
) -> list[UOp | None]:
    """The gradients of several roots, each with its own gradient, added up per target.

    ``origin`` says what a BUFFER was computed from, for values that were realised on the way.
    Constructors merge movement ops, so a target is a node that nothing looks through: a BUFFER,
    perhaps reshaped, a CONTIGUOUS, a marked or a computed value.
    """
    bases = [_stored_base(t) for t in targets]
    wanted = set(bases)
    edges, order = walk([root for root, _ in roots], wanted, origin)
    needed: set[UOp] = set()
    for node in order:
        if node in wanted or any(s in needed for _, s in edges[node]):
            needed.add(node)
    received: dict[UOp, list[UOp]] = {}
    for root, seed in roots:
        received.setdefault(root, []).append(seed)
    groups = _Groups(order)
    found: dict[UOp, UOp] = {}
    flat: list[UOp] = []  # what steps are computed from
    stored: dict[UOp, UOp] = {}
    for node in reversed(order):
        parts = received.pop(node, None)
        if node not in needed:
            continue
        if parts is None:
            if _is_grouped(node):
                groups.pass_on(node, None, needed, received)
            continue
        own = _added(node, parts)
        if is_hooked(node):
            own = node.arg.passed(own)
        if node in wanted:
            found[node] = own
        if _is_grouped(node):
            groups.pass_on(node, own, needed, received)
            continue
        flowing = [(i, s) for i, s in edges[node] if s in needed]
        if not flowing:
            continue
        if node.op == O.BUFFER:  # realised: go on through what computed it
            ((_, source),) = flowing
            stored[source] = B.reshape(node, source.shape)
            received.setdefault(source, []).append(B.reshape(own, source.shape))
            continue
        if node.op in FLAT:
            flat += [source for _, source in flowing]
        line = node.origin
        for source, part in _parts(node, own, flowing):
            fitted = _fitted(part, source)
            if fitted.origin is None and fitted.src:  # gradients belong to what they are of
                fitted.origin = line
            received.setdefault(source, []).append(fitted)
    if flat and len(found) < len(wanted):  # a step has a gradient, which is 0
        for node in wanted.intersection(_below(flat, edges)).difference(found):
            found[node] = B.full(node.shape, 0, node.dtype)
    pairs = zip(targets, [found.get(b) for b in bases], strict=True)
    results = [None if g is None else B.reshape(g, t.shape) for t, g in pairs]
    return _with_stored(results, stored) if stored else results


def _below(starts: Sequence[UOp], edges: dict[UOp, list[tuple[int, UOp]]]) -> set[UOp]:
    """The nodes that gradients of these flow to, with them."""
    found = set(starts)
    stack = list(found)
    while stack:
        new = [s for _, s in edges[stack.pop()] if s not in found]
        found.update(new)
        stack += new
    return found


class _Groups:
    """Results that give what they received together: of a loop over time, so that it is one loop
    back, and of a call with its own backward function.

    All results of a group have the same sources, so the first one in the order comes before any
    source is visited on the way back, and after every other result.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        self.first: dict[Any, UOp] = {}
        for node in order:
            if _is_grouped(node):
                self.first.setdefault(_group(node), node)
        self.seeds: dict[Any, list[tuple[UOp, UOp]]] = {}

    def pass_on(
        self, node: UOp, own: UOp | None, needed: set[UOp], received: dict[UOp, list[UOp]]
    ) -> None:
        group = _group(node)
        seeds = self.seeds.setdefault(group, [])
        if own is not None:
            seeds.append((node, own))
        if seeds and self.first[group] is node:
            is_loop = node.op == O.SCAN
            given = loop_gradients(seeds, needed, gradients) if is_loop else _called(seeds)
            for source, part in given:
                if source in needed:
                    received.setdefault(source, []).append(_fitted(part, source))


def _is_grouped(node: UOp) -> bool:
    return node.op == O.SCAN or is_result(node)


def _group(node: UOp) -> Any:
    return loop_of(node) if node.op == O.SCAN else (node.arg.call, node.src[1:])


def _called(seeds: Sequence[tuple[UOp, UOp]]) -> list[tuple[UOp, UOp]]:
    """Inputs of a call and what they receive, given its results and their gradients."""
    node = seeds[0][0]
    call = node.arg.call
    given = call.backward(node, {result.arg.position: own for result, own in seeds})
    pairs = zip(node.src[1 : 1 + call.inputs], given, strict=True)
    return [(source, part) for source, part in pairs if part is not None]


def _stored_base(node: UOp) -> UOp:
    """The BUFFER behind reshapes, else the node itself."""
    base = node
    while base.op == O.RESHAPE:
        base = base.src[0]
    return base if base.op in (O.BUFFER, O.BUFFER_VIEW) else node


def walk(
    roots: Sequence[UOp], wanted: set[UOp], origin: Origin | None
) -> tuple[dict[UOp, list[tuple[int, UOp]]], list[UOp]]:
    """What gradients of each node flow to, and the nodes in order, sources first."""
    edges: dict[UOp, list[tuple[int, UOp]]] = {}
    order: list[UOp] = []
    stack = [(root, False) for root in roots]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in edges:
            found = edges[node] = _edges(node, wanted, origin)
            stack.append((node, True))
            stack.extend([(s, False) for _, s in reversed(found) if s not in edges])
    return edges, order


def _edges(node: UOp, wanted: set[UOp], origin: Origin | None) -> list[tuple[int, UOp]]:
    """The sources that can receive a gradient, with their positions."""
    op = node.op
    if node.dtype.kind != "f":
        return []
    if op == O.BUFFER:
        source = None if origin is None else origin(node)
        return [] if source is None else [(0, source)]
    if op == O.BITCAST:
        return _edges_of_mark(node)
    if op == O.ASSIGN:
        return [(1, node.src[1])]
    if op == O.AFTER:  # memory that was written: plain data
        return []
    if op == O.SCAN:
        inputs = enumerate(node.src[2:], 2)
        return [(i, s) for i, s in inputs if s.dtype.kind == "f"]
    if op == O.RECIP and (x := _logistic(node, wanted)) is not None:
        return [(0, x)]
    return [(i, s) for i, s in enumerate(node.src) if s.dtype.kind == "f"]


def _edges_of_mark(node: UOp) -> list[tuple[int, UOp]]:
    arg = node.arg
    if isinstance(arg, Mark):
        return list(enumerate(_inputs(node))) if arg.role == "output" else [(0, node.src[0])]
    if isinstance(arg, Result):
        inputs = enumerate(node.src[1 : 1 + arg.call.inputs], 1)
        return [(i, s) for i, s in inputs if s.dtype.kind == "f"]
    if arg == B.EMPTY:
        return [(1, node.src[1])]
    return [(0, node.src[0])] if isinstance(arg, Hooks) else []


def _inputs(output: UOp) -> list[UOp]:
    """The marked inputs of one call of a function with its own gradient, in order."""
    name = output.arg.name
    found: dict[int, UOp] = {}
    seen: set[UOp] = set()
    stack = [output.src[0]]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_mark(node) and node.arg.name == name:
            if node.arg.role == "input":
                found[node.arg.position] = node
            continue  # what is below belongs to another call
        stack.extend(node.src)
    return [found[i] for i in sorted(found)]


def _parts(node: UOp, own: UOp, flowing: list[tuple[int, UOp]]) -> list[tuple[UOp, UOp]]:
    """What each source receives."""
    if is_mark(node):
        if node.arg.role != "output":
            return [(node.src[0], own)]
        inputs = _inputs(node)
        given = custom_rules[node.arg.name](node, own, inputs)
        by_position = {n.arg.position: n for n in inputs}
        found = [(by_position.get(i), part) for i, part in enumerate(given)]
        wanted = {s for _, s in flowing}
        return [(n, p) for n, p in found if n is not None and p is not None and n in wanted]
    if node.op == O.BITCAST:
        ((i, source),) = flowing
        return [(source, B.full(source.shape, 0, source.dtype) if i else own)]
    if node.op == O.RECIP and flowing[0][1] is not node.src[0]:
        return [(flowing[0][1], product(own, product(node, one_minus(node))))]
    rule = RULES.get(node.op)
    if rule is None:
        if node.op in FLAT:
            return []
        raise UnsupportedError(f"the gradient of {O.NAMES[node.op]}", "gradient")
    parts = [(s, rule(node, own, i)) for i, s in flowing]
    return [(s, p) for s, p in parts if p is not None]


def _logistic(node: UOp, wanted: set[UOp]) -> UOp | None:
    """x when the node is 1 / (exp(-x) + 1), whose parts overflow where the whole does not."""
    total = node.src[0]
    if total.op != O.ADD or total.src[1].op != O.CONST or total.src[1].arg != 1:
        return None
    grown = total.src[0]
    if grown.op != O.EXP or grown.src[0].op != O.NEG:
        return None
    inner = (total, grown, grown.src[0])
    return None if any(n in wanted for n in inner) else grown.src[0].src[0]


def _added(node: UOp, parts: list[UOp]) -> UOp:
    """The sum of what a node received."""
    joined = _joined(node, parts) if len(parts) > 2 else None
    if joined is not None:
        return joined
    total = parts[0]
    for part in parts[1:]:
        total = B.binary(O.ADD, total, part)
    return total


def _joined(node: UOp, parts: list[UOp]) -> UOp | None:
    """Padded slices that cover an axis side by side are a concatenation, not a sum."""
    shape = node.shape
    places = []
    for part in parts:
        if part.op != O.PAD:
            return None
        cut = [a for a, pair in enumerate(part.arg) if pair != (0, 0)]
        if len(cut) != 1 or part.src[0].dtype is not node.dtype:
            return None
        places.append((cut[0], part.arg[cut[0]][0], part.src[0]))
    axis = places[0][0]
    places.sort(key=lambda place: place[1])
    start = 0
    for own, before, piece in places:
        if own != axis or before != start:
            return None
        start += piece.shape[axis]
    return B.cat([p for _, _, p in places], axis) if start == shape[axis] else None


def _fitted(part: UOp, source: UOp) -> UOp:
    """A gradient in the shape of its source: a rank-0 operand was used everywhere."""
    if part.shape == source.shape:
        return part
    if not source.shape:
        return B.reshape(summed(part, tuple(range(len(part.shape)))), ())
    return B.broadcast_to(part, source.shape)


def _with_stored(results: list[UOp | None], stored: Mapping[UOp, UOp]) -> list[UOp | None]:
    """Realised values are read, not computed again."""
    roots = tuple([r for r in results if r is not None])
    replaced = iter(substitute(roots, dict(stored)))
    return [None if r is None else next(replaced) for r in results]
