"""Convolutions for the copy engine: which boxes it is told to read, and the form without it."""

from __future__ import annotations

from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from svod import Tensor
from svod.codegen.target import KernelCode
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize import gpu_boxes
from svod.optimize.gpu_boxes import box_of
from svod.optimize.gpu_tile import is_tile
from svod.schedule import channels
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import assemble, kernels, ptx, stored
from tests.gpu.test_convolutions import CASES, Case, convolve, convolved

BF16 = dt.bfloat16
SPLIT = {"stride 3", "space"}  # into parts of too few channels


def convolution(case: Case, kind: dt.DType = BF16) -> Tensor:
    return convolve(stored(*case.image, dtype=kind), stored(*case.kernel, dtype=kind), case)


def in_place(codes: list[KernelCode]) -> list[KernelCode]:
    """The kernels that read windows where they are."""
    return [
        code
        for code in codes
        if any(is_tile(n) and n.arg[1].startswith("boxes") for n in code.kernel.toposort())
    ]


@pytest.mark.parametrize("name", [n for n in CASES if n not in SPLIT])
def test_windows_are_not_stored(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    codes = kernels(convolution(case))
    (code,) = in_place(codes)
    largest = max(prod(case.image), prod(case.kernel))
    written = [prod(n.shape) for c in codes for n in c.body.toposort() if is_target(n)]
    assert max(written) <= max(largest, 4 * prod(convolution(case).shape))
    maps = code.text().needs.maps
    for tensor in maps:
        assert all(stride % 16 == 0 for stride in tensor.strides)
        assert max(tensor.box) <= 256 and tensor.box[0] * tensor.item == 128
    said = assemble([ptx(code), ptx(code, aligned=False)], tmp_path)
    assert "bytes spill" not in said.replace("0 bytes spill", "")


def is_target(node: UOp) -> bool:
    return bool(node.op == O.PARAM and node.arg.slot == 0)


def test_borders_are_what_the_copy_engine_fills() -> None:
    """A padded image has its own size, and the first window begins before it."""
    (code,) = in_place(kernels(convolution(CASES["padded"])))
    _, image = code.text().needs.maps
    assert image.sizes == (64, 28, 28, 8)
    assert image.steps == (1, 1, 1, 1)
    (code,) = in_place(kernels(convolution(CASES["stride"])))
    _, image = code.text().needs.maps
    assert image.sizes == (64, 2, 31, 29, 8)  # half of the channels at a time
    assert image.steps[2] == 2 and image.box[2] == 31


def test_a_chain_stays_in_one_order() -> None:
    x, w = stored(8, 64, 28, 28, dtype=BF16), stored(64, 64, 3, 3, dtype=BF16)
    first = x.conv2d(w, padding=1).relu()
    codes = kernels((first.conv2d(w, padding=1) + first).relu().conv2d(w, padding=1))
    assert len(in_place(codes)) == 3
    assert len([c for c in codes if c.name.startswith("copy")]) == 2  # image and kernel, once each


def test_few_channels_and_other_types_are_stored_windows() -> None:
    few = Case((8, 3, 64, 64), (64, 3, 7, 7), stride=2, padding=3)
    assert not in_place(kernels(convolution(few)))
    assert not in_place(kernels(convolution(CASES["padded"], dt.float32)))


def test_boxes_cover_with_little_waste() -> None:
    assert box_of((56, 56, 32), 128) == (8, 8, 2)
    assert box_of((14, 14, 32), 128, 8) == (16, 2, 4)
    assert box_of((7, 7, 64), 64) == (1, 1, 64)
    assert box_of((1000,), 256) == (256,)


def test_the_form_for_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (channels, gpu_boxes):
        monkeypatch.setattr(module, "MIN_WORK", 1 << 20)
    case = Case((1, 64, 15, 16), (64, 64, 3, 3), stride=2, padding=1)
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in (case.image, case.kernel))
    (code,) = in_place(kernels(convolution(case)))
    last = [t.transpose(0, 2, 3, 1).copy() for t in (a, b)]
    wanted = convolved(a, b, case)
    found = np.zeros(wanted.shape, ml_dtypes.bfloat16)
    arrays = dict(enumerate((found, *last)))
    emulator = Emulator(code.text(aligned=False).source, arrays, code.threads)
    x, y, z = (int(s.arg) for s in derive_metadata(code.kernel).global_size)
    emulator.run((x, y, z))
    error = np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < 5e-3
