"""Kernels, candidates and their values, for tests of opts and searches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

import svod
from svod import Tensor
from svod.codegen.targets.cpu import plain_loops
from svod.device.cpu.host import host_machine
from svod.ir.node import UOp
from svod.optimize.actions import apply_opts
from svod.optimize.beam import BeamConfig, Candidate, Drop
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.runtime.search import CandidateBench
from svod.runtime.search_pool import WorkerPool
from tests.schedule.graphs import bodies

MACHINE = Machine(vector_bytes=64, registers=32, cores=2, dots=host_machine().dots)
LIMITS = BeamConfig(width=2, seconds=5.0, compile_seconds=30.0, max_uops=100_000)


def floats(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def softmax(rows: int, columns: int) -> Tensor:
    x = floats(rows, columns)
    grown = (x - x.amax(1, True)).exp()
    return grown / grown.sum(1, True)


def attention(rows: int, columns: int) -> Tensor:
    query, key, value = floats(2, rows, 16), floats(2, columns, 16), floats(2, columns, 24)
    return (query * 0.01).scaled_dot_product_attention(key * 0.01, value, is_causal=True)


def image_product() -> Tensor:
    return floats(1, 3, 9, 9).pad(((0, 0), (0, 0), (1, 1), (1, 1))).permute(0, 2, 3, 1).sum(3)


KERNELS = {
    "elementwise": lambda: floats(7, 65) * 2 + floats(7, 65),
    "transposed": lambda: floats(130, 67).permute(1, 0) + 1,
    "rows": lambda: floats(5, 130).sum(1),
    "columns": lambda: floats(33, 130).sum(0),
    "matmul": lambda: floats(17, 33) @ floats(33, 65),
    "turned matmul": lambda: floats(24, 40) @ floats(48, 40).permute(1, 0),
    "batched": lambda: floats(3, 16, 20) @ floats(3, 20, 16),
    "words of bfloat16": lambda: floats(17, 34).bfloat16() @ floats(34, 65).bfloat16(),
    "signed bytes": lambda: _bytes(19, 37).matmul(_bytes(37, 256), dtype=svod.int32),
    "across": lambda: floats(300, 24).permute(1, 0) @ floats(300, 64),
    "both turned": lambda: floats(40, 24).permute(1, 0) @ floats(48, 40).permute(1, 0),
    "window": lambda: floats(1, 3, 12, 30).conv2d(floats(8, 3, 3, 3), padding=1),
    "strips": lambda: (floats(40, 24) + 1) @ floats(24, 256),
    "softmax": lambda: softmax(6, 70),
    "attention": lambda: attention(40, 64),
    "attention with a rest": lambda: attention(20, 37),
    "finished": lambda: (floats(8, 160) @ floats(32, 160).permute(1, 0) * 0.01).tanh(),
    "padded": image_product,
    "short sums": lambda: floats(4, 3, 100).sum(1),
    "run-time size": lambda: _sized().sum(1),
    "run-time rows": lambda: _sized() @ floats(33, 65),
    "run-time columns": lambda: (_sized() @ floats(33, 64)).permute(1, 0).contiguous(),
    "window of a batch": lambda: _batch(3, 12, 30).conv2d(floats(8, 3, 3, 3), padding=1),
    "attention of a batch": lambda: _attention_of_batch(),
    "sums in blocks": lambda: block_sums(9),
    "sums in blocks of one row": lambda: block_sums(1),
}


def block_sums(rows: int) -> Tensor:
    """A product with nibbles in lanes: 3 panels of 16 columns, 5 blocks of 2 x 2 words."""
    quants = Tensor((np.arange(3 * 5 * 2 * 64) % 251).astype(np.uint8).reshape(3, 5, 1, 2, 16, 4))
    shifts = (svod.arange(2, dtype=svod.uint8) * 4).reshape(1, 1, 2, 1, 1, 1)
    quants = ((quants >> shifts) & 15).unsqueeze(0).cast(svod.int32)
    scales = Tensor((np.arange(240) % 13).astype(np.float16).reshape(1, 3, 5, 16)).float()
    x = _bytes(rows, 1, 5, 2, 2, 1, 4).cast(svod.int32)
    sums = (quants * x).sum((3, 4, 6), dtype=svod.int32).float()
    return (sums * scales).sum(2).reshape(rows, 48)


def _bytes(*shape: int) -> Tensor:
    return Tensor((np.arange(prod(shape)) % 7 - 3).astype(np.int8).reshape(shape))


def _sized() -> Tensor:
    n = svod.Variable("n", 1, 40).bind(9)
    return floats(40, 33)[:n] * 2


def _batch(*shape: int) -> Tensor:
    return floats(5, *shape)[: svod.Variable("n", 1, 5).bind(2)]


def _attention_of_batch() -> Tensor:
    x = _batch(20, 16)
    return (x * 0.01).scaled_dot_product_attention(x * 0.01, x)


def body_of(name: str) -> UOp:
    return bodies(KERNELS[name]())[-1]


def loops_of(body: UOp) -> UOp:
    return plain_loops(body, MACHINE)


def candidates(kernel: UOp, lists: Iterable[Sequence[Opt]]) -> list[Candidate]:
    return [Candidate.of(apply_opts(kernel, opts, MACHINE), opts) for opts in lists]


def bench_of(body: UOp, pool: WorkerPool, limits: BeamConfig = LIMITS) -> CandidateBench:
    return CandidateBench(body, loops_of(body), limits, pool, {})


def values(bench: CandidateBench, candidate: Candidate) -> np.ndarray:
    """What a candidate leaves in the first argument."""
    (program,) = bench.compile([candidate])
    assert not isinstance(program, Drop), program
    bench.scratch[0].storage.host_bytes()[:] = 0x3F
    program.plan.execute()
    return bench.scratch[0].copyout()
