"""Starting values of parameters, in place, as in torch.nn.init."""

from __future__ import annotations

from math import ceil, prod, sqrt
from typing import Any

import numpy as np

from svod.base.errors import ShapeError
from svod.reference.docstrings import describe
from svod.tensor.core.public_functions import guard
from svod.tensor.gradients.autograd import no_grad
from svod.tensor.ops.creation import eye, full
from svod.tensor.random.threefry import check_deviation, check_range, rand, randn
from svod.tensor.tensor import Tensor
from svod.tensor.views.aliases import give

__all__ = [
    "calculate_gain", "constant_", "copy_", "dirac_", "eye_", "fans", "kaiming_normal_",
    "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_",
    "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": sqrt(2.0), "selu": 0.75}


def _set(tensor: Tensor, value: Tensor) -> Tensor:
    with no_grad():
        value = value.to(tensor._device)
        give(tensor, value.cast(tensor.dtype).expand(tensor.shape).uop, value._device)
    return tensor


def copy_(tensor: Tensor, value: Tensor) -> Tensor:
    """The values of another tensor."""
    return _set(tensor, value)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much an activation shrinks its input, to be made up for by the weights."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return sqrt(2.0 / (1 + slope**2))
    if nonlinearity.startswith("conv"):
        return 1.0
    if nonlinearity not in _GAINS:
        raise ShapeError(f"calculate_gain: no nonlinearity {nonlinearity!r}")
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs feed an output and how many outputs an input feeds."""
    if tensor.ndim < 2:
        raise ShapeError(f"fans need at least 2 axes, not shape {tensor.shape}")
    window = prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers from a to b."""
    check_range(a, b)
    drawn = rand(tensor.shape, device=tensor.device, generator=generator)
    return _set(tensor, drawn * (b - a) + a)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers."""
    check_deviation(std)
    drawn = randn(tensor.shape, device=tensor.device, generator=generator)
    return _set(tensor, drawn * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal numbers between a and b, by the inverse of their distribution function."""
    from math import erf

    low = erf((a - mean) / std / sqrt(2.0))
    high = erf((b - mean) / std / sqrt(2.0))
    drawn = rand(tensor.shape, device=tensor.device, generator=generator)
    values = _erfinv(drawn * (high - low) + low) * (std * sqrt(2.0)) + mean
    return _set(tensor, values.clamp(a, b))


def _erfinv(y: Tensor) -> Tensor:
    """The inverse of erf by Giles' polynomials (Approximating the erfinv function, 2010)."""
    w = -((1 - y) * (1 + y)).clamp(min=1e-30).log()
    near, far = w - 2.5, w.sqrt() - 3.0
    small = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
             -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
    large = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
             -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
    inside, outside = near * 0 + small[0], far * 0 + large[0]
    for a, b in zip(small[1:], large[1:], strict=True):
        inside, outside = inside * near + a, outside * far + b
    return inside.where(w < 5, outside) * y


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    return _set(tensor, full(tensor.shape, val, dtype=tensor.dtype, device=tensor.device))


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_ needs 2 axes, not shape {tensor.shape}")
    return _set(tensor, eye(*tensor.shape, device=tensor.device))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with the variance of Glorot and Bengio."""
    inputs, outputs = fans(tensor)
    bound = gain * sqrt(6.0 / (inputs + outputs))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with the variance of Glorot and Bengio."""
    inputs, outputs = fans(tensor)
    return normal_(tensor, 0.0, gain * sqrt(2.0 / (inputs + outputs)), generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"mode is 'fan_in' or 'fan_out', not {mode!r}")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform with the variance of He and others."""
    bound = sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal with the variance of He and others."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Rows or columns, whichever are fewer, at right angles and of length ``gain``."""
    from svod.tensor.linalg.linear_algebra import qr

    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_ needs at least 2 axes, not shape {tensor.shape}")
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])
    tall, wide = max(rows, columns), min(rows, columns)
    with no_grad():
        q, r = qr(randn(tall, wide, device=tensor.device, generator=generator))
        q = q * r.diagonal().sign()  # so that all directions are as likely
        q = q.T if rows < columns else q
    return _set(tensor, (q * gain).reshape(tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The kernel of a convolution that keeps as many channels as it can as they are."""
    if not 3 <= tensor.ndim <= 5:
        raise ShapeError(f"dirac_ needs the kernel of a convolution, not shape {tensor.shape}")
    if groups < 1 or tensor.shape[0] % groups:
        raise ShapeError(f"dirac_: {tensor.shape[0]} channels in {groups} groups")
    own = tensor.shape[0] // groups
    value = np.zeros(tensor.shape, np.float32)
    middle = tuple([n // 2 for n in tensor.shape[2:]])
    for group in range(groups):
        for channel in range(min(own, tensor.shape[1])):
            value[(group * own + channel, channel, *middle)] = 1
    return _set(tensor, Tensor(value))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix of normal numbers in whose columns a share of the rows is zero."""
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_ needs a matrix, not shape {tensor.shape}")
    if not 0 <= sparsity <= 1:
        raise ShapeError(f"sparse_: a share is from 0 to 1, not {sparsity}")
    rows = tensor.shape[0]
    where = tensor.device
    order = rand(*tensor.shape, device=where, generator=generator).argsort(0).argsort(0)
    values = randn(*tensor.shape, device=where, generator=generator) * std
    return _set(tensor, values.masked_fill(order < ceil(sparsity * rows), 0.0))


guard(globals())

describe(globals(), "svod.nn.init")
