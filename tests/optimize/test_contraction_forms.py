"""Every form of contraction takes the fast path of its target, or the reason why not is stated.

On the CPU that is a register tile over packed panels, or over columns that lie as it reads them and
stay in cache. On CUDA it is a tile on tensor cores in 16 and 8 bits and one of fused
multiply-adds in float32.
"""

from __future__ import annotations

from functools import partial

import pytest

from svod.dtype import types as dt
from svod.tensor.layers import attention
from tests.optimize.contraction_forms import FORMS
from tests.optimize.contractions import contractions, memory
from tests.optimize.training_steps import gpt, resnet18

UNITS = ("tma.", "wgmma.", "boxes.", "attention", "gradient")  # tiles on tensor cores
STATED = {  # the reasons of forms that have no tile
    ("CUDA", "int8 by int16"): "no tile multiplies int32 by int32 in int32 here",
}


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of attention are written as for a GPU with kernels for them."""
    monkeypatch.setattr(attention, "_has_blocks", lambda name: name.startswith("CUDA"))


def test_there_are_enough_forms() -> None:
    assert len(FORMS) >= 60


@pytest.mark.parametrize("name", FORMS)
def test_forms_on_the_cpu(name: str) -> None:
    _check("CPU", name)


@pytest.mark.parametrize("name", FORMS)
def test_forms_on_cuda(name: str) -> None:
    kernels = _check("CUDA", name)
    if (name.split()[-1] in ("bf16", "f16") and " by " not in name) or name.startswith("int8"):
        assert all(k.startswith(UNITS) for k in kernels), kernels


def _check(device: str, name: str) -> list[str]:
    kernels = contractions(FORMS[name](partial(memory, device)), device)
    assert kernels, "the form has no contraction"
    for kernel in kernels:
        if not kernel.tile:
            assert kernel.reason == STATED.get((device, name)), str(kernel)
    return [k.tile for k in kernels if k.tile]


STEPS = {
    "gpt bf16": gpt,
    "gpt f32": partial(gpt, dtype=dt.float32),
    "resnet f32": resnet18,
    "resnet bf16": partial(resnet18, dtype=dt.bfloat16),
}


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
@pytest.mark.parametrize("name", STEPS)
def test_all_contractions_of_a_training_step_are_tiles(name: str, device: str) -> None:
    kernels = contractions(STEPS[name](partial(memory, device)), device)
    assert len(kernels) >= 18
    assert not [str(k) for k in kernels if not k.tile]
    if name.endswith("bf16") and device == "CUDA":
        assert not [str(k) for k in kernels if not k.tile.startswith(UNITS)]
