"""The ONNX backend interface: what `onnx.backend.test` and other runners call."""

from __future__ import annotations

from typing import Any

import svod
from svod.base.errors import SvodError, UnsupportedError
from svod.frontend.onnx.model import Model, load


class BackendRep:
    """A model that was prepared."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """All outputs, for a list of inputs or a dict of them by name."""
        if not isinstance(inputs, dict):
            names = [i.name for i in self.model.inputs]
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip(names, values, strict=False))
        return tuple(self.model.run(inputs))


def _device(name: str) -> str:
    return name.split(":")[0].upper()


def supports_device(device: str) -> bool:
    """Whether models can run there."""
    return _device(device) in [d.split(":")[0] for d in svod.devices()]


def is_compatible(model: Any, device: str = "CPU", **options: Any) -> bool:
    """Whether everything in the model is supported."""
    try:
        load(model, device=_device(device))
    except UnsupportedError:
        return False
    return True


def prepare(model: Any, device: str = "CPU", **options: Any) -> BackendRep:
    """A model that is ready to run."""
    return BackendRep(load(model, device=_device(device), freeze=options.pop("freeze", True)))


def run_model(model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
    """Run a model once."""
    return prepare(model, device, **options).run(inputs)


def run_node(
    node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
) -> tuple[Any, ...]:
    """Run one node once; it becomes a model through the `onnx` package."""
    import numpy as np
    import onnx

    arrays = [np.asarray(x) for x in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    names = [n for n in node.input if n]
    given = [
        onnx.helper.make_tensor_value_info(n, k, a.shape)
        for n, k, a in zip(names, kinds, arrays, strict=True)
    ]
    made = [onnx.helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = onnx.helper.make_graph([node], "node", given, made)
    return run_model(onnx.helper.make_model(graph), dict(zip(names, arrays, strict=True)), device)


__all__ = [
    "BackendRep",
    "SvodError",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
