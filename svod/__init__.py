"""Svod: lazy tensors compiled to machine code.

``import svod`` is cheap: tensors, the compiler and everything below are loaded at first use.
`svod/public.py` lists what is public; what type checkers see is in `svod/__init__.pyi`.

    >>> import svod
    >>> x = svod.Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x).sum().item()
    54.0
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from math import e, inf, nan, pi
from typing import Any

from svod._version import __version__
from svod.base import above as _above
from svod.base import locks as _locks  # noqa: F401  # forks are watched from the beginning
from svod.base.deprecation import Deprecation as _Deprecation
from svod.dtype.types import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from svod.dtype.types import bool_ as bool

newaxis = None
__array_api_version__ = "2025.12"

# Names from elsewhere, loaded when they are asked for: module, and what in it ("" for itself).
_LAZY = {
    "knobs": ("svod.base.knobs", "knobs"),
    "linalg": ("svod.linalg", ""),
    "special": ("svod.special", ""),
    "masked": ("svod.masked", ""),
    "signal": ("svod.signal", ""),
    "fft": ("svod.fft", ""),
    "__array_namespace_info__": ("svod.tensor.namespace.array_api_info", "namespace_info"),
    "errors": ("svod.errors", ""),
    "autograd": ("svod.autograd", ""),
    "func": ("svod.func", ""),
    "nn": ("svod.nn", ""),
    "optim": ("svod.optim", ""),
    "data": ("svod.data", ""),
    "distributed": ("svod.distributed", ""),
    "distributions": ("svod.distributions", ""),
    "utils": ("svod.utils", ""),
    "torch": ("svod.torch", ""),
    "hub": ("svod.hub", ""),
    "llm": ("svod.llm", ""),
    "save": ("svod.nn.checkpoint", "save"),
    "load": ("svod.nn.checkpoint", "load"),
    "tensor": ("svod.tensor", ""),
    "testing": ("svod.testing", ""),
    "onnx": ("svod.onnx", ""),
    "explain": ("svod.tools.explain", "explain"),
    "cuda": ("svod.cuda", ""),
    "devices": ("svod.device.registry", "usable_devices"),
    "set_threads": ("svod.runtime.native", "set_threads"),
    "load_plan": ("svod.runtime.load", "load_plan"),
    "PrepareConfig": ("svod.runtime.config", "PrepareConfig"),
    "OptimizerConfig": ("svod.runtime.config", "OptimizerConfig"),
    "Strategy": ("svod.runtime.config", "Strategy"),
    "Opt": ("svod.optimize.opts", "Opt"),
    "profile": ("svod.runtime.trace", "profile"),
    "MemoryMode": ("svod.runtime.memory", "MemoryMode"),
    "register_device": ("svod.device.registry", "register_device"),
    "realize_batch": ("svod.tensor.recording.realize", "realize_batch"),
    "prepare_batch": ("svod.tensor.recording.realize", "prepare_batch"),
    "timing": ("svod.base.timing", ""),
    "progress": ("svod.base.progress", "progress"),
    "ExecutionPlan": ("svod.runtime.plan", "ExecutionPlan"),
    "register_custom_function": ("svod.runtime.custom", "register_custom_function"),
}

# torch's other names of dtypes, and of shapes.
_ALIASES: dict[str, Any] = {
    "half": float16,
    "float": float32,
    "double": float64,
    "cfloat": complex64,
    "cdouble": complex128,
    "short": int16,
    "int": int32,
    "long": int64,
    "Size": tuple,
}


_above.know("viz", lambda: import_module("svod.tools.viz"))
_above.know("export", lambda: import_module("svod.runtime.export"))
_above.know("publishing", lambda: import_module("svod.tools.publishing"))
_above.know("notebook", lambda: import_module("svod.tools.notebook"))


# Names that go away: what stands for them, which version warns first, which has them no more.
_DEPRECATED = {
    "plan": _Deprecation("svod.plan", "svod.prepare", since="0.1", until="0.3"),
    "run": _Deprecation("svod.run", "svod.realize", since="0.1", until="0.3"),
}


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name not in _LAZY:
        raise AttributeError(f"module 'svod' has no attribute {name!r}")
    if name in _DEPRECATED:
        return _DEPRECATED[name].found(__getattr__)
    if name in _ALIASES:
        return _ALIASES[name]
    if name in _LAZY:
        module, attribute = _LAZY[name]
        found = import_module(module)
        found = _guarded(getattr(found, attribute)) if attribute else found
    else:
        namespace = import_module("svod.tensor.namespace.functions").NAMESPACE
        if name not in namespace:
            raise AttributeError(f"module 'svod' has no attribute {name!r}")
        found = namespace[name]
    globals()[name] = found
    import_module("svod.reference.docstrings").describe_one(found, "svod", name)
    return found


def _guarded(found: Any) -> Any:
    guard = import_module("svod.tensor.core.public_functions")
    if isinstance(found, type):
        guard.guard_class(found, "__init__")
        return found
    return guard.spelled(found) if type(found) is type(_guarded) else found


def __dir__() -> list[str]:
    namespace = import_module("svod.tensor.namespace.functions").NAMESPACE
    needs_torch = () if find_spec("torch") else ("torch",)
    return sorted({*__all__, *_ALIASES, *_LAZY, *namespace}.difference(needs_torch))


__all__ = [
    "DType",
    "__version__",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "e",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "nan",
    "newaxis",
    "pi",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
