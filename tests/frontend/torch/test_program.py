"""Exported programs as Svod models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import svod
from svod.base.errors import ConfigError, UnsupportedError


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        return self.head((x @ x.mT).softmax(-1) @ x)


def test_a_module_is_a_model_with_torch_names() -> None:
    module, ids = Small(), torch.randint(0, 9, (2, 5))
    model = svod.torch.from_module(module, (ids,))
    assert model.inputs == ["ids"] and set(model.weights) == set(module.state_dict())
    np.testing.assert_allclose(model(ids.numpy()), module(ids).detach(), rtol=1e-5, atol=1e-6)


def test_a_saved_model_runs_without_torch(tmp_path: Path) -> None:
    module, ids = Small(), torch.randint(0, 9, (2, 5))
    svod.torch.from_module(module, (ids,)).save(tmp_path / "small.svod")
    plan = svod.load_plan(tmp_path / "small.svod")
    np.testing.assert_allclose(plan(ids=ids.numpy()), module(ids).detach(), rtol=1e-5, atol=1e-6)


def test_exported_ranges_are_variables() -> None:
    module, ids = Small(), torch.randint(0, 9, (2, 5))
    shapes = {"ids": {0: Dim("batch", max=4), 1: Dim("length", max=12)}}
    model = svod.torch.from_module(module, (ids,), dynamic_shapes=shapes)
    assert sorted(high for _, high in model.variables.values()) == [4, 12]
    for shape in ((2, 5), (4, 12), (3, 7)):
        given = torch.randint(0, 9, shape)
        np.testing.assert_allclose(model(given), module(given).detach(), rtol=1e-5, atol=1e-6)


def test_a_size_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no upper bound"):
        svod.torch.from_module(
            Small(), (torch.randint(0, 9, (2, 5)),), dynamic_shapes={"ids": {0: Dim("batch")}}
        )


def test_an_unknown_operator_is_refused_by_name() -> None:
    class Airy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.airy_ai(x)

    with pytest.raises(UnsupportedError, match=r"special_airy_ai"):
        svod.torch.from_module(Airy(), (torch.randn(3),))


def test_weights_are_ports_where_nothing_is_frozen() -> None:
    module, ids = Small(), torch.randint(0, 9, (2, 5))
    plan = svod.torch.from_module(module, (ids,)).plan(freeze=False)
    names = {port.name for port in plan.ports}
    assert {"table.weight", "head.weight", "head.bias", "ids"} <= names


class Forked(nn.Module):
    """Several inputs and outputs in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> dict[str, object]:
        y = self.norm(x)
        return {"sum": y + more["a"], "parts": (y * 2, [more["b"]]), "none": None}


def _forked() -> tuple[nn.Module, tuple[object, ...]]:
    module = Forked()
    module(torch.randn(8, 3), {"a": torch.ones(3), "b": torch.ones(2)})  # moves the statistics
    return module.eval(), (torch.randn(4, 3), {"a": torch.randn(3), "b": torch.randn(2)})


def test_containers_and_names_of_inputs_and_outputs() -> None:
    module, args = _forked()
    model = svod.torch.from_module(module, args)
    assert model.inputs == ["x", "more_a", "more_b"]
    assert model.outputs == ["sum", "parts.0", "parts.1.0"]
    assert {"norm.running_mean", "norm.weight"} <= set(model.weights)
    found, expected = model(*args), module(*args)
    assert found["none"] is None and isinstance(found["parts"][1], list)
    np.testing.assert_allclose(found["sum"], expected["sum"].detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["parts"][1][0], args[1]["b"])
    flat = model(x=args[0], more_a=args[1]["a"], more_b=args[1]["b"])
    np.testing.assert_array_equal(flat["parts"][0], found["parts"][0])
    with pytest.raises(ConfigError, match="no input 'more_c'"):
        model(more_c=1)


def test_an_output_that_is_called_like_an_input() -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"x": x + 1}

    model = svod.torch.from_module(Same(), (torch.ones(2),))
    assert model.outputs == ["output.x"] and model(np.ones(2, np.float32))["x"].tolist() == [2, 2]


_ALONE = """
import sys, numpy as np, svod
plan = svod.load_plan(sys.argv[1])
given = {key: value for key, value in np.load(sys.argv[2]).items()}
np.save(sys.argv[3], plan(**given)[0])
assert not any(name.split(".")[0] in ("torch", "transformers") for name in sys.modules)
"""


def test_a_process_that_loads_a_saved_model_does_not_import_torch(tmp_path: Path) -> None:
    module, args = _forked()
    model = svod.torch.from_module(module, args)
    model.save(tmp_path / "m.svod")
    np.savez(tmp_path / "in.npz", x=args[0], more_a=args[1]["a"], more_b=args[1]["b"])
    files = [str(tmp_path / name) for name in ("m.svod", "in.npz", "out.npy")]
    subprocess.run([sys.executable, "-c", _ALONE, *files], check=True, timeout=120)
    np.testing.assert_allclose(np.load(files[2]), module(*args)["sum"].detach(), atol=1e-5)


def test_inputs_are_rows_whatever_strides_the_examples_have() -> None:
    module = nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 5, 6)
    model = svod.torch.from_module(module, (x.to(memory_format=torch.channels_last),))
    np.testing.assert_allclose(model(x.numpy()), module(x).detach(), rtol=1e-4, atol=1e-5)
    module = nn.Linear(3, 2)
    model = svod.torch.from_module(module, (torch.randn(3, 4).T,))
    x = torch.randn(4, 3)
    np.testing.assert_allclose(model(x.numpy()), module(x).detach(), rtol=1e-4, atol=1e-5)


def test_complex_inputs_and_inner_run_time_sizes() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, x.flip(1)], 1)

    x = torch.randn(2, 4)
    model = svod.torch.from_module(Twice(), (x,), dynamic_shapes=({1: Dim("n", max=9)},))
    for length in (4, 2, 9):
        x = torch.randn(2, length)
        np.testing.assert_array_equal(model(x.numpy()), Twice()(x))
    z = torch.randn(2, 3, dtype=torch.complex64)
    np.testing.assert_array_equal(svod.torch.from_module(Twice(), (z,))(z.numpy()), Twice()(z))
