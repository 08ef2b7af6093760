"""`OrtValue`: an array in the clothes that onnxruntime's programs know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.file import ValueInfo
from svod.frontend.onnx.types import element_of_array


class OrtValue:
    """A value of a model: an array of the host, or a sequence of such."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        return OrtValue(np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        return OrtValue(np.empty(tuple(shape), element_type))

    def numpy(self) -> Any:
        return self._value

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, (list, tuple))

    def has_value(self) -> bool:
        return self._value is not None

    def shape(self) -> list[int]:
        return list(self._tensor().shape)

    def data_type(self) -> str:
        return tensor_type(self._element().number)

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return int(self._element().number)

    def data_ptr(self) -> int:
        return int(self._tensor().__array_interface__["data"][0])

    def device_name(self) -> str:
        return "cpu"

    def update_inplace(self, np_arr: Any) -> None:
        np.copyto(self._tensor(), np_arr)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._tensor(), dtype=dtype)

    def _tensor(self) -> Any:
        if not self.is_tensor():
            raise OnnxError(f"a {type(self._value).__name__} is no tensor")
        return self._value

    def _element(self) -> Any:
        found = element_of_array(self._tensor())
        if found is None:
            raise OnnxError(f"arrays of {self._value.dtype} have no ONNX type")
        return found


def tensor_type(number: int) -> str:
    return ValueInfo("", number, None).type


def type_name(info: ValueInfo) -> str:
    """A type as onnxruntime writes it; what the file does not say is a float tensor to it."""
    return info.type if info.elem or info.form == "map" else f"{info.form}(unknown)"
