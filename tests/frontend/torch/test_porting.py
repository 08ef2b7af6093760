"""svod.nn.from_torch: values of torch in modules of Svod."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import svod
from svod.base.errors import ArgumentError
from svod.nn.module import StateError


def _theirs() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                         nn.Linear(16, 2)).eval()  # fmt: skip


def _ours() -> svod.nn.Module:
    nn = svod.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                         nn.Linear(16, 2)).eval()  # fmt: skip


@pytest.mark.parametrize("how", ["module", "state", "file"])
def test_a_module_computes_what_torch_computes(tmp_path: Path, how: str) -> None:
    theirs, ours = _theirs(), _ours()
    source: object = theirs if how == "module" else theirs.state_dict()
    if how == "file":
        torch.save(source, tmp_path / "m.pt")
        source = svod.torch.load_checkpoint(tmp_path / "m.pt")
    assert svod.nn.from_torch(source, ours) == ([], [])
    x = torch.randn(2, 3, 4, 4)
    np.testing.assert_allclose(
        ours(svod.tensor(x.numpy())).numpy(), theirs(x).detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_values_are_cast_or_take_the_place(dtype: torch.dtype) -> None:
    theirs, ours = torch.nn.Linear(3, 2).to(dtype), svod.nn.Linear(3, 2)
    svod.nn.from_torch(theirs, ours)
    assert ours.weight.dtype is svod.float32
    np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().float())
    svod.nn.from_torch(theirs, ours, assign=True)
    assert ours.weight.dtype.name == str(dtype).removeprefix("torch.")


def test_later_changes_of_torch_are_not_seen() -> None:
    theirs, ours = torch.nn.Linear(3, 2), svod.nn.Linear(3, 2)
    svod.nn.from_torch(theirs, ours)
    before = ours.weight.numpy().copy()
    with torch.no_grad():
        theirs.weight.zero_()
    np.testing.assert_array_equal(ours.weight.numpy(), before)


def test_everything_that_does_not_fit_is_said_at_once() -> None:
    state = {**torch.nn.Linear(3, 2).state_dict(), "extra": torch.ones(1)}
    del state["bias"]
    state["weight"] = torch.ones(4, 4)
    before = (ours := svod.nn.Linear(3, 2)).weight.numpy().copy()
    with pytest.raises(StateError, match=r"missing: bias\n.*extra\n.*weight: .*\(4, 4\), not"):
        svod.nn.from_torch(state, ours)
    with pytest.raises(StateError, match="weight"):
        svod.nn.from_torch(state, ours, strict=False)
    np.testing.assert_array_equal(ours.weight.numpy(), before)
    state["weight"] = torch.ones(2, 3)
    assert svod.nn.from_torch(state, ours, strict=False) == (["bias"], ["extra"])
    with pytest.raises(ArgumentError, match="no tensor"):
        svod.nn.from_torch({"weight": "w"}, ours)
    with pytest.raises(ArgumentError, match="a module of Svod"):
        svod.nn.from_torch(state, torch.nn.Linear(1, 1))
