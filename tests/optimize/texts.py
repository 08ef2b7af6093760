"""Print digests of the text of many kernels: run in processes of their own.

``python -m tests.optimize.texts left`` makes graphs as the tensors do, ``right`` makes the same
graphs with every node's last source first, and other kernels before them. Nothing of that may
show: the kernels, their order, their names and their text are the same.
"""

from __future__ import annotations

import re
import sys

import numpy as np

from svod import Tensor
from svod.base.hashing import digest
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.text import dump, parse
from svod.schedule.normalize import normalize
from svod.schedule.schedule import kernel_bodies, pre_schedule
from tests.fuzz.programs import make_program, tensors
from tests.schedule.graphs import ROOTS, code

SEEDS = range(900, 960)


def named() -> dict[str, list[Tensor]]:
    """Programs with the shapes that matter: tiles, rests, two reductions, gathers, pads."""
    x = Tensor(np.ones((65, 130), np.float32))
    w = Tensor(np.ones((130, 33), np.float32))
    i = Tensor(np.arange(17))
    grown = (x - x.amax(1, True)).exp()
    apart = x - x.mean(1, True)
    image = Tensor(np.ones((2, 3, 14, 14), np.float32))
    square = Tensor(np.ones((64, 64), np.float32))
    return {
        "elementwise": [x * 2 + x.flip(0)],
        "matmul": [(x @ w + 1).maximum(0)],
        "softmax": [grown / grown.sum(1, True)],
        "layernorm": [apart * ((apart * apart).mean(1, True) + 1e-5).rsqrt()],
        "gather": [x[i] + 1],
        "pad": [image.pad(((0, 0), (0, 0), (1, 1), (1, 1))).permute(0, 2, 3, 1).sum(3)],
        "large": [Tensor(np.ones((1000, 1003), np.float32)).sum(), x.sum()],
        "outputs": [x.sum(0), x.sum(1), x.amax()],
        "products": [square @ (square + 1) + (square * 2) @ square - square.sum(0)],
    }


def sinks() -> list[tuple[str, str]]:
    """The normalised graph of every program, as text."""
    programs = list(named().items())
    for seed in SEEDS:
        program = make_program(seed)
        values = tensors(program)
        programs.append((f"program {seed}", [values[o] for o in program.outputs]))
    found = []
    for name, outputs in programs:
        nodes = [t.uop for t in outputs]
        roots = [n if n.op in ROOTS else make(O.CONTIGUOUS, n.dtype, (n,)) for n in nodes]
        found.append((name, dump(normalize(make(O.SINK, dt.void, tuple(roots)))[0])))
    return found


def from_the_right(text: str) -> str:
    """The same graph, its nodes in the order of a walk from last sources to first."""
    lines = text.splitlines()
    sources = [[int(n) for n in re.findall(r"%(\d+)", line.split(" : ")[0])[1:]] for line in lines]
    order: list[int] = []
    number: dict[int, int] = {}
    stack = [(len(lines) - 1, False)]
    while stack:
        node, ready = stack.pop()
        if node in number:
            continue
        if ready:
            number[node] = len(order)
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend([(s, False) for s in sources[node]])
    found = []
    for node in order:
        head, colon, rest = lines[node].partition(" : ")
        head = re.sub(r"%(\d+)", lambda m: f"%{number[int(m.group(1))]}", head)
        found.append(head + colon + rest)
    return "\n".join(found)


def digests(graphs: list[tuple[str, UOp]]) -> list[str]:
    """One line per kernel: its symbol and the digest of its text."""
    lines = []
    for name, sink in graphs:
        for body in kernel_bodies(pre_schedule(sink, "CPU", cached=False)):
            made = code(body)
            lines.append(f"{name}: {made.symbol} {digest(made.text().function)}")
    return lines


def main(way: str, path: str) -> None:
    if way == "left":
        texts = sinks()
        with open(path, "w", encoding="utf-8") as file:
            file.write("\f".join([f"{name}\v{text}" for name, text in texts]))
        print("\n".join(digests([(name, parse(text)) for name, text in texts])))
        return
    with open(path, encoding="utf-8") as file:
        pairs = [entry.split("\v") for entry in file.read().split("\f")]
    graphs = [(name, parse(from_the_right(text))) for name, text in reversed(pairs)]
    print("\n".join(digests(graphs[::-1])))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
