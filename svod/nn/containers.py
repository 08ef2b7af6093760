"""Modules that hold modules or parameters: in sequence, in a list, in a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from svod.base.errors import DTypeError, IndexingError
from svod.nn.module import Module, Parameter


class _Numbered(Module):
    """Parts named by their position."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: int | slice) -> Any:
        parts = list(self._modules.values())
        if isinstance(index, slice):
            return self._of(parts[index])
        if not -len(parts) <= index < len(parts):
            raise IndexingError(f"index {index} is out of range for {len(parts)} modules")
        return parts[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self[index]
        self._modules[str(index % len(self))] = module
        self.__dict__["_is_ready"] = False

    def _of(self, parts: Iterable[Module]) -> Module:
        raise NotImplementedError

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.register_module(str(len(self)), module)
        self.__dict__["_is_ready"] = False
        return self

    def __delitem__(self, index: int | slice) -> None:
        parts = list(self._modules.values())
        if isinstance(index, int):
            self[index]
        del parts[index]
        self._renumber(parts)

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before the one at a position."""
        if not isinstance(module, Module):
            raise DTypeError(f"only modules go in here, not a {type(module).__name__}")
        parts = list(self._modules.values())
        parts.insert(index, module)
        self._renumber(parts)
        return self

    def pop(self, index: int = -1) -> Module:
        """A module, which is then no longer inside."""
        found: Module = self[index]
        del self[index]
        return found

    def _renumber(self, parts: list[Module]) -> None:
        self._modules.clear()
        self._modules.update({str(i): part for i, part in enumerate(parts)})
        self.__dict__["_is_ready"] = False

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self


class Sequential(_Numbered):
    """Modules called one after the other: ``Sequential(Linear(2, 8), ReLU(), Linear(8, 1))``."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.register_module(name, module)
        else:
            self.extend(modules)  # type: ignore[arg-type]

    def _of(self, parts: Iterable[Module]) -> Sequential:
        return Sequential(*parts)

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x


class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def _of(self, parts: Iterable[Module]) -> ModuleList:
        return ModuleList(parts)


class ModuleDict(Module):
    """A dict of modules."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add or replace modules."""
        for name, module in modules.items():
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        if name not in self._modules:
            raise IndexingError(f"no module {name!r}; there are {list(self._modules)}")
        found: Module = self._modules[name]
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, module)
        self.__dict__["_is_ready"] = False

    def __delitem__(self, name: str) -> None:
        self[name]
        del self._modules[name]

    def pop(self, name: str) -> Module:
        """A module, which the dict then no longer has."""
        found = self[name]
        del self[name]
        return found

    def clear(self) -> None:
        """Nothing inside."""
        self._modules.clear()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._modules.items()


def _as_parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


class ParameterList(Module):
    """A list of parameters; tensors become parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        setattr(self, str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(list(self._parameters.values()))

    def __getitem__(self, index: int | slice) -> Any:
        values = list(self._parameters.values())
        if isinstance(index, slice):
            return ParameterList(values[index])
        if not -len(values) <= index < len(values):
            raise IndexingError(f"index {index} is out of range for {len(values)} parameters")
        return values[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self[index]
        self._parameters[str(index % len(self))] = _as_parameter(value)
        self.__dict__["_is_ready"] = False


class ParameterDict(Module):
    """A dict of parameters; tensors become parameters."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any]) -> None:
        """Add or replace parameters."""
        for name, value in parameters.items():
            self[name] = value

    def __getitem__(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise IndexingError(f"no parameter {name!r}; there are {list(self._parameters)}")
        found: Parameter = self._parameters[name]
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        self.register_parameter(name, _as_parameter(value))
        self.__dict__["_is_ready"] = False

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Parameter]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Parameter]]:
        """Names and parameters."""
        return self._parameters.items()
