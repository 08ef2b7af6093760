"""The functions of the ``svod`` namespace, with the array API's names and signatures.

Most forward to the method of the same meaning; where the standard's signature differs from
torch's, the function is written out. Both spellings of axis keywords are accepted here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype.convert import FloatInfo, IntegerInfo, dtype_of
from svod.dtype.convert import finfo as _finfo
from svod.dtype.convert import iinfo as _iinfo
from svod.dtype.promotion import result_type as _result_type
from svod.dtype.types import DType
from svod.ir import build as B
from svod.runtime.plan import ExecutionPlan
from svod.tensor.core.tensor_core import Axis, real_axis, shape_of, spelled, tensor_of
from svod.tensor.core.variable import Variable
from svod.tensor.gradients.autograd import custom_gradient as custom_gradient
from svod.tensor.gradients.autograd import enable_grad as enable_grad
from svod.tensor.gradients.autograd import grad as grad
from svod.tensor.gradients.autograd import inference_mode as inference_mode
from svod.tensor.gradients.autograd import is_grad_enabled as is_grad_enabled
from svod.tensor.gradients.autograd import no_grad as no_grad
from svod.tensor.gradients.autograd import set_grad_enabled as set_grad_enabled
from svod.tensor.gradients.autograd import value_and_grad as value_and_grad
from svod.tensor.namespace.array_api import STANDARD
from svod.tensor.namespace.method_functions import FORWARDS, forward
from svod.tensor.namespace.torch_functions import TORCH_NAMES
from svod.tensor.ops.creation import arange as arange
from svod.tensor.ops.creation import empty as empty
from svod.tensor.ops.creation import empty_like as empty_like
from svod.tensor.ops.creation import eye as eye
from svod.tensor.ops.creation import full as full
from svod.tensor.ops.creation import full_like as full_like
from svod.tensor.ops.creation import linspace as linspace
from svod.tensor.ops.creation import logspace as logspace
from svod.tensor.ops.creation import meshgrid as meshgrid
from svod.tensor.ops.creation import ones as ones
from svod.tensor.ops.creation import ones_like as ones_like
from svod.tensor.ops.creation import zeros as zeros
from svod.tensor.ops.creation import zeros_like as zeros_like
from svod.tensor.ops.custom_function import custom_function as custom_function
from svod.tensor.ops.elementwise import select as _select
from svod.tensor.ops.joining import concatenate as _concatenate
from svod.tensor.ops.matrix_products import einsum as einsum
from svod.tensor.ops.numpy_interchange import import_dlpack
from svod.tensor.random.rejection_sampling import poisson as poisson
from svod.tensor.random.threefry import Generator as Generator
from svod.tensor.random.threefry import bernoulli as bernoulli
from svod.tensor.random.threefry import get_rng_state as get_rng_state
from svod.tensor.random.threefry import initial_seed as initial_seed
from svod.tensor.random.threefry import manual_seed as manual_seed
from svod.tensor.random.threefry import multinomial as multinomial
from svod.tensor.random.threefry import normal as normal
from svod.tensor.random.threefry import rand as rand
from svod.tensor.random.threefry import rand_like as rand_like
from svod.tensor.random.threefry import randint as randint
from svod.tensor.random.threefry import randint_like as randint_like
from svod.tensor.random.threefry import randn as randn
from svod.tensor.random.threefry import randn_like as randn_like
from svod.tensor.random.threefry import randperm as randperm
from svod.tensor.random.threefry import set_rng_state as set_rng_state
from svod.tensor.recording.jit import jit as jit
from svod.tensor.recording.realize import prepare_batch as _prepared
from svod.tensor.recording.realize import realize_batch as _realized
from svod.tensor.recording.scan import scan as scan
from svod.tensor.tensor import Tensor

cat = concatenate = spelled(_concatenate)


@spelled
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


@spelled
def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array; shared when it can be."""
    return import_dlpack(x, device, copy)


def from_numpy(array: Any, /) -> Tensor:
    """A tensor over the memory of a NumPy array when the layout allows."""
    return Tensor.from_numpy(array)


# -- dtypes ------------------------------------------------------------------------------------


@spelled
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """x converted to another dtype; complex numbers stay complex, as the standard says."""
    if x.dtype.is_complex and dtype_of(dtype).kind in "iuf":
        raise DTypeError(f"astype: {x.dtype.name} to {dtype_of(dtype).name}: take real or imag")
    return x.to(dtype=dtype_of(dtype), device=device)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of an operation on these tensors, dtypes and Python numbers."""
    found = [v.dtype if isinstance(v, Tensor) else v for v in arrays_and_dtypes]
    return _result_type(
        *[v if isinstance(v, (bool, int, float, complex)) else dtype_of(v) for v in found]
    )


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion alone takes the first dtype to the second."""
    source = from_.dtype if isinstance(from_, Tensor) else dtype_of(from_)
    target = dtype_of(to)
    return _result_type(source, target) is target


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a float dtype, given itself or as a tensor of it."""
    return _finfo(type.dtype if isinstance(type, Tensor) else dtype_of(type))


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype, given itself or as a tensor of it."""
    return _iinfo(type.dtype if isinstance(type, Tensor) else dtype_of(type))


_KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d.kind == "b",
    "signed integer": lambda d: d.kind == "i",
    "unsigned integer": lambda d: d.kind == "u",
    "integral": lambda d: d.kind in "iu",
    "real floating": lambda d: d.kind == "f",
    "complex floating": lambda d: d.kind == "c",
    "numeric": lambda d: d.kind in "iufc",
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


