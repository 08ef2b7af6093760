"""Functions with the names, arguments and defaults of ``torch.nn.functional``.

A table gives every function its arguments in torch's order; the work is done by the method or
function of the same name. ``inplace=True`` gives the input the result as its new value; the older
``size_average`` and ``reduce`` stand for a ``reduction``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod.base.errors import DTypeError, ShapeError
from svod.nn.heads import multi_head_attention_forward as multi_head_attention_forward
from svod.reference.docstrings import describe
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import spelled
from svod.tensor.layers import (
    ctc_loss,
    distances,
    image_patches,
    interpolation,
    margin_losses,
    stochastic,
    unpooling,
)
from svod.tensor.ops.sorting import counts_of as _counts_of
from svod.tensor.tensor import Tensor

Function = Callable[..., Any]
_LEGACY = "size_average=None, reduce=None, reduction='mean'"
_POOL = "input, kernel_size, stride=None, padding=0"
_CONV = "input, weight, bias=None, stride=1, padding=0"

# name: arguments in torch's order. The first is the tensor whose method does the work.
_METHODS = {
    # activations
    "relu": "input, inplace=False",
    "relu6": "input, inplace=False",
    "elu": "input, alpha=1.0, inplace=False",
    "selu": "input, inplace=False",
    "celu": "input, alpha=1.0, inplace=False",
    "leaky_relu": "input, negative_slope=0.01, inplace=False",
    "prelu": "input, weight",
    "gelu": "input, approximate='none'",
    "silu": "input, inplace=False",
    "mish": "input, inplace=False",
    "softplus": "input, beta=1, threshold=20",
    "logsigmoid": "input",
    "hardtanh": "input, min_val=-1.0, max_val=1.0, inplace=False",
    "hardsigmoid": "input, inplace=False",
    "hardswish": "input, inplace=False",
    "hardshrink": "input, lambd=0.5",
    "softshrink": "input, lambd=0.5",
    "softsign": "input",
    "tanhshrink": "input",
    "threshold": "input, threshold, value, inplace=False",
    "glu": "input, dim=-1",
    "sigmoid": "input",
    "tanh": "input",
    "softmax": "input, dim=None, _stacklevel=3, dtype=None",
    "log_softmax": "input, dim=None, _stacklevel=3, dtype=None",
    "softmin": "input, dim=None, _stacklevel=3, dtype=None",
    # layers
    "linear": "input, weight, bias=None",
    "one_hot": "tensor, num_classes=-1",
    "layer_norm": "input, normalized_shape, weight=None, bias=None, eps=1e-05",
    "rms_norm": "input, normalized_shape, weight=None, eps=None",
    "group_norm": "input, num_groups, weight=None, bias=None, eps=1e-05",
    "batch_norm": (
        "input, running_mean, running_var, weight=None, bias=None, training=False, "
        "momentum=0.1, eps=1e-05"
    ),
    "local_response_norm": "input, size, alpha=0.0001, beta=0.75, k=1.0",
    "normalize": "input, p=2.0, dim=1, eps=1e-12, out=None",
    "cosine_similarity": "x1, x2, dim=1, eps=1e-08",
    "pairwise_distance": "x1, x2, p=2.0, eps=1e-06, keepdim=False",
    "pixel_shuffle": "input, upscale_factor",
    "pixel_unshuffle": "input, downscale_factor",
    "channel_shuffle": "input, groups",
    "pad": "input, pad, mode='constant', value=None",
    "scaled_dot_product_attention": (
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, "
        "enable_gqa=False"
    ),
    **{f"conv{n}d": f"{_CONV}, dilation=1, groups=1" for n in (1, 2, 3)},
    **{
        f"conv_transpose{n}d": f"{_CONV}, output_padding=0, groups=1, dilation=1" for n in (1, 2, 3)
    },
    # pooling
    "avg_pool1d": f"{_POOL}, ceil_mode=False, count_include_pad=True",
    **{
        f"avg_pool{n}d": f"{_POOL}, ceil_mode=False, count_include_pad=True, divisor_override=None"
        for n in (2, 3)
    },
    **{
        f"max_pool{n}d": f"{_POOL}, dilation=1, ceil_mode=False, return_indices=False"
        for n in (1, 2, 3)
    },
    **{f"adaptive_avg_pool{n}d": "input, output_size" for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": "input, output_size, return_indices=False" for n in (1, 2, 3)},
    # losses
    "cross_entropy": (
        "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, "
        "reduction='mean', label_smoothing=0.0"
    ),
    "nll_loss": (
        "input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, "
        "reduction='mean'"
    ),
    "mse_loss": f"input, target, {_LEGACY}, weight=None",
    "l1_loss": f"input, target, {_LEGACY}, weight=None",
    "smooth_l1_loss": f"input, target, {_LEGACY}, beta=1.0",
    "huber_loss": "input, target, reduction='mean', delta=1.0, weight=None",
    "binary_cross_entropy": f"input, target, weight=None, {_LEGACY}",
    "binary_cross_entropy_with_logits": f"input, target, weight=None, {_LEGACY}, pos_weight=None",
    "kl_div": f"input, target, {_LEGACY}, log_target=False",
    "hinge_embedding_loss": f"input, target, margin=1.0, {_LEGACY}",
    "soft_margin_loss": f"input, target, {_LEGACY}",
    "margin_ranking_loss": f"input1, input2, target, margin=0, {_LEGACY}",
    "cosine_embedding_loss": f"input1, input2, target, margin=0, {_LEGACY}",
    "multi_margin_loss": f"input, target, p=1, margin=1.0, weight=None, {_LEGACY}",
    "multilabel_margin_loss": f"input, target, {_LEGACY}",
    "multilabel_soft_margin_loss": f"input, target, weight=None, {_LEGACY}",
    "poisson_nll_loss": (
        "input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, "
        "reduction='mean'"
    ),
    "gaussian_nll_loss": "input, target, var, full=False, eps=1e-06, reduction='mean'",
    "triplet_margin_loss": (
        f"anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, {_LEGACY}"
    ),
}
_IGNORED = ("_stacklevel", "out")  # accepted for torch's sake, without meaning here


def _function(name: str, arguments: str) -> Function:
    read = eval(f"lambda {arguments}: dict(locals())")  # the table above, nothing from outside
    read.__name__ = read.__qualname__ = name
    method = getattr(Tensor, name)
    first = arguments.split(",")[0]
    softened = name in ("softmax", "log_softmax", "softmin")

    def function(*args: Any, **options: Any) -> Any:
        try:
            given = read(*args, **options)
        except TypeError as error:
            raise DTypeError(str(error)) from None
        x = given.pop(first)
        if not isinstance(x, Tensor):
            raise DTypeError(f"{name}: {first} must be a tensor, not a {type(x).__name__}")
        for unused in _IGNORED:
            given.pop(unused, None)
        average, reduce = given.pop("size_average", None), given.pop("reduce", None)
        if average is not None or reduce is not None:
            given["reduction"] = legacy_reduction(average, reduce)
        if softened and given["dim"] is None:
            given["dim"] = 0 if x.ndim in (0, 1, 3) else 1
        inplace = given.pop("inplace", False)
        found = method(x, **given)
        return x.become(found) if inplace else found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    function.__wrapped__ = read  # type: ignore[attr-defined]
    return function


def legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """What torch's older pair of flags means."""
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


