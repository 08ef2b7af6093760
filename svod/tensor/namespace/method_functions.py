"""Functions of the namespace that only call a method, under its own or the standard's name.

They live in a dictionary, not in a module, because many have the name of a Python builtin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svod.base.errors import DTypeError
from svod.dtype.promotion import result_type
from svod.tensor.core.public_functions import spelled
from svod.tensor.core.tensor_core import scalar_node, tensor_of, wrap
from svod.tensor.tensor import Tensor

# name in the namespace = name of the method, where they differ
_RENAMED = {
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "equal": "eq",
    "not_equal": "ne",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "bitwise_invert": "bitwise_not",
    "max": "amax",
    "min": "amin",
    "permute_dims": "permute",
    "take_along_axis": "take_along_dim",
}
_SAME = (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or "
    "bitwise_right_shift bitwise_xor ceil copysign cos cosh erf exp exp2 expm1 floor "
    "floor_divide fmax fmin fmod hypot isclose isfinite isinf isnan lerp log log10 log1p log2 "
    "logaddexp logical_and logical_not logical_or logical_xor maximum minimum nan_to_num pow "
    "reciprocal remainder round rsqrt sign signbit sin sinh sqrt square tan tanh trunc "
    "any all argmax argmin count_nonzero logsumexp mean prod sum norm amax amin "
    "det slogdet logdet inverse pinverse cholesky cholesky_solve cholesky_inverse qr svd "
    "matrix_exp "
    "matmul dot tensordot outer inner mm bmm mv trace kron vecdot linear "
    "reshape flip roll squeeze unsqueeze permute transpose movedim moveaxis swapaxes flatten "
    "ravel tile tril triu diag diagonal diag_embed chunk split tensor_split unbind pad "
    "masked_fill clamp positive broadcast_to narrow repeat_interleave rot90 "
    "argsort topk median kthvalue quantile searchsorted unique bincount "
    "cumsum cumprod cummax cummin logcumsumexp "
    "gather scatter scatter_add scatter_reduce index_select index_add take take_along_dim "
    "masked_select one_hot "
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "softmax log_softmax layer_norm rms_norm batch_norm group_norm instance_norm normalize "
    "dropout scaled_dot_product_attention "
    "relu relu6 sigmoid silu gelu elu selu celu leaky_relu prelu softplus logsigmoid mish "
    "hardtanh hardsigmoid hardswish softsign glu "
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div"
)


def forward(name: str, method: str) -> Callable[..., Any]:
    """A function that calls a method of its first argument, which may be named ``input``."""
    called = getattr(Tensor, method)

    def function(*args: Any, **options: Any) -> Any:
        if args:
            x, *args = args  # type: ignore[assignment]
        elif "input" in options:
            x = options.pop("input")
        else:
            raise DTypeError(f"{name}() needs a tensor as its first argument")
        if type(x) is not Tensor:
            if not isinstance(x, Tensor):
                x = _beside(x, args[0]) if args else tensor_of(x)
            return getattr(x, method)(*args, **options)
        return called(x, *args, **options)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "svod"
    function.__doc__ = called.__doc__
    found = spelled(function)
    function.__wrapped__ = called  # type: ignore[attr-defined]  # its signature
    return found


def _beside(value: Any, other: Any) -> Tensor:
    """A first operand that is a number takes the dtype of the tensor it stands beside."""
    if isinstance(other, Tensor) and isinstance(value, (int, float, complex)):
        return wrap(scalar_node(value, result_type(other.dtype, value)), other._device)
    return tensor_of(value)


FORWARDS: dict[str, Callable[..., Any]] = {
    name: forward(name, method)
    for name, method in {**{n: n for n in _SAME.split()}, **_RENAMED}.items()
}
