"""Activations, losses and other functions as modules: each calls its function in nn.functional.

A table gives every module its function, the arguments of its constructor in torch's order, and
whether the function is told about training. Tensors among the arguments are buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from svod.base.errors import ArgumentError, ShapeError
from svod.nn import functional, init
from svod.nn.layers import parameter
from svod.nn.module import Module
from svod.tensor.tensor import Tensor

_LEGACY = "size_average=None, reduce=None, reduction='mean'"
_WINDOW = "kernel_size, stride=None, padding=0"

# name of the module: function, arguments of the constructor
_TABLE = {
    "ReLU": ("relu", "inplace=False"),
    "ReLU6": ("relu6", "inplace=False"),
    "Sigmoid": ("sigmoid", ""),
    "Tanh": ("tanh", ""),
    "GELU": ("gelu", "approximate='none'"),
    "SiLU": ("silu", "inplace=False"),
    "ELU": ("elu", "alpha=1.0, inplace=False"),
    "SELU": ("selu", "inplace=False"),
    "CELU": ("celu", "alpha=1.0, inplace=False"),
    "LeakyReLU": ("leaky_relu", "negative_slope=0.01, inplace=False"),
    "Softplus": ("softplus", "beta=1.0, threshold=20.0"),
    "LogSigmoid": ("logsigmoid", ""),
    "Mish": ("mish", "inplace=False"),
    "Hardtanh": ("hardtanh", "min_val=-1.0, max_val=1.0, inplace=False"),
    "Hardsigmoid": ("hardsigmoid", "inplace=False"),
    "Hardswish": ("hardswish", "inplace=False"),
    "Softsign": ("softsign", ""),
    "Tanhshrink": ("tanhshrink", ""),
    "Hardshrink": ("hardshrink", "lambd=0.5"),
    "Softshrink": ("softshrink", "lambd=0.5"),
    "Threshold": ("threshold", "threshold, value, inplace=False"),
    "GLU": ("glu", "dim=-1"),
    "Softmax": ("softmax", "dim=None"),
    "Softmin": ("softmin", "dim=None"),
    "LogSoftmax": ("log_softmax", "dim=None"),
    # losses
    "CrossEntropyLoss": (
        "cross_entropy",
        "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', "
        "label_smoothing=0.0",
    ),
    "NLLLoss": (
        "nll_loss",
        "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'",
    ),
    "MSELoss": ("mse_loss", _LEGACY),
    "L1Loss": ("l1_loss", _LEGACY),
    "SmoothL1Loss": ("smooth_l1_loss", f"{_LEGACY}, beta=1.0"),
    "HuberLoss": ("huber_loss", "reduction='mean', delta=1.0"),
    "BCELoss": ("binary_cross_entropy", f"weight=None, {_LEGACY}"),
    "BCEWithLogitsLoss": (
        "binary_cross_entropy_with_logits",
        f"weight=None, {_LEGACY}, pos_weight=None",
    ),
    "KLDivLoss": ("kl_div", f"{_LEGACY}, log_target=False"),
    "HingeEmbeddingLoss": ("hinge_embedding_loss", f"margin=1.0, {_LEGACY}"),
    "SoftMarginLoss": ("soft_margin_loss", _LEGACY),
    "MarginRankingLoss": ("margin_ranking_loss", f"margin=0.0, {_LEGACY}"),
    "CosineEmbeddingLoss": ("cosine_embedding_loss", f"margin=0.0, {_LEGACY}"),
    "MultiMarginLoss": ("multi_margin_loss", f"p=1, margin=1.0, weight=None, {_LEGACY}"),
    "MultiLabelMarginLoss": ("multilabel_margin_loss", _LEGACY),
    "MultiLabelSoftMarginLoss": ("multilabel_soft_margin_loss", f"weight=None, {_LEGACY}"),
    "PoissonNLLLoss": (
        "poisson_nll_loss",
        "log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean'",
    ),
    "GaussianNLLLoss": ("gaussian_nll_loss", "*, full=False, eps=1e-06, reduction='mean'"),
    "TripletMarginLoss": (
        "triplet_margin_loss",
        f"margin=1.0, p=2.0, eps=1e-06, swap=False, {_LEGACY}",
    ),
    "TripletMarginWithDistanceLoss": (
        "triplet_margin_with_distance_loss",
        "*, distance_function=None, margin=1.0, swap=False, reduction='mean'",
    ),
    "CTCLoss": ("ctc_loss", "blank=0, reduction='mean', zero_infinity=False"),
    # distances, shapes, windows
    "CosineSimilarity": ("cosine_similarity", "dim=1, eps=1e-08"),
    "PairwiseDistance": ("pairwise_distance", "p=2.0, eps=1e-06, keepdim=False"),
    "PixelShuffle": ("pixel_shuffle", "upscale_factor"),
    "PixelUnshuffle": ("pixel_unshuffle", "downscale_factor"),
    "ChannelShuffle": ("channel_shuffle", "groups"),
    "LocalResponseNorm": ("local_response_norm", "size, alpha=0.0001, beta=0.75, k=1.0"),
    "Fold": ("fold", "output_size, kernel_size, dilation=1, padding=0, stride=1"),
    "Unfold": ("unfold", "kernel_size, dilation=1, padding=0, stride=1"),
    "Upsample": (
        "interpolate",
        "size=None, scale_factor=None, mode='nearest', align_corners=None, "
        "recompute_scale_factor=None",
    ),
    "UpsamplingNearest2d": ("upsample_nearest", "size=None, scale_factor=None"),
    "UpsamplingBilinear2d": ("upsample_bilinear", "size=None, scale_factor=None"),
    **{
        f"LPPool{n}d": (f"lp_pool{n}d", "norm_type, kernel_size, stride=None, ceil_mode=False")
        for n in (1, 2, 3)
    },
    **{f"MaxUnpool{n}d": (f"max_unpool{n}d", _WINDOW) for n in (1, 2, 3)},
    **{
        f"FractionalMaxPool{n}d": (
            f"fractional_max_pool{n}d",
            "kernel_size, output_size=None, output_ratio=None, return_indices=False, "
            "_random_samples=None",
        )
        for n in (2, 3)
    },
    # told about training
    "RReLU": ("rrelu", "lower=0.125, upper=0.3333333333333333, inplace=False"),
    **{f"Dropout{n}d": (f"dropout{n}d", "p=0.5, inplace=False") for n in (1, 2, 3)},
    "AlphaDropout": ("alpha_dropout", "p=0.5, inplace=False"),
    "FeatureAlphaDropout": ("feature_alpha_dropout", "p=0.5, inplace=False"),
}


class Function(Module):
    """A function of nn.functional with its options fixed."""

    function = ""
    read: Callable[..., dict[str, Any]]
    is_told = False  # whether the function is told about training

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        try:
            given = type(self).read(*args, **options)
        except TypeError as error:
            raise ArgumentError(f"{type(self).__name__}{str(error)[8:]}") from None
        if "p" in given and "Dropout" in type(self).__name__ and not 0 <= given["p"] <= 1:
            raise ShapeError(f"{type(self).__name__}: p is a probability, not {given['p']}")
        self.options = {k: v for k, v in given.items() if not isinstance(v, Tensor)}
        for name, value in given.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)

    def forward(self, *inputs: Any, **more: Any) -> Any:
        options = {**self.options, **self._buffers, **more}
        if self.is_told:
            options["training"] = self.training
        return getattr(functional, self.function)(*inputs, **options)

    def extra_repr(self) -> str:
        return ", ".join([f"{k}={v}" for k, v in self.options.items()])


def _module(name: str, function: str, arguments: str) -> type[Function]:
    read = eval(f"lambda {arguments}: dict(locals())")  # the table above, nothing from outside
    called = getattr(functional, function)
    members = {
        "function": function, "read": staticmethod(read), "__doc__": called.__doc__,
        "is_told": "training" in signature(called).parameters, "__module__": __name__,
        "__signature__": signature(read),
    }  # fmt: skip
    return type(name, (Function,), members)


_made = {name: _module(name, *how) for name, how in _TABLE.items()}
globals().update(_made)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-3)


class PReLU(Module):
    """max(x, 0) + weight * min(x, 0) with a weight that is learned."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        weight = parameter(num_parameters, dtype=dtype, device=device)
        self.weight = _constant(weight, init)

    def forward(self, x: Tensor) -> Tensor:
        return x.prelu(self.weight)


