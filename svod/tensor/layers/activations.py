"""Activation functions, with the names and arguments of torch.nn.functional."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from svod.base.errors import DTypeError, ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import const
from svod.tensor.core.tensor_core import Core, float_node, real_axis, wrap
from svod.tensor.ops.elementwise import rounded, select, widened

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class Activations(Core):
    """relu, gelu, silu, softplus and the rest."""

    __slots__ = ()

    def relu(self: Tensor) -> Tensor:
        """max(x, 0)."""
        x = self.uop
        return wrap(B.extreme(O.MAX, x, const(0, x.dtype), 1), self._device)

    def relu6(self: Tensor) -> Tensor:
        """min(max(x, 0), 6)."""
        return self.hardtanh(0, 6)

    def sigmoid(self: Tensor) -> Tensor:
        """1 / (1 + exp(-x))."""
        x = float_node(widened(self).uop)
        grown = B.binary(O.ADD, B.unary(O.EXP, B.unary(O.NEG, x)), const(1.0, x.dtype))
        return rounded(wrap(B.unary(O.RECIP, grown), self._device), self)

    def silu(self: Tensor) -> Tensor:
        """x * sigmoid(x)."""
        x = widened(self)
        return rounded(x * x.sigmoid(), self)

    swish = silu

    def gelu(self: Tensor, approximate: str = "none") -> Tensor:
        """x times the normal distribution function; "tanh" uses the usual approximation."""
        x = widened(self)
        if approximate == "none":
            return rounded(x * 0.5 * ((x * sqrt(0.5)).erf() + 1), self)
        if approximate != "tanh":
            raise ShapeError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
        inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
        return rounded(x * 0.5 * (inner.tanh() + 1), self)

    def quick_gelu(self: Tensor) -> Tensor:
        """x * sigmoid(1.702 x)."""
        x = widened(self)
        return rounded(x * (x * 1.702).sigmoid(), self)

    def elu(self: Tensor, alpha: float = 1.0) -> Tensor:
        """x above zero, alpha * (exp(x) - 1) below."""
        x = widened(self)
        low = x.expm1()
        return rounded(select(x > 0, x, low if alpha == 1 else low * alpha), self)

    def selu(self: Tensor) -> Tensor:
        """The self-normalising elu."""
        return rounded(widened(self).elu(1.6732632423543772) * 1.0507009873554805, self)

    def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
        """x above zero, alpha * (exp(x / alpha) - 1) below."""
        x = widened(self)
        return rounded(select(x > 0, x, (x / alpha).expm1() * alpha), self)

    def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
        """x above zero, a fraction of it below."""
        return select(self > 0, self, self * negative_slope)

    def prelu(self: Tensor, weight: Tensor) -> Tensor:
        """leaky_relu with a slope per channel, which is axis 1."""
        channels = self.shape[1] if self.ndim > 1 else 1
        if weight.ndim > 1 or weight.numel() not in (1, channels):
            raise ShapeError(f"prelu: a weight of shape {weight.shape} for a tensor {self.shape}")
        is_single = weight.numel() == 1
        slope = weight.reshape([-1 if i == 1 and not is_single else 1 for i in range(self.ndim)])
        return select(self > 0, self, self * slope)

    def softplus(self: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
        """log(1 + exp(beta x)) / beta, without overflow."""
        x = widened(self)
        x = x if beta == 1 else x * beta
        smooth = x.maximum(0) + (-x.abs()).exp().log1p()  # both halves of the slope at 0
        found = select(x > threshold, x, smooth)
        return rounded(found if beta == 1 else found / beta, self)

    def logsigmoid(self: Tensor) -> Tensor:
        """log(sigmoid(x))."""
        x = widened(self)
        return rounded(x.minimum(0) - (-x.abs()).exp().log1p(), self)

    def mish(self: Tensor) -> Tensor:
        """x * tanh(softplus(x))."""
        x = widened(self)
        return rounded(x * x.softplus().tanh(), self)

    def hardtanh(self: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
        """x limited to a range."""
        if self.dtype.kind == "b":
            raise DTypeError("hardtanh takes numbers, not bool")
        if min_val > max_val:
            raise ShapeError(f"hardtanh: min_val {min_val} is above max_val {max_val}")
        if self.dtype.kind in "iu":
            min_val, max_val = int(min_val), int(max_val)
        if self.dtype.kind == "u" and min(min_val, max_val) < 0:
            raise ShapeError(f"hardtanh of {self.dtype.name} from {min_val} to {max_val}")
        # At the limits the gradient is 0, as in torch; clamp's would be 1.
        inside = (self > min_val) & (self < max_val)
        return select(inside, self, self.clamp(min_val, max_val).detach())

    def hardsigmoid(self: Tensor) -> Tensor:
        """relu6(x + 3) / 6."""
        return rounded((widened(self) + 3).relu6() / 6, self)

    def hardswish(self: Tensor) -> Tensor:
        """x * relu6(x + 3) / 6."""
        x = widened(self)
        return rounded(x * (x + 3).relu6() / 6, self)

    def softsign(self: Tensor) -> Tensor:
        """x / (1 + |x|)."""
        x = widened(self)
        return rounded(x / (x.abs() + 1), self)

    def tanhshrink(self: Tensor) -> Tensor:
        """x - tanh(x)."""
        x = widened(self)
        return rounded(x - x.tanh(), self)

    def hardshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
        """x, or 0 where |x| is at most lambd."""
        return select(self.abs() <= lambd, 0.0, self)

    def softshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
        """x moved toward zero by lambd, 0 in between."""
        if not lambd >= 0:
            raise ShapeError(f"softshrink: lambd is 0 or more, not {lambd}")
        moved = select(self > 0, self - lambd, self + lambd)
        return select(self.abs() <= lambd, 0.0, moved)

    def threshold(self: Tensor, threshold: float, value: float) -> Tensor:
        """x above the threshold, else the value."""
        return select(self > threshold, self, value)

    def logit(self: Tensor, eps: float | None = None) -> Tensor:
        """log(x / (1 - x))."""
        x = widened(self if eps is None else self.clamp(eps, 1 - eps))
        return rounded((x / (1 - x)).log(), self)

    def glu(self: Tensor, dim: int = -1) -> Tensor:
        """The first half of an axis times the sigmoid of the second."""
        axis = real_axis(dim, self.shape, "glu")
        if self.shape[axis] % 2 or not self.shape[axis]:
            raise ShapeError(f"glu: axis {dim} of {self.shape} has no two halves")
        a, b = self.chunk(2, axis)
        return rounded(widened(a) * widened(b).sigmoid(), self)
