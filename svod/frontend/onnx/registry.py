"""The table of operators: functions by domain, name and the version they came with.

    @operator("Gemm", since=7)
    def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0): ...

Positional parameters are the inputs, keyword-only ones the attributes, with ONNX's names and
defaults; an attribute that is no parameter is reported as unsupported. How a parameter is
annotated says what it is given: `Tensor` (or nothing) a tensor; `Host` an array of known numbers
and run-time sizes; `Value` whichever there is. A parameter `node` is the `NodeView` of this use.

`@host("Add")` registers what to do where all inputs are known on the host: shape arithmetic.
`@texts("Equal")` registers what to do where an input holds texts, which are on the host always.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from svod.tensor.tensor import Tensor

Array: TypeAlias = NDArray[Any]
Host: TypeAlias = NDArray[Any]
Value: TypeAlias = Any  # a Tensor, an array, a list of such (a sequence), or None (absent)
Function = TypeVar("Function", bound=Callable[..., Any])

_REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Operator:
    """A function over tensors with what it takes."""

    name: str
    since: int
    function: Callable[..., Any]
    inputs: tuple[str, ...]  # "tensor", "host" or "value" for each
    rest: str  # the same for further inputs, "" where there are none
    required: int  # how many inputs there must be
    attributes: dict[str, Any]  # name: default
    wants_node: bool

    def missing(self, given: set[str]) -> list[str]:
        return [n for n, d in self.attributes.items() if d is _REQUIRED and n not in given]


_OPERATORS: dict[tuple[str, str], list[Operator]] = {}
_HOST: dict[tuple[str, str], list[Operator]] = {}
_TEXTS: dict[tuple[str, str], list[Operator]] = {}


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[Function], Function]:
    """Register a function for operators of these names, from a version on."""
    return _registrar(_OPERATORS, names, since, domain)


def host(*names: str, since: int = 1, domain: str = "") -> Callable[[Function], Function]:
    """Register what operators of these names do with arrays on the host."""
    return _registrar(_HOST, names, since, domain)


def texts(*names: str, since: int = 1, domain: str = "") -> Callable[[Function], Function]:
    """Register what operators of these names do where an input is an array of texts."""
    return _registrar(_TEXTS, names, since, domain)


def table(names: dict[str, Callable[..., Any]], since: int = 1, domain: str = "") -> None:
    """Register operators that are one function of tensors without attributes."""
    for name, function in names.items():
        _OPERATORS.setdefault((domain, name), []).append(
            Operator(name, since, function, (), "tensor", 0, {}, False)
        )


def host_table(names: dict[str, Callable[..., Any]], since: int = 1, domain: str = "") -> None:
    """Register host functions of arrays without attributes."""
    for name, function in names.items():
        _HOST.setdefault((domain, name), []).append(
            Operator(name, since, function, (), "host", 0, {}, False)
        )


def find(domain: str, name: str, version: int) -> Operator | None:
    """The operator as it is in a version of its domain."""
    return _newest(_OPERATORS.get((domain, name), []), version)


def find_host(domain: str, name: str, version: int) -> Operator | None:
    return _newest(_HOST.get((domain, name), []), version)


def find_texts(domain: str, name: str, version: int) -> Operator | None:
    return _newest(_TEXTS.get((domain, name), []), version)


def known(domain: str = "") -> list[str]:
    """The names of all operators of a domain."""
    return sorted({name for where, name in _OPERATORS if where == domain})


def _newest(entries: list[Operator], version: int) -> Operator | None:
    fitting = [e for e in entries if e.since <= version]
    return max(fitting, key=lambda e: e.since) if fitting else None


def _registrar(
    where: dict[tuple[str, str], list[Operator]], names: tuple[str, ...], since: int, domain: str
) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for name in names:
            where.setdefault((domain, name), []).append(_described(name, since, function))
        return function

    return register


def _described(name: str, since: int, function: Callable[..., Any]) -> Operator:
    inputs: list[str] = []
    rest, required, wants_node = "", 0, False
    attributes: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = {"Host": "host", "Value": "value"}.get(str(parameter.annotation).split(" ")[0], "")
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = kind or "tensor"
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            inputs.append(kind or "tensor")
            required += parameter.default is _REQUIRED
        elif parameter.name == "node":
            wants_node = True
        else:
            attributes[parameter.name.removesuffix("_")] = parameter.default
    return Operator(name, since, function, tuple(inputs), rest, required, attributes, wants_node)


def is_host(value: object) -> bool:
    return isinstance(value, np.ndarray)


__all__ = ["Array", "Host", "Operator", "Tensor", "Value", "find", "find_host", "host", "operator"]