def _constant(tensor: Tensor, value: float) -> Tensor:
    return init.constant_(tensor, value)


class _Pad(Module):
    count = 0
    mode = "constant"

    def __init__(self, padding: Any, value: float = 0.0) -> None:
        super().__init__()
        whole = isinstance(padding, int)
        self.padding = (padding,) * (2 * self.count) if whole else tuple(padding)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = functional.pad(x, self.padding, self.mode, self.value)  # type: ignore[attr-defined]
        return found

    def extra_repr(self) -> str:
        return f"{self.padding}"


_MODES = {"Constant": "constant", "Reflection": "reflect", "Replication": "replicate",
          "Circular": "circular", "Zero": "constant"}  # fmt: skip


def _pad(name: str, mode: str, count: int) -> type[_Pad]:
    def __init__(self: Any, padding: Any) -> None:
        _Pad.__init__(self, padding)

    members: dict[str, Any] = {
        "count": count, "mode": mode, "__module__": __name__,
        "__doc__": f"Borders of {count} axes filled, mode {mode!r}.",
    }  # fmt: skip
    if not name.startswith("Constant"):
        members["__init__"] = __init__
    return type(name, (_Pad,), members)


_pads = {
    f"{kind}Pad{count}d": _pad(f"{kind}Pad{count}d", mode, count)
    for kind, mode in _MODES.items()
    for count in (1, 2, 3)
}
globals().update(_pads)

__all__ = [*_made, *_pads, "Function", "PReLU", "Softmax2d"]
