"""Weights of torch in modules of Svod: ``svod.nn.from_torch``.

In: a module of torch, its state dict, or one that ``svod.load`` has read, and a module of Svod with
the same names. Out: the module with those values. Everything that does not fit is said at once, as
torch says it, before anything is changed. torch is not imported: its tensors are shared by DLPack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svod.base.errors import ArgumentError
from svod.nn.module import IncompatibleKeys, Module, StateError
from svod.tensor.core.public_functions import guard
from svod.tensor.namespace.functions import NAMESPACE
from svod.tensor.tensor import Tensor


def from_torch(
    source: Any, module: Module, *, strict: bool = True, assign: bool = False
) -> IncompatibleKeys:
    """Take over the values of a torch module, or of a state dict, by their names.

    With ``strict`` every name has to be on both sides; shapes always have to agree. Values are cast
    to the dtypes of the module, or take their place with ``assign``.

    >>> import numpy as np
    >>> import svod
    >>> layer = svod.nn.Linear(2, 1, bias=False)
    >>> svod.nn.from_torch({"weight": np.array([[1.0, 2.0]], np.float32)}, layer).missing_keys
    []
    >>> layer(svod.ones(1, 2)).item()
    3.0
    """
    if not isinstance(module, Module):
        raise ArgumentError(f"from_torch fills a module of Svod, not a {type(module).__name__}")
    state = source.state_dict() if hasattr(source, "state_dict") else source
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"from_torch takes a module of torch or a state dict, not a {type(source).__name__}"
        )
    for key, value in state.items():
        if not (isinstance(value, Tensor) or hasattr(value, "__dlpack__")):
            raise ArgumentError(f"from_torch: {key} is a {type(value).__name__} and no tensor")
    _check(state, module, strict)
    found = {key: _tensor(value) for key, value in state.items()}
    return module.load_state_dict(found, strict=strict, assign=assign)


def _check(state: Mapping[str, Any], module: Module, strict: bool) -> None:
    """All that does not fit, in one error."""
    if any(part._is_lazy for part in module.modules()):
        return  # sizes come from the state
    own = module.state_dict()
    lines = []
    missing = [key for key in own if key not in state]
    unexpected = [key for key in state if key not in own]
    if strict and missing:
        lines.append(f"missing: {', '.join(missing)}")
    if strict and unexpected:
        lines.append(f"unexpected: {', '.join(map(str, unexpected))}")
    for key, value in own.items():
        if key in state and tuple(state[key].shape) != tuple(value.shape):
            lines.append(f"{key}: the state has {tuple(state[key].shape)}, not {value.shape}")
    if lines:
        listed = "\n  ".join(lines)
        raise StateError(f"the state does not fit {type(module).__name__}:\n  {listed}")


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    plain = value.detach() if hasattr(value, "detach") else value
    found: Tensor = NAMESPACE["from_dlpack"](plain)
    return found


guard(globals())
__all__ = ["from_torch"]
