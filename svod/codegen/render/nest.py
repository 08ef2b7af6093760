"""The loops of a kernel in a few lines: which axes, of which kind and size, and what is stored.

In: a kernel after the opts, before lowering. Out: lines such as

    core 0..1
    loop i0:16, upcast i1:4, lane i2:64
      r0 = sum over k0:512 of p1[i0*2048 + i1*512 + k0] * p2[k0*128 + core*64 + i2]
      p0[i0*512 + i1*128 + core*64 + i2] = r0
"""

from __future__ import annotations

from svod.codegen.render.expression import expression, loop_names, place
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, serial
from svod.optimize.opts import CORE

_WORDS = {O.ADD: "sum", O.MUL: "product", O.MAX: "max", O.MIN: "min", O.AND: "all", O.OR: "any"}
_WIDTH = 100
_LINES = 20


def render_nest(kernel: UOp) -> str:
    """The loop nest as text."""
    names = loop_names(kernel)
    lines = [f"core 0..{n.arg.hi}" for n in kernel.toposort() if _is_core(n)]
    ends = [n for n in kernel.toposort() if n.op == O.END and n not in kernel.src]
    ends += [e for e in kernel.src if e.op == O.END]
    for position, end in enumerate(ends):
        part = _store_lines(end, names)
        if position and len(lines) + len(part) > _LINES:
            left = len(ends) - position
            lines.append(f"and {left} more {'store' if left == 1 else 'stores'}")
            break
        lines += part
    return "\n".join(lines)


def _is_core(node: UOp) -> bool:
    return node.op == O.DEFINE_VAR and bool(node.arg.name == CORE)


def _store_lines(end: UOp, names: dict[UOp, str]) -> list[str]:
    """The axes of one store, then what it is made from, line by line."""
    axes = [r for r in end.src[1:] if r.op == O.RANGE]
    lines = [", ".join([_axis(r, names) for r in axes]) or "once"]
    known = dict(names)
    reductions = places = 0
    for node in _visible(end, {}):
        if node.op == O.REDUCE:
            loops = [r for r in node.src if r.op == O.RANGE]
            over = ", ".join([_size(r, names) for r in loops])
            word = _WORDS.get(node.arg, O.NAMES[node.arg].lower())
            head = f"  r{reductions} = {word} over {over} of "
            lines += _fitted(head, node.src[0], known)
            known[node] = f"r{reductions}"
            reductions += 1
        elif _is_read_place(node):
            lines += _fitted(f"  x{places} = ", node.src[0], known)
            known[node] = f"x{places}"
            places += 1
    store = end.src[0]
    how = " in order" if store.arg == "ordered" else ""
    return lines + _fitted(f"  {place(store.src[0], 1, known)} ={how} ", store.src[1], known)


def _is_read_place(node: UOp) -> bool:
    """An index that comes from data."""
    return node.op == O.CAST and node.dtype is dt.index and node.src[0].op != O.CONST


def _fitted(head: str, node: UOp, known: dict[UOp, str]) -> list[str]:
    """One or two lines, or what the value is made from, one place in memory per line."""
    value = expression(node, known)
    if len(head) + len(value) <= _WIDTH:
        return [head + value]
    if len(value) <= _WIDTH - 4:
        return [head.rstrip(), f"    {value}"]
    below = _visible(node, known)
    results = sorted({known[n] for n in below if n in known and n.op in (O.REDUCE, O.CAST)})
    loads = [_cut(expression(n, known)) for n in below if n.op == O.LOAD]
    inputs = [*results, *dict.fromkeys(loads)]
    short = f"{head}f({', '.join(inputs)})"
    if len(short) <= _WIDTH:
        return [short]
    return [f"{head}f of", *[f"    {i}" for i in inputs[:6]], *(["    ..."] if inputs[6:] else [])]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH - 4 else text[: _WIDTH - 7] + "..."


def _visible(root: UOp, known: dict[UOp, str]) -> list[UOp]:
    """What is below, sources first: not under what has a name, nor what memory waits for."""
    seen = {root}
    found = [root]
    for n in found:
        if n in known:
            continue
        for s in n.src[:1] if n.op == O.AFTER else n.src:
            if s not in seen:
                seen.add(s)
                found.append(s)
    return sorted(found, key=serial)


def _axis(r: UOp, names: dict[UOp, str]) -> str:
    return f"{r.arg.kind.name.lower()} {_size(r, names)}"


def _size(r: UOp, names: dict[UOp, str]) -> str:
    kind = "" if names[r].startswith("i") or r.arg.kind.name == "REDUCE" else r.arg.kind.name
    text = f"{names[r]}:{expression(r.src[0], names)}"
    return f"{kind.lower()} {text}" if kind else text