_generated = {name: _function(name, text) for name, text in _METHODS.items()}
globals().update(_generated)

_FUNCTIONS = {
    interpolation: "affine_grid grid_sample interpolate",
    image_patches: "fold unfold",
    distances: "pdist",
    unpooling: "bilinear embedding_bag",
    margin_losses: "triplet_margin_with_distance_loss",
    ctc_loss: "ctc_loss",
    stochastic: (
        "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout "
        "gumbel_softmax rrelu"
    ),
}
for _module, _names in _FUNCTIONS.items():
    for _name in _names.split():
        globals()[_name] = spelled(getattr(_module, _name))


@spelled
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a matrix at these indices; rows longer than max_norm are scaled down."""
    table = weight if max_norm is None else weight.renorm(norm_type, 0, max_norm)
    if not scale_grad_by_freq:
        return input.embedding(table, padding_idx)
    often = _counts_of(input.ravel(), table.shape[0]).clamp(1).unsqueeze(1)
    scaled = table / often.cast(table.dtype)  # for the gradient alone: the values stay
    return input.embedding(table.detach() + (scaled - scaled.detach()), padding_idx)


@spelled
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """cross_entropy of a linear layer; ``options`` of chunks change nothing here."""
    shape = linear_weight.shape
    if len(shape) < 2 or input.ndim not in (1, 2) or shape[-1] != input.shape[-1]:
        raise ShapeError(f"linear_cross_entropy: {input.shape} and {shape} do not fit together")
    if len(shape) > 2 and input.ndim == 1:
        raise ShapeError(f"linear_cross_entropy: weights {shape} need inputs with a batch axis")
    if target.dtype.kind == "f" and ignore_index is not None:
        raise ShapeError("linear_cross_entropy: ignore_index is for targets that are classes")
    if linear_bias is not None and linear_bias.shape != shape[:-1]:
        raise ShapeError(f"linear_cross_entropy: a bias {linear_bias.shape} for weights {shape}")
    flat = linear_weight.reshape(-1, shape[-1])
    found = input.linear(flat, None if linear_bias is None else linear_bias.ravel())
    return found.reshape(*input.shape[:-1], *shape[:-1]).cross_entropy(
        target, weight, -100 if ignore_index is None else ignore_index, reduction, label_smoothing
    )


@spelled
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Standardised per sample and channel; running values take in the average over samples."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ShapeError("instance_norm: without statistics of the input, give running ones")
        return input.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
    space = input.shape[2:]
    if input.ndim < 3 or (len(space) and max(space) == min(space) == 1):
        raise ShapeError(f"instance_norm needs several values per channel, not {input.shape}")
    axes = tuple(range(2, input.ndim))
    for kept, fresh in (
        (running_mean, lambda: input.mean(axes).mean(0)),
        (running_var, lambda: input.var(axes, 1).mean(0)),
    ):
        if kept is not None:
            kept.assign(kept * (1 - momentum) + fresh() * momentum)
    return input.instance_norm(weight, bias, eps)


def _lp_pool(count: int) -> Function:
    def function(
        input: Tensor,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        return unpooling.lp_pool(input, count, norm_type, kernel_size, stride, ceil_mode)

    function.__name__ = function.__qualname__ = f"lp_pool{count}d"
    function.__doc__ = f"The p-norm of each window over the last {count} axes."
    return spelled(function)


def _max_unpool(count: int) -> Function:
    def function(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Tensor:
        return unpooling.max_unpool(
            input, indices, count, kernel_size, stride, padding, output_size
        )

    function.__name__ = function.__qualname__ = f"max_unpool{count}d"
    function.__doc__ = f"Maxima over the last {count} axes put back at their places."
    return spelled(function)


def _fractional(count: int) -> Function:
    def function(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        return unpooling.fractional_max_pool(
            input, count, kernel_size, output_size, output_ratio, return_indices, _random_samples
        )

    function.__name__ = function.__qualname__ = f"fractional_max_pool{count}d"
    function.__doc__ = f"Maxima of windows at random distances over the last {count} axes."
    return spelled(function)


lp_pool1d, lp_pool2d, lp_pool3d = _lp_pool(1), _lp_pool(2), _lp_pool(3)
max_unpool1d, max_unpool2d, max_unpool3d = _max_unpool(1), _max_unpool(2), _max_unpool(3)
fractional_max_pool2d, fractional_max_pool3d = _fractional(2), _fractional(3)


def _with_indices(name: str, plain: Function, place: int) -> Function:
    def function(*args: Any, **options: Any) -> Any:
        if len(args) <= place:
            options["return_indices"] = True
        return plain(*args, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{plain.__name__} together with the places of the maxima."
    function.__wrapped__ = plain  # type: ignore[attr-defined]  # its signature
    return function


for _count in (1, 2, 3):
    for _name, _place in ((f"max_pool{_count}d", 6), (f"adaptive_max_pool{_count}d", 2)):
        _full = f"{_name}_with_indices"
        globals()[_full] = _with_indices(_full, _generated[_name], _place)
for _count in (2, 3):
    _full = f"fractional_max_pool{_count}d_with_indices"
    globals()[_full] = _with_indices(_full, _fractional(_count), 4)


@spelled
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """interpolate under its older name."""
    return interpolation.interpolate(input, size, scale_factor, mode, align_corners)


@spelled
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate to the nearest value."""
    return interpolation.interpolate(input, size, scale_factor, "nearest")


@spelled
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Bilinear interpolate with aligned corners."""
    return interpolation.interpolate(input, size, scale_factor, "bilinear", True)


def _in_place(name: str) -> Function:
    plain = globals()[name]

    def function(input: Tensor, *args: Any, **options: Any) -> Tensor:
        return input.become(plain(input, *args, **options))

    function.__name__ = function.__qualname__ = f"{name}_"
    function.__doc__ = f"In place: {plain.__doc__}"
    function.__wrapped__ = plain  # type: ignore[attr-defined]  # its signature
    return function


for _name in ("relu", "elu", "selu", "celu", "leaky_relu", "hardtanh", "threshold", "rrelu"):
    globals()[f"{_name}_"] = _in_place(_name)

__all__ = sorted(
    name for name, value in globals().items()
    if callable(value) and not name.startswith("_") and name[0].islower()
    and name not in ("describe", "guard", "legacy_reduction", "spelled")
)  # fmt: skip


guard(globals(), ["multi_head_attention_forward"])

describe(globals(), "svod.nn.functional")