def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """x1 where the condition holds, else x2; of a condition alone, the places where it holds."""
    if x1 is None and x2 is None:
        return tensor_of(condition).nonzero(as_tuple=True)
    return _select(condition, x1, x2)


@spelled
def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Limited to at least min and at most max; without both, x itself."""
    return x if min is None and max is None else x.clamp(min, max)


@spelled
def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance over axes; the divisor is n - correction."""
    return x.var(axis, correction, keepdims)


@spelled
def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation over axes; the divisor is n - correction."""
    return x.std(axis, correction, keepdims)


@spelled
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that several shapes broadcast to."""
    return B.broadcast_shapes(*[shape_of((s,)) for s in shapes]) if shapes else ()


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The tensors stretched to their common shape."""
    tensors = [tensor_of(a) for a in arrays]
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple([t.expand(shape) for t in tensors])


broadcast_tensors = broadcast_arrays


@spelled
def diff(
    x: Tensor, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Differences of neighbours along an axis, taken n times."""
    return x.diff(n, axis, prepend, append)


@spelled
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The values sorted along an axis."""
    return x.sort(axis, descending).values


@spelled
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sum up to each place; with include_initial, from 0 on."""
    return _cumulative(x, "cumsum", 0, axis, dtype, include_initial)


@spelled
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
    place = real_axis(0 if axis is None else axis, x.shape, "a running fold")
    found = getattr(x, method)(place, dtype=dtype)
    if not include_initial:
        return found
    shape = [1 if i == place else n for i, n in enumerate(found.shape)]
    return cat([full(shape, start, dtype=found.dtype), found], dim=place)


def embedding(indices: Tensor, weight: Tensor, /) -> Tensor:
    """Rows of a matrix at these indices."""
    return indices.embedding(weight)


def realize(*tensors: Tensor | Iterable[Tensor], config: Any = None) -> None:
    """Compute several tensors together, given one by one or in lists."""
    _realized(_each(tensors), config)


def prepare(
    *tensors: Tensor | Iterable[Tensor],
    config: Any = None,
    inputs: dict[str, Tensor] | Sequence[Tensor] | None = None,
    outputs: Sequence[str] | None = None,
    freeze: bool = False,
    target: str | None = None,
) -> ExecutionPlan:
    """The plan that computes several tensors together; inputs and outputs may be given names.

    Tensors are given one by one or in lists. With ``freeze=True`` memory that is no input is
    constant: weights are folded and packed once.
    With ``target="aarch64-linux+dotprod"`` the plan is for such a machine, to save or export it.
    """
    names: dict[str, Any] = {"inputs": inputs, "outputs": outputs, "freeze": freeze}
    return _prepared(_each(tensors), config, **names, target=target)


def _each(given: tuple[Tensor | Iterable[Tensor], ...]) -> list[Tensor]:
    return [t for g in given for t in ([g] if isinstance(g, Tensor) else g)]


def is_tensor(value: object, /) -> bool:
    """Whether the value is a tensor."""
    return isinstance(value, Tensor)


_HIDDEN = {  # what this file uses but does not offer
    *(
        "Any",
        "Axis",
        "Callable",
        "DType",
        "ExecutionPlan",
        "Iterable",
        "Sequence",
        "FloatInfo",
        "IntegerInfo",
        "FunctionType",
        "DTypeError",
        "ShapeError",
        "axis_of",
        "dtype_of",
    ),
    *("forward", "wraps"),
    *("import_dlpack", "real_axis", "shape_of", "spelled"),
    "tensor_of",
}


# Functions of the standard that torch has with another meaning, and what in a call says that
# torch's is meant: one of these keywords, or so many arguments by position as the standard has not.
_TORCH_FORMS = {
    "max": ("dim keepdim other", 4),
    "min": ("dim keepdim other", 4),
    "sort": ("dim", 2),
    "std": ("dim keepdim unbiased", 2),
    "var": ("dim keepdim unbiased", 2),
    "nonzero": ("as_tuple", 2),
}


def _either(name: str, standard: Callable[..., Any]) -> Callable[..., Any]:
    """torch's function where the call has torch's keywords, else the standard's."""
    words, places = _TORCH_FORMS[name]
    keywords, method = frozenset(words.split()), forward(name, name)

    @wraps(standard)
    def call(*args: Any, **options: Any) -> Any:
        is_torch = len(args) >= places or not keywords.isdisjoint(options)
        if is_torch or (places == 4 and len(args) == 2 and isinstance(args[1], Tensor)):
            return method(*args, **options)
        return standard(*args, **options)

    call.is_public = True  # type: ignore[attr-defined]
    return call


def _public(value: Any) -> Any:
    value = getattr(value, "__wrapped__", value) if hasattr(value, "cache_info") else value
    is_plain = isinstance(value, FunctionType) and not hasattr(value, "is_public")
    return spelled(value) if is_plain else value


NAMESPACE: dict[str, Any] = {
    "Variable": spelled(Variable),
    **TORCH_NAMES,
    **FORWARDS,
    **{
        name: _public(value)
        for name, value in globals().items()
        if callable(value) and not name.startswith("_") and name not in _HIDDEN
    },
    **{name: _public(value) for name, value in STANDARD.items()},
}
NAMESPACE |= {name: _either(name, NAMESPACE[name]) for name in _TORCH_FORMS}
