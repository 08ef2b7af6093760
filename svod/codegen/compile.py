"""Kernels to machine code: all that the runtime asks of the compiler.

In: kernels whose loops are chosen, and a target. Out: the text and the code of each, all of them
from one module: one verification, one code generation. Loops that cannot be lowered or compiled
give way to plainer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from svod.base.errors import CompileError, GraphError, RenderError, SvodError
from svod.base.hashing import digest
from svod.base.progress import step
from svod.codegen.choice import Chosen, compilable
from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import generate_from, work_of
from svod.codegen.plainer import may_fall_back
from svod.codegen.target import KernelText, Target
from svod.ir import ops as O
from svod.ir.node import UOp, make, substitute
from svod.ir.rewrite import rewrite


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel to compile: loops over slots 0, 1, .., and which arguments these are."""

    body: UOp
    chosen: Chosen
    sink: UOp
    positions: tuple[int, ...]
    name: str  # what people read
    symbol: str  # of the function
    flops: int
    moved: int

    @property
    def key(self) -> str:
        """The content of the program; different bodies may become the same one."""
        return digest(self.symbol, self.sink.content_hash)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel with its code; its loops may be plainer than those that were asked for."""

    kernel: Kernel
    text: KernelText
    code: bytes  # of its module, which may hold other kernels too


def kernel_of(body: UOp, chosen: Chosen, rules: Any = None) -> Kernel:
    """A body whose loops are chosen; ``rules`` replace what the target lacks."""
    name, loops = kernel_name(body), chosen.loops
    flops, moved = work_of(body, loops)
    if rules is not None:
        (loops,) = rewrite((loops,), rules)
    sink, positions = compacted(loops)
    symbol = f"{name}_{sink.content_hash[:10]}"
    return Kernel(body, chosen, sink, positions, name, symbol, flops, moved)


def compile(
    kernels: Sequence[Kernel], target: Target[Any], device: str, rules: Any = None
) -> list[Compiled]:
    """The code of kernels; ``device`` is what errors name."""
    compiler = _Compiler(target, device, rules)
    found = []
    for number, kernel in enumerate(kernels, 1):
        step(f"code of {kernel.name}", number, len(kernels))
        found.append(compiler.rendered(kernel))
    step(f"machine code, {len(kernels)} together", 0, 0)
    try:
        return compiler.emitted(found)
    except CompileError as problem:
        if not may_fall_back(problem):
            raise
    return compiler.emitted([compiler.rendered(kernel, emits=True) for kernel in kernels])


@dataclass(frozen=True, slots=True)
class _Compiler:
    target: Target[Any]
    device: str
    rules: Any

    def rendered(self, kernel: Kernel, *, emits: bool = False) -> tuple[Kernel, KernelText]:
        """The text of a kernel, or of the first plainer loops that have one; they must not only
        have a text but compile where ``emits`` says so."""
        attempt = partial(self._attempt, kernel, emits)
        return compilable(kernel.body, kernel.chosen, self.target.machine, attempt)

    def _attempt(self, kernel: Kernel, emits: bool, chosen: Chosen) -> tuple[Kernel, KernelText]:
        if chosen is not kernel.chosen:
            kernel = kernel_of(kernel.body, chosen, self.rules)
        text = self._text(kernel)
        if emits:
            try:
                self.target.emit(text.source)
            except CompileError as problem:
                raise self._failure(kernel.name, problem) from problem
        return kernel, text

    def _text(self, kernel: Kernel) -> KernelText:
        try:
            sink, opts = kernel.sink, kernel.chosen.opts
            return generate_from(kernel.body, sink, opts, self.target, kernel.symbol).text()
        except Exception as problem:
            # A malformed graph inside is a fault of the lowering; other errors say what to do.
            if isinstance(problem, SvodError) and not isinstance(problem, GraphError):
                raise
            what = f"{self.device} could not render {kernel.symbol!r}: {brief(problem)}"
            raise RenderError(what) from problem

    def emitted(self, found: Sequence[tuple[Kernel, KernelText]]) -> list[Compiled]:
        """Texts as one module, or as two where that is too much, or one of them is the fault."""
        try:
            code = self.target.emit(found[0][1].join([text for _, text in found]))
        except Exception as problem:
            if len(found) > 1:
                half = len(found) // 2
                return [*self.emitted(found[:half]), *self.emitted(found[half:])]
            raise self._failure(found[0][0].symbol, problem) from problem
        return [Compiled(kernel, text, code) for kernel, text in found]

    def _failure(self, name: str, problem: Exception) -> CompileError:
        return CompileError(f"{self.device} could not compile {name}: {brief(problem)}")


def compacted(kernel: UOp) -> tuple[UOp, tuple[int, ...]]:
    """The kernel over slots 0, 1, .. and the argument positions they stand for.

    Arguments that were optimised away are not passed at all.
    """
    used = sorted({n.arg.slot for n in kernel.toposort() if n.op == O.PARAM and not n.src})
    if used == list(range(len(used))):
        return kernel, tuple(used)
    place = {slot: number for number, slot in enumerate(used)}
    mapping = {
        n: make(O.PARAM, n.dtype, (), n.arg._replace(slot=place[n.arg.slot]))
        for n in kernel.toposort()
        if n.op == O.PARAM and not n.src
    }
    return substitute((kernel,), mapping)[0], tuple(used)


def brief(problem: Exception) -> str:
    """A cause as part of a message; errors that are not ours say their kind."""
    return (
        str(problem) if isinstance(problem, SvodError) else f"{problem} ({type(problem).__name__})"
    )
