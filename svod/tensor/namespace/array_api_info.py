"""``svod.__array_namespace_info__()``: what the array API standard asks a library about itself."""

from __future__ import annotations

from typing import Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.dtype.promotion import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT
from svod.dtype.types import DType
from svod.tensor.core.tensor_core import default_device, device_name

MAX_AXES = 64  # as many as a NumPy array has, so that every tensor can become one

_KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (dt.bool_,),
    "signed integer": (dt.int8, dt.int16, dt.int32, dt.int64),
    "unsigned integer": (dt.uint8, dt.uint16, dt.uint32, dt.uint64),
    "real floating": (dt.float32, dt.float64),
    "complex floating": dt.COMPLEX,
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


class NamespaceInfo:
    """Capabilities, devices and dtypes of the ``svod`` namespace."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Which optional behaviour there is; both kinds realise tensors when they are used."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAX_AXES,
        }

    def default_device(self) -> str:
        """The device of tensors that name none."""
        return default_device()

    def devices(self) -> tuple[str, ...]:
        """The devices that can be used here."""
        from svod.device.registry import usable_devices

        kinds = ("CPU", "CUDA")
        return tuple([name for name in usable_devices() if name.partition(":")[0] in kinds])

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType | None]:
        """The dtypes of results when nothing else is said."""
        device_name(device)
        return {
            "real floating": DEFAULT_FLOAT,
            "complex floating": DEFAULT_COMPLEX,
            "integral": DEFAULT_INT,
            "indexing": dt.int64,
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes that there are, by name; ``kind`` is a name or a tuple of names."""
        device_name(device)
        wanted = kind if isinstance(kind, tuple) else (kind,)
        found: dict[str, DType] = {}
        for each in wanted:
            if each is not None and each not in _KINDS:
                raise ShapeError(f"no kind of dtypes {each!r}; the kinds are {', '.join(_KINDS)}")
            chosen = _KINDS["bool"] + _KINDS["numeric"] if each is None else _KINDS[each]
            found |= {d.name: d for d in chosen}
        return found


def namespace_info() -> NamespaceInfo:
    """What the ``svod`` namespace can do, as the array API standard asks it."""
    return NamespaceInfo()
