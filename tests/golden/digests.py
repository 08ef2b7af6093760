"""Digests of the opts and the text of many kernels, for every kind of target.

``python -m tests.golden.digests write FILE`` compiles the programs of ``tests/golden/forms.py`` for
CPUs and GPUs, whatever this machine has, and writes a line per kernel. ``compare FILE`` does it
again and says what differs: a change that only moves code must not change a line. Names after the
file take the forms whose names hold one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from svod import Tensor
from svod.base.hashing import digest
from svod.codegen.pipeline import generate
from svod.codegen.target import Target
from svod.codegen.targets.cpu import cpu_target
from svod.codegen.targets.cuda import cuda_target
from svod.device.cpu.host import machine_of
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, make
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.opts import Opt
from svod.schedule.normalize import normalization
from svod.schedule.schedule import kernel_bodies, pre_schedule
from svod.tensor.core.tensor_core import wrap
from tests.golden.forms import forms

ROOTS = (O.ASSIGN, O.COPY, O.SCATTER, O.CONTIGUOUS)
OLDER = GpuMachine(capability=(8, 0), most_shared_bytes=163 << 10)
CACHES = {"cores": 2, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "stream_bytes": 32 << 20}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a form on a target."""

    name: str
    body: UOp
    opts: str
    text: str  # and what a launch must know


@dataclass(frozen=True, slots=True)
class Goal:
    """What kernels are made for."""

    name: str
    target: Target[Any]

    def bodies(self, results: list[Tensor]) -> list[UOp]:
        """The distinct kernels that compute these."""
        return _bodies(results, self.target.name, self.target.capabilities)

    def kernel(self, body: UOp, given: tuple[Opt, ...] | None = None) -> Kernel:
        """A kernel with the opts that are given, or chosen."""
        code = generate(body, self.target, given=given)
        facts = []
        for aligned in (True, False) if self.target.name == "CUDA" else (True,):
            text = code.text(aligned)
            if self.target.name == "CUDA":
                needs = text.needs
                facts.append(f"{needs.align} {needs.shared} {needs.maps}\n{text.source}")
            else:
                facts.append(f"{' '.join(sorted(text.declarations))}\n{text.function}")
        return Kernel(code.symbol, body, ", ".join(map(str, code.opts)), "\n".join(facts))


def goals() -> list[Goal]:
    """Every kind of target."""
    dots = ("bf16", "i16", "u8s8")
    machines = {n: replace(machine_of(n), **CACHES) for n in ("avx512", "avx2", "sse4")}
    machines["avx512"] = replace(machines["avx512"], dots=dots)
    return [
        *[Goal(name, cpu_target(machine)) for name, machine in machines.items()],
        Goal("sm_90", cuda_target(GpuMachine())),
        Goal("sm_80", cuda_target(OLDER)),
    ]


def new_on(device: str) -> Callable[..., Tensor]:
    """Tensors of memory that is never touched."""

    def new(*shape: int, dtype: DType = dt.float32) -> Tensor:
        return wrap(B.view_as(B.new_buffer(prod(shape), dtype, device), shape), device)

    return new


def _bodies(results: list[Tensor], device: str, able: Capabilities) -> list[UOp]:
    """The distinct kernels that compute these."""
    nodes = [t.uop for t in results if 0 not in t.shape]
    roots = [n if n.op in ROOTS else make(O.CONTIGUOUS, n.dtype, (n,)) for n in nodes]
    found = normalization(make(O.SINK, dt.void, tuple(roots)), "digests")
    return kernel_bodies(pre_schedule(found, device, False, "", lambda name: able))


def compiled(names: Sequence[str] = ()) -> Iterator[tuple[str, str, Kernel]]:
    """Every kernel, with its target and its form."""
    for goal in goals():
        for form, program in forms(new_on(goal.target.name)):
            if not names or any(name in form for name in names):
                for body in goal.bodies(program()):
                    yield goal.name, form, goal.kernel(body)


def lines(names: Sequence[str] = ()) -> list[str]:
    """One line per kernel."""
    found = []
    for goal, form, kernel in compiled(names):
        mark = digest(kernel.opts, kernel.text)[:16]
        found.append(f"{goal} | {form} | {kernel.name} | {mark} | {kernel.opts}")
    return found


def main(command: str, path: str, *names: str) -> int:
    made = lines(names)
    if command == "write":
        Path(path).write_text("\n".join(made) + "\n", encoding="utf-8")
        print(f"{len(made)} kernels")
        return 0
    known = Path(path).read_text(encoding="utf-8").splitlines()
    if names:
        known = [k for k in known if any(name in k.split(" | ")[1] for name in names)]
    gone = [f"- {line}" for line in known if line not in set(made)]
    new = [f"+ {line}" for line in made if line not in set(known)]
    print("\n".join([*gone, *new, f"{len(made)} kernels, {len(gone)} gone, {len(new)} new"]))
    return 1 if gone or new else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
