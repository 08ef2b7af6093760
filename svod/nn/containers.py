"""Modules that hold modules: in sequence, in a list, in a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from svod.base.errors import IndexingError
from svod.nn.module import Module


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
        found: Module = self._modules[name]
        return found

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, module)
        self.__dict__["_is_ready"] = False

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
