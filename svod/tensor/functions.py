"""The functions of the ``svod`` namespace, with the array API's names and signatures.

Most forward to the method of the same meaning; where the standard's signature differs from
torch's, the function is written out. Both spellings of axis keywords are accepted here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.dtype.convert import finfo as finfo
from svod.dtype.convert import iinfo as iinfo
from svod.dtype.promotion import result_type as _result_type
from svod.dtype.types import DType
from svod.ir import build as B
from svod.tensor.core import Axis, axis_of, scalar_node, spelled, tensor_of, wrap
from svod.tensor.creation import arange as arange
from svod.tensor.creation import empty as empty
from svod.tensor.creation import empty_like as empty_like
from svod.tensor.creation import eye as eye
from svod.tensor.creation import full as full
from svod.tensor.creation import full_like as full_like
from svod.tensor.creation import linspace as linspace
from svod.tensor.creation import logspace as logspace
from svod.tensor.creation import meshgrid as meshgrid
from svod.tensor.creation import ones as ones
from svod.tensor.creation import ones_like as ones_like
from svod.tensor.creation import zeros as zeros
from svod.tensor.creation import zeros_like as zeros_like
from svod.tensor.elementwise import select as _select
from svod.tensor.host import import_dlpack
from svod.tensor.joining import concatenate as _concatenate
from svod.tensor.joining import stack as _stack
from svod.tensor.linear import einsum as einsum
from svod.tensor.random import Generator as Generator
from svod.tensor.random import bernoulli as bernoulli
from svod.tensor.random import manual_seed as manual_seed
from svod.tensor.random import multinomial as multinomial
from svod.tensor.random import normal as normal
from svod.tensor.random import rand as rand
from svod.tensor.random import rand_like as rand_like
from svod.tensor.random import randint as randint
from svod.tensor.random import randn as randn
from svod.tensor.random import randn_like as randn_like
from svod.tensor.random import randperm as randperm
from svod.tensor.tensor import Tensor

cat = spelled(_concatenate)
concat = cat
stack = spelled(_stack)
tensor = Tensor


def _forward(name: str, method: str) -> Callable[..., Any]:
    called = getattr(Tensor, method)

    def function(x: Any, /, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Tensor):
            x = _beside(x, args[0]) if args else tensor_of(x)
        return called(x, *args, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = called.__doc__
    return function


def _beside(value: Any, other: Any) -> Tensor:
    """A first operand that is a number takes the dtype of the tensor it stands beside."""
    if isinstance(other, Tensor) and isinstance(value, (int, float)):
        kind = _result_type(other.dtype, value)
        return wrap(scalar_node(value, kind), other._device)
    return tensor_of(value)


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
    "positive": "__pos__",
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
    "matmul dot tensordot outer inner mm bmm mv trace kron vecdot linear "
    "reshape flip roll squeeze unsqueeze permute transpose movedim moveaxis swapaxes flatten "
    "ravel tile tril triu diag diagonal diag_embed chunk split tensor_split unbind pad "
    "masked_fill clamp broadcast_to narrow repeat_interleave rot90 "
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


def _define(renamed: dict[str, str], same: str) -> None:
    for name, method in {**{n: n for n in same.split()}, **renamed}.items():
        globals()[name] = _forward(name, method)


_define(_RENAMED, _SAME)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """The object as a tensor; a tensor is returned as it is unless a copy is asked for."""
    if isinstance(obj, Tensor) and not copy:
        return obj.to(dtype=dtype, device=device)
    if copy is False:
        import numpy as np

        if isinstance(obj, np.ndarray):
            return Tensor.from_numpy(obj, dtype=dtype, device=device)
        raise ShapeError(f"asarray: a {type(obj).__name__} needs a copy")
    return Tensor(obj, dtype=dtype, device=device)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array; shared when it can be."""
    return import_dlpack(x, device, copy)


def from_numpy(array: Any, /) -> Tensor:
    """A tensor over the memory of a NumPy array when the layout allows."""
    return Tensor.from_numpy(array)


# -- dtypes ------------------------------------------------------------------------------------


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """x converted to another dtype."""
    return x.to(dtype=dtype_of(dtype), device=device)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of an operation on these tensors, dtypes and Python numbers."""
    found = [v.dtype if isinstance(v, Tensor) else v for v in arrays_and_dtypes]
    return _result_type(*[v if isinstance(v, (bool, int, float)) else dtype_of(v) for v in found])


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion alone takes the first dtype to the second."""
    source = from_.dtype if isinstance(from_, Tensor) else dtype_of(from_)
    target = dtype_of(to)
    return _result_type(source, target) is target


_KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d.kind == "b",
    "signed integer": lambda d: d.kind == "i",
    "unsigned integer": lambda d: d.kind == "u",
    "integral": lambda d: d.kind in "iu",
    "real floating": lambda d: d.kind == "f",
    "complex floating": lambda d: False,
    "numeric": lambda d: d.kind in "iuf",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name such as "integral", or a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ShapeError(f"isdtype: no kind {kind!r}; the kinds are {', '.join(_KINDS)}")
        return _KINDS[kind](dtype_of(dtype))
    return dtype_of(dtype) is dtype_of(kind)


# -- signatures of the standard ----------------------------------------------------------------


def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2."""
    return _select(condition, x1, x2)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Limited to at least min and at most max; without both, x itself."""
    return x if min is None and max is None else x.clamp(min, max)


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance over axes; the divisor is n - correction."""
    return x.var(axis, correction, keepdims)


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation over axes; the divisor is n - correction."""
    return x.std(axis, correction, keepdims)


def expand_dims(x: Tensor, /, axis: Any = 0) -> Tensor:
    """x with a new axis of size 1."""
    return x.unsqueeze(axis)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated, as np.repeat; a tensor of counts is read now."""
    return x.repeat_interleave(repeats, axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it."""
    return x.unbind(axis)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that several shapes broadcast to."""
    return B.broadcast_shapes(*[tuple(s) for s in shapes]) if shapes else ()


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The tensors stretched to their common shape."""
    shape = broadcast_shapes(*[a.shape for a in arrays])
    return tuple([a.expand(shape) for a in arrays])


broadcast_tensors = broadcast_arrays


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Differences of neighbours along an axis, taken n times."""
    if n < 0:
        raise ShapeError(f"diff: n must be 0 or more, not {n}")
    place = axis_of(axis, x.ndim)
    parts = [p for p in (prepend, x, append) if p is not None]
    found = x if len(parts) == 1 else cat(parts, dim=place)
    for _ in range(n):
        size = found.shape[place]
        after = found.narrow(place, 1, max(size - 1, 0)) if size else found
        before = found.narrow(place, 0, max(size - 1, 0)) if size else found
        found = after ^ before if found.dtype is dt.bool_ else after - before
    return found


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of elements that are not zero, one tensor per axis; x is read now."""
    import numpy as np

    if not x.ndim:
        raise ShapeError("nonzero needs at least 1 axis")
    return tuple([Tensor(i) for i in np.nonzero(x.numpy())])


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The values sorted along an axis."""
    return x.sort(axis, descending).values


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sum up to each place; with include_initial, from 0 on."""
    return _cumulative(x, "cumsum", 0, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The product up to each place; with include_initial, from 1 on."""
    return _cumulative(x, "cumprod", 1, axis, dtype, include_initial)


def _cumulative(
    x: Tensor, method: str, start: int, axis: int | None, dtype: Any, include_initial: bool
) -> Tensor:
    if axis is None and x.ndim > 1:
        raise ShapeError(f"cumulative functions need an axis for shape {x.shape}")
    place = axis_of(0 if axis is None else axis, x.ndim)
    found = getattr(x, method)(place, dtype=dtype)
    if not include_initial:
        return found
    shape = [1 if i == place else n for i, n in enumerate(found.shape)]
    return cat([full(shape, start, dtype=found.dtype), found], dim=place)


def embedding(indices: Tensor, weight: Tensor, /) -> Tensor:
    """Rows of a matrix at these indices."""
    return indices.embedding(weight)


def realize(*tensors: Tensor, config: Any = None) -> None:
    """Compute several tensors together."""
    from svod.tensor.realize import realize as run

    run(list(tensors), config)


def prepare(*tensors: Tensor, config: Any = None) -> Any:
    """The plan that computes several tensors together."""
    from svod.tensor.realize import prepare as plan

    return plan(list(tensors), config)


def is_tensor(value: object, /) -> bool:
    """Whether the value is a tensor."""
    return isinstance(value, Tensor)


_HELPERS = {"spelled", "annotations", "Any", "Axis", "Callable", "Scalar", "Sequence", "creation",
            "TYPE_CHECKING", "scalar_node", "tensor_of", "wrap", "axis_of", "dt", "B",
            "import_dlpack", "DTypeError", "ShapeError"}  # fmt: skip
for _name, _value in list(globals().items()):
    if not _name.startswith("_") and _name not in _HELPERS and hasattr(_value, "__code__"):
        globals()[_name] = spelled(_value)
__all__ = sorted(n for n in globals() if not n.startswith("_") and n not in _HELPERS)
