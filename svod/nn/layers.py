"""Linear layers, embeddings, dropout and small glue."""

from __future__ import annotations

from math import sqrt
from typing import Any

from svod.base.errors import ShapeError
from svod.nn import init
from svod.nn.module import Module, Parameter
from svod.tensor.ops.creation import zeros
from svod.tensor.tensor import Tensor


def parameter(
    *shape: int, bound: float | None = None, dtype: Any = None, device: str | None = None
) -> Parameter:
    """A parameter of uniform numbers up to a bound, or of zeros."""
    found = Parameter(zeros(*shape, dtype=dtype, device=device))
    return found if bound is None else init.uniform_(found, -bound, bound)  # type: ignore[return-value]


def draw_again(module: Module, inputs: int) -> None:
    """New uniform numbers for the parameters of a module, by how many inputs an output has."""
    bound = 1 / sqrt(inputs) if inputs > 0 else 0.0
    for p in module.parameters(recurse=False):
        init.uniform_(p, -bound, bound)
    module.__dict__["_is_ready"] = False


class Identity(Module):
    """The input."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class Linear(Module):
    """x @ weight.T + bias."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / sqrt(in_features) if in_features > 0 else 0.0
        made: dict[str, Any] = {"bound": bound, "dtype": dtype, "device": device}
        self.weight = parameter(out_features, in_features, **made)
        self.register_parameter("bias", parameter(out_features, **made) if bias else None)

    def reset_parameters(self) -> None:
        """New starting values."""
        draw_again(self, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        return x.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """a @ weight @ b + bias for every output."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        bound = 1 / sqrt(in1_features) if in1_features > 0 else 0.0
        made: dict[str, Any] = {"bound": bound, "dtype": dtype, "device": device}
        self.weight = parameter(out_features, in1_features, in2_features, **made)
        self.register_parameter("bias", parameter(out_features, **made) if bias else None)

    def reset_parameters(self) -> None:
        """New starting values."""
        draw_again(self, self.weight.shape[1])

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        from svod.tensor.ops.matrix_products import einsum

        found = einsum("...i,oij,...j->...o", a, self.weight, b)
        return found if self.bias is None else found + self.bias


class Dropout(Module):
    """In training, zeros with probability p, the rest scaled up."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ShapeError(f"dropout: p is a probability, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return x.dropout(self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Module):
    """Axes from start_dim to end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """One axis cut into several."""

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(self.dim, self.unflattened_size)
