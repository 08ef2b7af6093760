"""Parametrizations: a tensor of a module computed from other parameters whenever it is read.

The module gets a class of its own with a property in place of the tensor. What the value is made of
is kept under ``parametrizations``, with torch's keys: ``parametrizations.weight.original``.
"""

from __future__ import annotations

from typing import Any

from svod.base.errors import DTypeError, ShapeError
from svod.nn.containers import ModuleDict, ModuleList
from svod.nn.module import Module, Parameter
from svod.reference.docstrings import describe
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.tensor import Tensor

__all__ = [
    "ParametrizationList", "is_parametrized", "register_parametrization",
    "remove_parametrizations",
]  # fmt: skip

_CLASSES: dict[tuple[type[Module], tuple[str, ...]], type[Module]] = {}


class ParametrizationList(ModuleList):
    """What one tensor is made of: its parameters, and the modules that turn them into it."""

    def __init__(self, modules: list[Module], original: Tensor) -> None:
        super().__init__(modules)
        start: Any = original
        for module in reversed(modules):
            if hasattr(module, "right_inverse"):
                start = module.right_inverse(start)
        self.is_tensor = isinstance(start, Tensor)
        trained = original.requires_grad
        if self.is_tensor:
            self.original = Parameter(start.detach(), trained)
        else:
            for i, part in enumerate(start):
                setattr(self, f"original{i}", Parameter(part.detach(), trained))
        self.ntensors = 1 if self.is_tensor else len(start)

    def forward(self) -> Tensor:
        """The value."""
        if self.is_tensor:
            given = [self.original]
        else:
            given = [getattr(self, f"original{i}") for i in range(self.ntensors)]
        first, *rest = list(self)
        found: Tensor = first(*given)
        for module in rest:
            found = module(found)
        return found

    def right_inverse(self, value: Tensor) -> None:
        """Change the parameters so that the tensor has this value."""
        start: Any = value
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise ShapeError(
                        f"{type(module).__name__} has no right_inverse: its value cannot be set"
                    )
                start = module.right_inverse(start)
            if self.is_tensor:
                self.original.assign(start.detach())
            else:
                for i, part in enumerate(start):
                    getattr(self, f"original{i}").assign(part.detach())


def _class_with(plain: type[Module], names: tuple[str, ...]) -> type[Module]:
    """A class whose tensors of these names are computed."""
    found = _CLASSES.get((plain, names))
    if found is None:
        members = {name: _property(name) for name in names}
        kind = type(plain)
        found = kind(f"Parametrized{plain.__name__}", (plain,), {**members, "_plain": plain})
        _CLASSES[plain, names] = found
    return found


def _property(name: str) -> property:
    def read(self: Module) -> Tensor:
        found: Tensor = self.parametrizations[name]()
        return found

    def write(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _renew(module: Module) -> None:
    """The class that fits the parametrizations of the module."""
    plain = getattr(type(module), "_plain", type(module))
    names = tuple(sorted(module.parametrizations)) if "parametrizations" in module._modules else ()
    object.__setattr__(module, "__class__", _class_with(plain, names) if names else plain)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a parameter of a module from others: ``parametrization(original)`` is its value."""
    if not isinstance(module, Module) or not isinstance(parametrization, Module):
        raise DTypeError("register_parametrization takes a module, a name and a module")
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known: ParametrizationList = module.parametrizations[tensor_name]
        if not unsafe and parametrization(known()).shape != known().shape:
            raise ShapeError(f"the parametrization changes the shape of {tensor_name}")
        if hasattr(parametrization, "right_inverse") and known.is_tensor:
            value = parametrization.right_inverse(known())
            known.append(parametrization)
            Parameter.assign(known.original, value.detach())
        else:
            known.append(parametrization)
        return module
    value = module._parameters.get(tensor_name)
    if value is None:
        raise ShapeError(f"{type(module).__name__} has no parameter {tensor_name!r}")
    made = ParametrizationList([parametrization], value)
    if not unsafe and (shape := made().shape) != value.shape:
        raise ShapeError(
            f"{tensor_name} has shape {value.shape}, the parametrization gives {shape}"
        )
    if "parametrizations" not in module._modules:
        module.parametrizations = ModuleDict()
    del module._parameters[tensor_name]
    module.parametrizations[tensor_name] = made
    module.__dict__["_is_ready"] = False
    _renew(module)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or any, is computed."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict) or not len(found):
        return False
    return tensor_name is None or tensor_name in found


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """A plain parameter again: with its value now, or as it was given."""
    if not is_parametrized(module, tensor_name):
        raise ShapeError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    known: ParametrizationList = module.parametrizations[tensor_name]
    if not leave_parametrized and not known.is_tensor:
        raise ShapeError(f"{tensor_name} is made of several tensors: its value has to stay")
    value = known() if leave_parametrized else known.original
    trained = any(p.requires_grad for p in known.parameters())
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module._modules["parametrizations"]
    _renew(module)
    setattr(module, tensor_name, Parameter(value.detach().contiguous(), trained))
    return module


guard(globals())

describe(globals(), "svod.nn.utils.parametrize")
