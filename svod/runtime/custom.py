"""Custom functions: code that Svod did not compile, called inside a plan.

A kind is a name. A user registers an implementation for it, in Python or as a native function;
a plan that meets a kind without an implementation raises a typed `UnsupportedError` when it runs.
Native implementations have the signature of kernels, `void f(ptr buffers, ptr values, i64 core)`,
and run inside the plan's single native call; Python ones make the plan return to Python for them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from svod.base.errors import ConfigError, UnsupportedError
from svod.base.locks import held_lock
from svod.device.buffer import Buffer
from svod.ir.guards import CHECK

ENC_DEC = "EncDec"  # media encoding and decoding: a kind of the IR that has no implementation here
KNOWN_KINDS = (ENC_DEC,)

PythonFunction: TypeAlias = Callable[
    [Sequence[Buffer], tuple[object, ...], Mapping[str, int]], object
]


@dataclass(frozen=True, slots=True)
class CustomFunction:
    """An implementation: either `python` or a native `address` with the order of its values."""

    kind: str
    python: PythonFunction | None = None
    address: int = 0
    var_names: tuple[str, ...] = ()
    owner: object = None  # what keeps the native code loaded

    def __call__(
        self, buffers: Sequence[Buffer], attrs: tuple[object, ...], values: Mapping[str, int]
    ) -> None:
        if self.python is not None:
            self.python(buffers, attrs, values)
            return
        addresses = (ctypes.c_void_p * len(buffers))(*[buffer.address for buffer in buffers])
        missing = [name for name in self.var_names if name not in values]
        if missing:
            raise ConfigError(f"no value for {', '.join(missing)}; give it to execute_with_vars")
        numbers = (ctypes.c_int64 * len(self.var_names))(*[values[n] for n in self.var_names])
        _NATIVE(self.address)(addresses, numbers, 0)


_NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_FunctionPointer: Any = _NATIVE.__mro__[1]  # the base of every ctypes function, which has no name
_lock = held_lock()
_registry: dict[str, CustomFunction] = {}  # one entry per kind, until it is unregistered


def register_custom_function(
    kind: str,
    implementation: PythonFunction | Any,  # or a ctypes function, whose classes have no common type
    *,
    var_names: Sequence[str] = (),
    replace: bool = False,
) -> CustomFunction:
    """Give a kind an implementation: a Python callable, a ctypes function or an address.

    A Python callable gets `(buffers, attrs, values)`: the buffers in argument order, the
    descriptors of the node, the current values of variables. A native function gets addresses
    of the buffers and the values of `var_names` in that order.
    """
    if not kind:
        raise ConfigError("a custom function needs a kind: the name it is called by")
    function = _implementation(kind, implementation, tuple(var_names))
    with _lock:
        if kind in _registry and not replace:
            raise ConfigError(
                f"the custom function {kind!r} is already registered; use replace=True"
            )
        _registry[kind] = function
    return function


def unregister_custom_function(kind: str) -> bool:
    """Forget the implementation of a kind; whether there was one."""
    with _lock:
        return _registry.pop(kind, None) is not None


def custom_function(kind: str) -> CustomFunction | None:
    """The implementation of a kind, or None."""
    return _registry.get(kind)


def registered_custom_functions() -> tuple[str, ...]:
    """The kinds that have an implementation, in the order they were registered."""
    with _lock:
        return tuple(_registry)


def run_custom_function(
    kind: str, attrs: tuple[object, ...], buffers: Sequence[Buffer], values: Mapping[str, int]
) -> None:
    """Call the implementation of a kind, or raise `UnsupportedError` with that kind."""
    function = _registry.get(kind) or _built_in(kind)
    if function is None:
        known = "Svod knows this kind but has" if kind in KNOWN_KINDS else "there is"
        raise UnsupportedError(
            f"{known} no implementation of the custom function {kind} ({len(attrs)} attrs); "
            "give one with register_custom_function",
            kind,
        )
    function(buffers, attrs, values)


def _built_in(kind: str) -> CustomFunction | None:
    """The implementation of a kind that Svod brings, loaded when a plan first calls it."""
    if kind == CHECK:
        from svod.runtime.index_checks import look_at_indices

        return CustomFunction(kind, look_at_indices)
    if not kind.startswith("linalg."):
        return None
    from svod.runtime import host_linalg

    if kind not in host_linalg.KINDS:
        return None
    with _lock:
        return _registry.setdefault(kind, CustomFunction(kind, partial(host_linalg.run, kind)))


def _implementation(kind: str, given: Any, var_names: tuple[str, ...]) -> CustomFunction:
    if isinstance(given, int) and not isinstance(given, bool):
        if given <= 0:
            raise ConfigError(f"{given} is not the address of a function (custom function {kind})")
        return CustomFunction(kind, address=given, var_names=var_names)
    if isinstance(given, _FunctionPointer):
        address = ctypes.cast(given, ctypes.c_void_p).value
        if not address:
            raise ConfigError(f"the custom function {kind} is a null pointer")
        return CustomFunction(kind, address=address, var_names=var_names, owner=given)
    if not callable(given):
        raise ConfigError(f"the custom function {kind} must be callable, not {given!r}")
    return CustomFunction(kind, python=given, var_names=var_names)
