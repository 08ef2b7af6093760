"""The tiles of the gradient of attention, run by the emulator against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod.codegen.pipeline import generate
from svod.codegen.targets.cuda import cuda_target
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile
from svod.tensor.layers import attention
from svod.tensor.layers.attention import Call, attention_gradients
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import bodies, scheduled, stored

Array = np.ndarray[Any, Any]
KINDS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROUNDING = {"bfloat16": 6e-3, "float16": 8e-4}


class Case:
    """One head: its arrays, and the gradients in float64."""

    def __init__(
        self, rows: int, keys: int, width: int, columns: int, kind: str, is_causal: bool = False
    ) -> None:
        rng = np.random.default_rng(3)
        shapes = ((rows, width), (keys, width), (keys, columns), (rows, columns))
        drawn = [rng.standard_normal(s).astype(KINDS[kind]) for s in shapes]
        self.query, self.key, self.value, self.grad = drawn
        self.kind, self.is_causal, self.factor = kind, is_causal, 1 / np.sqrt(width)
        self.mask: Array | None = None

    def work_out(self) -> None:
        q, k, v, g = (t.astype(np.float64) for t in (self.query, self.key, self.value, self.grad))
        scores = q @ k.T * self.factor
        if self.is_causal:
            scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
        elif self.mask is not None and self.mask.dtype == bool:
            scores = np.where(self.mask, scores, -np.inf)
        elif self.mask is not None:
            scores = scores + self.mask
        top = np.maximum(scores.max(-1, keepdims=True), -1e300)
        powers = np.exp(scores - top)
        total = powers.sum(-1, keepdims=True)
        weights = powers / np.where(total == 0, 1, total)
        output = weights @ v
        received = weights * (g @ v.T - (g * output).sum(-1, keepdims=True))
        self.output = output.astype(KINDS[self.kind])
        narrow = self.output.astype(np.float32)
        self.own = (self.grad.astype(np.float32) * narrow).sum(-1)
        self.wanted = (received @ k * self.factor, received.T @ q * self.factor, weights.T @ g)

    def run(self, turned: str, is_aligned: bool) -> list[Array]:
        """All kernels, one after another, in the emulator."""
        self.work_out()
        named = {
            "q": self.query, "k": self.key, "v": self.value, "o": self.output, "g": self.grad,
        }  # fmt: skip
        memory: dict[UOp, Array] = {}
        tensors = {}
        for name, array in named.items():
            if name in turned:
                t = stored(1, *array.T.shape, dtype=getattr(dt, self.kind))
                memory[buffer_of(t.uop)] = np.ascontiguousarray(array.T)
                tensors[name] = t.permute(0, 2, 1)
            else:
                t = tensors[name] = stored(1, *array.shape, dtype=getattr(dt, self.kind))
                memory[buffer_of(t.uop)] = array
        mask = None
        if self.mask is not None:
            kind = dt.bool_ if self.mask.dtype == bool else dt.float32
            mask = stored(*self.mask.shape, dtype=kind)
            memory[buffer_of(mask.uop)] = self.mask
        q, k, v, o, g = (tensors[n] for n in "qkvog")
        found = attention_gradients(q, k, v, mask, o, g, Call(self.factor, self.is_causal))[:3]
        made = scheduled(*found)
        for item in made.items:
            execute(item.body, list(item.arguments), memory, self.own, is_aligned)
        shapes = [w.shape for w in self.wanted]
        results = [memory[o].astype(np.float64) for o in made.outputs]
        return [r.reshape(s) for r, s in zip(results, shapes, strict=True)]


def execute(
    body: UOp, arguments: list[UOp], memory: dict[UOp, Array], own: Array, is_aligned: bool
) -> None:
    """One kernel; the one without a tile is the sum over rows, ``own``."""
    code = generate(body, cuda_target(GpuMachine()))
    target = next(n for n in body.toposort() if n.op == O.PARAM and n.arg.slot == 0)
    if not any(is_tile(n) for n in code.kernel.toposort()):
        assert np.prod(target.arg.shape) == own.size
        memory[arguments[0]] = own
        return
    found = np.zeros(target.arg.shape, KINDS.get(target.dtype.name, np.float32))
    given = {i: memory[a] for i, a in enumerate(arguments[1:], 1)}
    emulator = Emulator(code.text(is_aligned).source, {0: found, **given}, code.threads)
    x, y, z = (int(s.arg) for s in derive_metadata(code.kernel).global_size)
    emulator.run((x, y, z))
    memory[arguments[0]] = found


def buffer_of(node: UOp) -> UOp:
    (found,) = [n for n in node.toposort() if n.op == O.BUFFER]
    return found


def check(case: Case, turned: str = "", is_aligned: bool = True) -> None:
    for found, wanted in zip(case.run(turned, is_aligned), case.wanted, strict=True):
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        assert error < ROUNDING[case.kind], f"relative error {error}"
        assert np.abs(found - wanted).max() < 20 * ROUNDING[case.kind] * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("rows", "keys", "width", "columns", "kind", "is_causal"),
    [
        (128, 128, 128, 128, "bfloat16", False),
        (256, 256, 128, 128, "bfloat16", True),
        (200, 333, 64, 64, "float16", True),
        (333, 200, 80, 80, "bfloat16", True),
        (77, 131, 100, 37, "bfloat16", False),
        (64, 300, 64, 128, "float16", True),
    ],
)
def test_sizes(rows: int, keys: int, width: int, columns: int, kind: str, is_causal: bool) -> None:
    check(Case(rows, keys, width, columns, kind, is_causal))


@pytest.mark.parametrize("turned", ["qkvog", "q", "k", "v", "g"])
def test_operands_that_run_the_other_way(turned: str) -> None:
    check(Case(128, 136, 64, 64, "bfloat16", True), turned)


def test_heads_that_share_their_keys() -> None:
    cases = [Case(130, 70, 64, 64, "bfloat16", True) for _ in range(4)]
    rng = np.random.default_rng(9)
    for number, case in enumerate(cases):
        drawn = [rng.standard_normal((130, 64)).astype(ml_dtypes.bfloat16) for _ in range(2)]
        case.query, case.grad = drawn
        if number % 2 == 0:
            shared = [rng.standard_normal((70, 64)).astype(ml_dtypes.bfloat16) for _ in range(2)]
        case.key, case.value = shared
        case.work_out()
    memory: dict[UOp, Array] = {}

    def placed(arrays: list[Array]) -> svod.Tensor:
        found = stored(1, len(arrays), *arrays[0].shape, dtype=dt.bfloat16)
        memory[buffer_of(found.uop)] = np.stack(arrays)
        return found

    query, output, grad = (
        placed([getattr(c, n) for c in cases]) for n in ("query", "output", "grad")
    )
    key, value = (
        placed([getattr(c, n) for c in cases[::2]]).repeat_interleave(2, -3)
        for n in ("key", "value")
    )
    made = scheduled(*attention_gradients(query, key, value, None, output, grad, Call(0.125, True)))
    own = np.stack([c.own for c in cases])
    for item in made.items:
        execute(item.body, list(item.arguments), memory, own, True)
    for place, out in enumerate(made.outputs):
        wanted = np.stack([c.wanted[place] for c in cases])
        found = memory[out].astype(np.float64).reshape(wanted.shape)
        assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < ROUNDING["bfloat16"]


def test_what_is_not_aligned() -> None:
    check(Case(130, 136, 64, 64, "bfloat16", True), is_aligned=False)


@pytest.mark.parametrize("kind", ["bool", "float", "row", "column"])
def test_masks(kind: str) -> None:
    case = Case(130, 190, 64, 64, "bfloat16")
    rng = np.random.default_rng(8)
    shape = {"row": (1, 190), "column": (130, 1)}.get(kind, (130, 190))
    case.mask = rng.standard_normal(shape).astype(np.float32)
    if kind == "bool":
        case.mask = case.mask < 0.5
        case.mask[[0, 77, 129]] = False  # rows without keys
        case.mask[:, 30] = False  # a key without rows
    check(case)


@pytest.mark.parametrize("kind", ["causal", "plain", "mask", "groups", "one matrix"])
def test_no_kernel_stores_scores(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_has_blocks", lambda name: True)
    heads = 2 if kind == "groups" else 4
    grad = stored(2, 4, 256, 64, dtype=dt.bfloat16)
    if kind == "one matrix":
        given = [stored(2, 256, 3, 4, 64, dtype=dt.bfloat16)]
        parts = list(given[0].permute(2, 0, 3, 1, 4))
    else:
        given = parts = [stored(2, n, 256, 64, dtype=dt.bfloat16) for n in (4, heads, heads)]
    for t in given:
        t.requires_grad = True
    out = parts[0].scaled_dot_product_attention(
        parts[1],
        parts[2],
        attn_mask=stored(256, 256, dtype=dt.bool_) if kind == "mask" else None,
        is_causal=kind in ("causal", "one matrix"),
        enable_gqa=kind == "groups",
    )
    found = bodies(*svod.autograd.grad((out * grad).sum(), given))
    for body in found:
        target = next(n for n in body.toposort() if n.op == O.PARAM and n.arg.slot == 0)
        assert np.prod(target.arg.shape) < 8 * 256 * 256
    tiles = [
        b
        for b in found
        if any(map(is_tile, generate(b, cuda_target(GpuMachine())).kernel.toposort()))
    ]
    assert len(tiles) == 5  # attention, logarithms, and what query, key and value receive
