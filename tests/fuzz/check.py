"""Run one program everywhere and say what differs.

``python -m tests.fuzz.check threads 17`` shows the smallest failing part of program 17.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import svod
from svod.base.knobs import knobs
from svod.device.cpu import host
from svod.ir import ops as O
from svod.ir.evaluate import evaluate
from svod.optimize import heuristics
from svod.runtime.caches import clear_kernel_cache
from svod.schedule import split_reduce
from svod.schedule.schedule import clear_schedule_cache
from svod.tensor.core.tensor_registry import buffer_of
from tests.fuzz.programs import (
    Program,
    Step,
    listing,
    make_program,
    shadows,
    slice_of,
    tensors,
)
from tests.fuzz.shadow import mismatch


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compile: what the machine is said to be, and how soon work is split."""

    optimize: bool = True
    machine: dict[str, int] = field(default_factory=dict)
    thread_work: float | None = None
    split_from: int | None = None


WAYS = {
    "default": Way(),
    "plain": Way(optimize=False),
    "threads": Way(machine={"cores": 2}, thread_work=1.0, split_from=64),
    "many": Way(machine={"cores": 7, "vector_bytes": 32, "registers": 16}, thread_work=1.0),
    "narrow": Way(machine={"cores": 3, "vector_bytes": 16}, thread_work=100.0, split_from=128),
    "stream": Way(machine={"stream_bytes": 1, "l2_bytes": 256}, thread_work=1000.0),
    "scalar": Way(machine={"cores": 2, "vector_bytes": 0}, thread_work=1.0, split_from=512),
}


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Compile in one of the ways, with nothing left over from another."""
    way = WAYS[name]
    machine = replace(host.host_machine(), **way.machine)
    before = (host.host_machine, heuristics.THREAD_WORK, split_reduce.SPLIT_FROM)
    host.host_machine = lambda: machine  # type: ignore[assignment]
    if way.thread_work is not None:
        heuristics.THREAD_WORK = way.thread_work
    if way.split_from is not None:
        split_reduce.SPLIT_FROM = way.split_from
    clear_schedule_cache()
    clear_kernel_cache()
    try:
        with knobs.scope(optimize=way.optimize):
            yield
    finally:
        host.host_machine, heuristics.THREAD_WORK, split_reduce.SPLIT_FROM = before
        clear_schedule_cache()
        clear_kernel_cache()


def failure(program: Program, ref_device: bool = False, is_stored: bool = False) -> str | None:
    """What a program gets wrong on the CPU, in the evaluator or on REF; None when nothing.

    REF runs stores only, so programs that scatter are left to the evaluator.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = shadows(program)
    try:
        found = tensors(program, is_stored=is_stored)
        interpreted = [evaluated(found[i]) for i in program.outputs]
        if len(program.outputs) > 1:
            svod.realize(*[found[i] for i in program.outputs])
        results = [("CPU", [found[i].numpy() for i in program.outputs])]
        results.append(("evaluator", interpreted))
        if ref_device and not any(s.name == "write_rows" for s in program.steps):
            other = tensors(program, "REF")
            results.append(("REF", [other[i].numpy() for i in program.outputs]))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    for where, arrays in results:
        for number, array in zip(program.outputs, arrays, strict=True):
            wrong = mismatch(array, wanted[number])
            if wrong is not None:
                return f"{where}, v{number}: {wrong}"
    return None


def evaluated(tensor: Any) -> Any:
    """The value by the definition of every op."""
    leaves = {}
    for node in tensor.uop.toposort():
        if node.op == O.BUFFER:
            leaves[node] = buffer_of(node).numpy().reshape(node.shape)
    return evaluate(tensor.uop, leaves)


def reduce(program: Program, ref_device: bool = False) -> Program:
    """A smaller program that still fails."""
    for number in program.outputs:
        smaller = slice_of(program, number)
        if failure(smaller, ref_device) is not None:
            program = smaller
            break
    changed = True
    while changed:
        changed = False
        for candidate in _smaller(program):
            if failure(candidate, ref_device) is not None:
                program, changed = candidate, True
                break
    return program


def _smaller(program: Program) -> Any:
    """Programs with one value given as data, or with one step left out."""
    values = shadows(program)
    for number in range(len(program.steps) - 1, -1, -1):
        step = program.steps[number]
        if step.name == "input":
            continue
        if number not in program.outputs:
            steps = list(program.steps)
            steps[number] = Step("input", (), np.array(values[number].array))
            yield _pruned(Program(steps, program.outputs))
        for operand in step.operands:
            same = values[operand].shape == values[number].shape
            if same and values[operand].dtype is values[number].dtype:
                steps = [
                    Step(
                        s.name,
                        tuple([operand if i == number else i for i in s.operands]),
                        s.options,
                    )
                    for s in program.steps
                ]
                outputs = tuple([operand if i == number else i for i in program.outputs])
                yield _pruned(Program(steps, outputs))
                break


def _pruned(program: Program) -> Program:
    if len(program.outputs) == 1:
        return slice_of(program, program.outputs[0])
    return program


def main(way: str, seeds: list[str]) -> None:
    """Print a small form of each failing program."""
    for seed in seeds:
        program = make_program(int(seed))
        with compiling(way):
            wrong = failure(program)
            print(f"seed {seed}: {wrong or 'right'}")
            if wrong is not None:
                small = reduce(program)
                print(listing(small))
                print(str(failure(small))[:3000])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
