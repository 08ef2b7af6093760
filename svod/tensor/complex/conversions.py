"""Conversions between complex and real tensors: complex, polar, view_as_real, view_as_complex."""

from __future__ import annotations

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.tensor.core.complex_parts import joined
from svod.tensor.tensor import Tensor
from svod.tensor.views.aliases import complex_numbers, pairs, view


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """The complex numbers with these parts, both float32 or both float64."""
    _same_floats("complex", real, imag)
    return joined(real, imag)


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """The complex numbers of these magnitudes and angles."""
    _same_floats("polar", abs, angle)
    return joined(abs * angle.cos(), abs * angle.sin())


def view_as_real(input: Tensor) -> Tensor:
    """The parts of complex numbers along a new last axis of size 2, in the same memory."""
    if not input.dtype.is_complex:
        raise DTypeError(f"view_as_real takes complex numbers, not {input.dtype.name}")
    return view(input, (pairs, None))


def view_as_complex(input: Tensor) -> Tensor:
    """Pairs of floats along the last axis as complex numbers, in the same memory."""
    if input.dtype not in dt.COMPLEX_OF:
        raise DTypeError(f"view_as_complex takes float32 or float64, not {input.dtype.name}")
    if input.shape[-1:] != (2,):
        raise ShapeError(f"view_as_complex needs a last axis of size 2, not shape {input.shape}")
    return view(input, (complex_numbers, None))


def _same_floats(what: str, a: Tensor, b: Tensor) -> None:
    if a.dtype not in dt.COMPLEX_OF or a.dtype is not b.dtype:
        raise DTypeError(
            f"{what} takes two tensors of float32 or of float64, not {a.dtype.name} and "
            f"{b.dtype.name}"
        )
