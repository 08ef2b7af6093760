"""Products of matrices, convolutions, pools and resampling, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svod.nn.functional as F
from svod.frontend.torch.ops.registry import Call, op, tensor
from svod.func import vjp
from svod.tensor.layers.pooling import windows_at_positions
from svod.tensor.tensor import Tensor


def pulled_back(function: Callable[..., Tensor], grad: Tensor, *given: Tensor) -> tuple[Any, ...]:
    """What a gradient of the result says about each of the tensors a function is given."""
    _, back = vjp(function, *given)
    return tuple(back(grad))


# -- products --------------------------------------------------------------------------------------


@op("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
    "aten.dot.default")  # fmt: skip
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@op("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if x.dtype.kind in "iub":  # whole numbers take whole factors
        beta, alpha = int(beta), int(alpha)
    found = a @ b
    if alpha != 1:
        found = found * alpha
    if beta == 0:
        return found
    return found + (x if beta == 1 else x * beta)


@op("aten.linear.default")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.linear(weight, bias)


@op("aten.einsum.default")
def einsum(equation: str, tensors: Any, **_: Any) -> Tensor:
    import svod

    return svod.einsum(equation, *tensors)


# -- convolutions ----------------------------------------------------------------------------------


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    count = x.ndim - 2
    lists = [tuple(v) * (count if len(v) == 1 else 1) for v in (stride, padding, dilation)]
    if not transposed:
        function = getattr(F, f"conv{count}d")
        return function(x, weight, bias, *lists, groups)
    function = getattr(F, f"conv_transpose{count}d")
    extra = tuple(output_padding) * (count if len(output_padding) == 1 else 1)
    return function(x, weight, bias, lists[0], lists[1], extra, groups, lists[2])


@op("aten.convolution.default", "aten._convolution.default")
def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, *_: Any,
) -> Tensor:  # fmt: skip
    return _convolved(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


@op("aten.convolution_backward.default")
def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, mask: Any,
) -> Any:  # fmt: skip
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    found: list[Any] = [None, None, None]
    if mask[0]:
        (found[0],) = pulled_back(lambda a: _convolved(a, weight, None, *settings), grad, x)
    if mask[1]:
        (found[1],) = pulled_back(lambda w: _convolved(x, w, None, *settings), grad, weight)
    if mask[2]:
        found[2] = grad.sum((0, *range(2, grad.ndim)))
    return tuple(found)


# -- pools -----------------------------------------------------------------------------------------


def _max_pool(count: int) -> None:
    function = getattr(F, f"max_pool{count}d")

    def arguments(
        kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> tuple[Any, ...]:
        return (
            _numbers(kernel),
            _numbers(stride) or None,
            _numbers(padding),
            _numbers(dilation),
            ceil,
        )

    @op(f"aten.max_pool{count}d_with_indices.default")
    def forward(x: Tensor, *given: Any, **named: Any) -> Any:
        return tuple(function(x, *arguments(*given, **_renamed(named)), return_indices=True))

    @op(f"aten.max_pool{count}d_with_indices_backward.default")
    def backward(grad: Tensor, x: Tensor, *given: Any) -> Tensor:
        cut, received = windows_at_positions(grad, x, given[5], count, *arguments(*given[:5]))
        return pulled_back(cut, received, x)[0]


def _renamed(named: dict[str, Any]) -> dict[str, Any]:
    return {{"ceil_mode": "ceil"}.get(k, k): v for k, v in named.items()}


def _numbers(given: Any) -> Any:
    return tuple(given) if isinstance(given, (list, tuple)) else given


def _avg_pool(count: int) -> None:
    function = getattr(F, f"avg_pool{count}d")

    def settings(
        kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Any = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        found = (_numbers(kernel_size), _numbers(stride) or None, _numbers(padding), ceil_mode)
        return (*found, count_include_pad, *([divisor_override] if count > 1 else []))

    @op(f"aten.avg_pool{count}d.default")
    def forward(x: Tensor, *given: Any, **named: Any) -> Tensor:
        return function(x, *settings(*given, **named))

    if count > 1:

        @op(f"aten.avg_pool{count}d_backward.default")
        def backward(grad: Tensor, x: Tensor, *given: Any, **named: Any) -> Tensor:
            chosen = settings(*given, **named)
            return pulled_back(lambda a: function(a, *chosen), grad, x)[0]


def _adaptive(count: int) -> None:
    function = getattr(F, f"adaptive_avg_pool{count}d")
    name = f"adaptive_avg_pool{count}d"

    @op(f"aten.{'_' if count > 1 else ''}{name}.default")
    def forward(x: Tensor, size: Any) -> Tensor:
        return function(x, tuple(size))

    if count > 1:

        @op(f"aten._{name}_backward.default")
        def backward(grad: Tensor, x: Tensor) -> Tensor:
            size = tuple(grad.shape[-count:])
            return pulled_back(lambda a: function(a, size), grad, x)[0]


for _count in (2, 3):
    _max_pool(_count)
for _count in (1, 2, 3):
    _avg_pool(_count)
    _adaptive(_count)

# -- resampling ------------------------------------------------------------------------------------

_KINDS = {
    "nearest1d": "nearest", "nearest2d": "nearest", "nearest3d": "nearest",
    "_nearest_exact1d": "nearest-exact", "_nearest_exact2d": "nearest-exact",
    "_nearest_exact3d": "nearest-exact", "linear1d": "linear", "bilinear2d": "bilinear",
    "bicubic2d": "bicubic", "trilinear3d": "trilinear",
}  # fmt: skip


def _resampled(name: str, x: Tensor, size: Any, align: Any, scales: Any) -> Tensor:
    mode = _KINDS[name]
    options: dict[str, Any] = {} if "nearest" in mode else {"align_corners": align}
    if scales is not None and all(s is not None for s in scales):
        return F.interpolate(x, scale_factor=tuple(scales), mode=mode, **options)
    return F.interpolate(x, size=tuple(size), mode=mode, **options)


def _resampling(name: str) -> None:
    has_align = "nearest" not in _KINDS[name]
    shown = name.replace("_nearest", "upsample_nearest") if name[0] == "_" else f"upsample_{name}"
    shown = f"_{shown}" if name[0] == "_" else shown

    @op(f"aten.{shown}.vec", call=True)
    def of_either(call: Call, x: Tensor, size: Any, *rest: Any) -> Tensor:
        align, scales = rest if has_align else (None, *rest)
        return _resampled(name, x, size or call.shape[2:], align, scales)

    @op(f"aten.{shown}.default")
    def of_size(x: Tensor, size: Any, *rest: Any) -> Tensor:
        align, scales = (rest[0], rest[1:]) if has_align else (None, rest)
        return _resampled(name, x, size, align, scales or None)

    @op(f"aten.{shown}_backward.default")
    def backward(grad: Tensor, size: Any, input_size: Any, *rest: Any) -> Tensor:
        align, scales = (rest[0], rest[1:]) if has_align else (None, rest)
        x = tensor(0, grad.dtype).expand(*input_size)
        return pulled_back(lambda a: _resampled(name, a, size, align, scales or None), grad, x)[0]


for _name in _KINDS:
    _resampling(_name)

_SAMPLES = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")


@op("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool
) -> Tensor:
    return F.grid_sample(x, grid, _SAMPLES[interpolation], _BORDERS[padding], align_corners)


@op("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, interpolation: int, padding: int, align: bool, mask: Any
) -> Any:
    return pulled_back(
        lambda a, b: grid_sampler(a, b, interpolation, padding, align), grad, x, grid
    )
