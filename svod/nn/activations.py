"""Activations and losses as modules: each calls the method of the same name."""

from __future__ import annotations

from inspect import Parameter as Argument
from inspect import signature
from typing import Any

from svod.base.errors import DTypeError
from svod.nn import init
from svod.nn.layers import parameter
from svod.nn.module import Module
from svod.tensor.tensor import Tensor

# name of the module: method of Tensor and how many tensors it takes beside the first
_METHODS = {
    "ReLU": ("relu", 0), "ReLU6": ("relu6", 0), "Sigmoid": ("sigmoid", 0), "Tanh": ("tanh", 0),
    "GELU": ("gelu", 0), "SiLU": ("silu", 0), "ELU": ("elu", 0), "SELU": ("selu", 0),
    "CELU": ("celu", 0), "LeakyReLU": ("leaky_relu", 0), "Softplus": ("softplus", 0),
    "LogSigmoid": ("logsigmoid", 0), "Mish": ("mish", 0), "Hardtanh": ("hardtanh", 0),
    "Hardsigmoid": ("hardsigmoid", 0), "Hardswish": ("hardswish", 0), "Softsign": ("softsign", 0),
    "Tanhshrink": ("tanhshrink", 0), "Hardshrink": ("hardshrink", 0),
    "Softshrink": ("softshrink", 0), "Threshold": ("threshold", 0), "GLU": ("glu", 0),
    "Softmax": ("softmax", 0), "Softmin": ("softmin", 0), "LogSoftmax": ("log_softmax", 0),
    "CrossEntropyLoss": ("cross_entropy", 1), "NLLLoss": ("nll_loss", 1),
    "MSELoss": ("mse_loss", 1), "L1Loss": ("l1_loss", 1), "SmoothL1Loss": ("smooth_l1_loss", 1),
    "HuberLoss": ("huber_loss", 1), "BCELoss": ("binary_cross_entropy", 1),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", 1), "KLDivLoss": ("kl_div", 1),
    "CosineSimilarity": ("cosine_similarity", 1),
}  # fmt: skip


class Function(Module):
    """A method of Tensor with its options fixed."""

    method = ""
    operands = 0

    def __init__(self, *args: Any, inplace: bool = False, **options: Any) -> None:
        super().__init__()
        names = [
            name
            for name, p in signature(getattr(Tensor, self.method)).parameters.items()
            if p.kind in (Argument.POSITIONAL_OR_KEYWORD, Argument.KEYWORD_ONLY)
        ][1 + self.operands :]
        if len(args) > len(names) or not set(options) <= set(names):
            raise DTypeError(f"{type(self).__name__} takes {names}, got {args} and {options}")
        self.options = {**dict(zip(names, args, strict=False)), **options}

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        found: Tensor = getattr(x, self.method)(*others, **self.options)
        return found

    def extra_repr(self) -> str:
        return ", ".join([f"{k}={v}" for k, v in self.options.items()])


def _module(name: str, method: str, operands: int) -> type[Function]:
    doc = getattr(Tensor, method).__doc__
    return type(
        name, (Function,),
        {"method": method, "operands": operands, "__doc__": doc, "__module__": __name__},
    )  # fmt: skip


_made = {name: _module(name, *how) for name, how in _METHODS.items()}
globals().update(_made)


class PReLU(Module):
    """max(x, 0) + weight * min(x, 0) with a weight that is learned."""

    def __init__(
        self,
        num_parameters: int = 1,
        init_value: float = 0.25,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        weight = parameter(num_parameters, dtype=dtype, device=device)
        self.weight = init.constant_(weight, init_value)

    def forward(self, x: Tensor) -> Tensor:
        return x.prelu(self.weight)


__all__ = [*_made, "Function", "PReLU"]
