"""Activations."""

from __future__ import annotations

from typing import Any

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Tensor, operator, table

table(
    {
        "Softplus": lambda x: x.softplus(),
        "Softsign": lambda x: x / (1 + x.abs()),
        "HardSwish": lambda x: x * (x / 6 + 0.5).clamp(0, 1),
        "Mish": lambda x: x * x.softplus().tanh(),
    }
)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0, consumed_inputs: Any = None) -> Tensor:
    return svod.where(x > 0, x, alpha * x.expm1())


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.clamp(min=0) + (alpha * (x / alpha).expm1()).clamp(max=0)


@operator("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875, consumed_inputs: Any = None,
) -> Tensor:  # fmt: skip
    return gamma * svod.where(x > 0, x, alpha * x.expm1())


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01, consumed_inputs: Any = None) -> Tensor:
    return svod.where(x >= 0, x, alpha * x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return svod.where(x > alpha, x, svod.zeros_like(x))


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor, *, node: NodeView, consumed_inputs: Any = None) -> Tensor:
    if node.version < 7 and slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return svod.where(x >= 0, x, slope * x)


@operator("HardSigmoid")
def hard_sigmoid(
    x: Tensor, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Any = None
) -> Tensor:
    return (x * alpha + beta).clamp(0, 1)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return x.gelu(approximate=approximate)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


@operator("SwiGLU")
def swiglu(x: Tensor, gate: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid() * gate


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = svod.zeros_like(x)
    return svod.where(x < -lambd, x + bias, svod.where(x > lambd, x - bias, zero)).cast(x.dtype)


def _from_axis(x: Tensor, axis: int) -> Tensor:
    """Before version 13, softmax is over all axes from one on."""
    axis += x.ndim if axis < 0 else 0
    return x.reshape(*x.shape[:axis], -1)


@operator("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.softmax(axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.log_softmax(axis)


@operator("Softmax")
def softmax_flat(x: Tensor, *, axis: int = 1) -> Tensor:
    return _from_axis(x, axis).softmax(-1).reshape(x.shape)


@operator("LogSoftmax")
def log_softmax_flat(x: Tensor, *, axis: int = 1) -> Tensor:
    return _from_axis(x, axis).log_softmax(-1).reshape(x.shape)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    size = x.shape[axis]
    places = svod.arange(size, dtype=dt.int64).reshape(
        *[-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    )
    return (x.argmax(axis, keepdim=True) == places).cast(x.dtype)


@operator("Hardmax")
def hardmax_flat(x: Tensor, *, axis: int = 1) -> Tensor:
    return hardmax(_from_axis(x, axis), axis=-1).reshape(x.shape)
