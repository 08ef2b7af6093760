"""Weight and spectral normalisation in torch's older form: renamed parameters and a hook.

``weight_norm`` keeps ``weight_g`` and ``weight_v``, ``spectral_norm`` keeps ``weight_orig``,
``weight_u`` and ``weight_v``; the weight itself is computed before every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod.base.errors import ShapeError
from svod.nn.module import Handle, Module, Parameter
from svod.nn.utils.parametrizations import TRANSPOSED, SpectralNorm, norm_except
from svod.tensor.core.public_functions import guard
from svod.tensor.tensor import Tensor


class _SpectralNorm(SpectralNorm):
    starts_left = False


class _Computed:
    """A hook that gives a module a tensor computed from others."""

    def __init__(self, kind: str, name: str, compute: Callable[[Module], Tensor]) -> None:
        self.kind, self.name, self.compute = kind, name, compute
        self.handle: Handle | None = None

    def __call__(self, module: Module, args: Any) -> None:
        module.__dict__[self.name] = self.compute(module)


def _installed(module: Module, hook: _Computed) -> Module:
    module.__dict__[hook.name] = hook.compute(module)
    hook.handle = module.register_forward_pre_hook(hook)
    return module


def _taken(module: Module, kind: str, name: str) -> Tensor:
    """The parameter, which the module no longer has under its name."""
    if _found(module, kind, name) is not None:
        raise ShapeError(f"{name} of {type(module).__name__} has {kind} already")
    value = module._parameters.get(name)
    if value is None:
        raise ShapeError(f"{type(module).__name__} has no parameter {name!r}")
    del module._parameters[name]
    found: Tensor = value
    return found


def _found(module: Module, kind: str, name: str) -> _Computed | None:
    for _, hook, _ in module._hooks.values():
        if isinstance(hook, _Computed) and (hook.kind, hook.name) == (kind, name):
            return hook
    return None


def _removed(module: Module, kind: str, name: str, kept: tuple[str, ...]) -> Module:
    hook = _found(module, kind, name)
    if hook is None or hook.handle is None:
        raise ShapeError(f"{name} of {type(module).__name__} has no {kind}")
    value = hook.compute(module).detach().contiguous()
    hook.handle.remove()
    for one in kept:
        delattr(module, one)
    setattr(module, name, Parameter(value))
    return module


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight as a length and a direction, in two parameters."""
    value = _taken(module, "weight_norm", name)
    setattr(module, f"{name}_g", Parameter(norm_except(value, dim).detach()))
    setattr(module, f"{name}_v", Parameter(value.detach()))

    def compute(module: Module) -> Tensor:
        direction = getattr(module, f"{name}_v")
        found: Tensor = direction * (getattr(module, f"{name}_g") / norm_except(direction, dim))
        return found

    return _installed(module, _Computed("weight_norm", name, compute))


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """One parameter again."""
    return _removed(module, "weight_norm", name, (f"{name}_g", f"{name}_v"))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """A weight divided by its largest singular value, which a power iteration follows."""
    value = _taken(module, "spectral_norm", name)
    axis = (1 if isinstance(module, TRANSPOSED) else 0) if dim is None else dim
    if value.ndim < 2:
        raise ShapeError(f"spectral_norm needs a matrix or more, not shape {value.shape}")
    norm = _SpectralNorm(value, n_power_iterations, axis, eps)
    setattr(module, f"{name}_orig", Parameter(value.detach()))
    module.register_buffer(f"{name}_u", norm._u)
    module.register_buffer(f"{name}_v", norm._v)

    def compute(module: Module) -> Tensor:
        norm._buffers.update(_u=getattr(module, f"{name}_u"), _v=getattr(module, f"{name}_v"))
        norm.__dict__["training"] = module.training
        return norm.forward(getattr(module, f"{name}_orig"))

    return _installed(module, _Computed("spectral_norm", name, compute))


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """One parameter again."""
    kept = (f"{name}_orig", f"{name}_u", f"{name}_v")
    return _removed(module, "spectral_norm", name, kept)


guard(globals())
