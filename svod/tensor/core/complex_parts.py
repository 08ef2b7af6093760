"""The real and the imaginary part of a complex tensor, and complex tensors from two parts.

A complex tensor is a COMPLEX node over pairs of floats. What the graph's constructors do not spell
out (`svod.ir.pairs`) has a formula here and in the other ``complex_*`` files, over the two parts as
real tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError
from svod.dtype import types as dt
from svod.dtype.promotion import promote
from svod.ir import build as B
from svod.ir import pairs
from svod.tensor.core.tensor_core import common_device, pair, wrap

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def parts(z: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary part as real tensors; that of real numbers is zero."""
    if z.dtype.kind != "c":
        return z, wrap(B.full(z.shape, 0, z.dtype), z._device)
    re, im = pairs.parts(z.uop)
    return wrap(re, z._device), wrap(im, z._device)


def joined(re: Tensor, im: Tensor) -> Tensor:
    """The complex tensor of two real ones, which broadcast; narrower floats become float32."""
    for part in (re, im):
        if part.dtype.kind == "c":
            raise DTypeError(f"the parts of a complex number are real, not {part.dtype.name}")
    kind = promote(promote(re.dtype, im.dtype), dt.float32)
    device = common_device(re._device, im._device)
    return wrap(pairs.joined(B.cast(re.uop, kind), B.cast(im.uop, kind)), device)


def squares(x: Tensor) -> Tensor:
    """The squares of the magnitudes."""
    if not x.dtype.is_complex:
        return x * x
    re, im = parts(x)
    return re * re + im * im


def complex_pair(a: Tensor, b: Any) -> tuple[Tensor, Tensor]:
    """Both operands under their common complex dtype."""
    x, y, device = pair(a, b)
    return wrap(x, device), wrap(y, device)
