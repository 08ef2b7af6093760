"""Modules, optimizers and schedules give what torch gives; its results are kept in a file."""

from __future__ import annotations

import numpy as np
import pytest

from tests.nn import cases

TORCH = cases.recorded()
OURS = cases.Library("svod")
ORTHOGONAL = 3e-3  # torch makes Muon's steps orthogonal in bfloat16


def close(found, wanted, rtol, atol, label) -> None:
    assert found.shape == wanted.shape, label
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=label)


@pytest.mark.parametrize("name", cases.CASES)
def test_modules_equal_torch(name: str) -> None:
    found, keys = OURS.module(name)
    wanted = {k.partition("|")[2]: v for k, v in TORCH.items() if k.startswith(f"{name}|")}
    assert "\n".join(keys) == bytes(wanted.pop("keys")).decode()
    assert set(found) == set(wanted)
    for label, value in wanted.items():
        close(found[label], value, 2e-4, 2e-5, f"{name}: {label}")


@pytest.mark.parametrize("kind", cases.RECURRENT)
def test_packed_sequences_equal_torch(kind: str) -> None:
    for label, value in OURS.packed(kind).items():
        close(value, TORCH[f"packed {kind}|{label}"], 2e-4, 2e-5, f"{kind}: {label}")


@pytest.mark.parametrize("how", cases.REDUCTIONS)
def test_losses_of_label_sequences_equal_torch(how: str) -> None:
    close(OURS.labelled(how), TORCH[f"labels {how}"], 1e-5, 1e-6, how)


@pytest.mark.parametrize("name", cases.OPTIMIZERS)
def test_optimizers_equal_torch(name: str) -> None:
    atol = ORTHOGONAL if name.startswith("muon") else 1e-6
    close(OURS.trained(name), TORCH[f"optimizer {name}"], 1e-5, atol, name)


@pytest.mark.parametrize("name", cases.SCHEDULES)
def test_schedules_equal_torch(name: str) -> None:
    close(OURS.rates(name), TORCH[f"schedule {name}"], 1e-9, 0, name)


def test_the_file_holds_what_torch_says() -> None:
    pytest.importorskip("torch")
    now = cases.everything(cases.Library("torch"))
    assert set(now) == set(TORCH)
    for label, value in now.items():
        close(value, TORCH[label], 1e-4, 1e-5, label)
