"""The wrapper of public functions: accepts both spellings of keywords, explains wrong arguments.

A call that does not fit its signature, and an error of Python's that bad arguments cause on the
way, end as errors of Svod's that name the function and the argument. Arguments are looked at only
then, except that functions of real numbers refuse complex tensors once there are any. What the
user's own code raises, and what goes wrong below the tensor API, passes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from os import PathLike
from types import FunctionType, NoneType, TracebackType
from typing import Any, TypeVar

import numpy as np

from svod.base.errors import ArgumentError, DTypeError, IndexingError, ShapeError, SvodError
from svod.dtype.types import DType
from svod.tensor.core.complex_support import MODULES, takes_complex

F = TypeVar("F", bound=Callable[..., Any])

_SPELLINGS = (
    ("dim", "axis"),
    ("axis", "dim"),
    ("keepdim", "keepdims"),
    ("keepdims", "keepdim"),
    ("dims", "axes"),
    ("dims", "axis"),
    ("axes", "dims"),
    ("axes", "dim"),
    ("axis", "dims"),
    ("repeats", "dims"),
    ("repetitions", "dims"),
    ("shape", "size"),
    ("sizes", "size"),
    ("stop", "end"),
    ("num", "steps"),
)
_OPERANDS = (("input", "A", "tensors"), ("other", "B"))  # torch's names of the first arguments
_WITHOUT_MEANING = {"non_blocking", "memory_format", "pin_memory"}  # torch's, about memory
_CONVERSION_NAMES = (
    "to cpu cuda clone contiguous copy_ type float double half bfloat16 long int short char byte "
    "bool cfloat cdouble"
)
_CONSTRUCTOR_NAMES = (
    "zeros ones empty full arange linspace logspace eye rand randn normal zeros_like ones_like "
    "empty_like full_like rand_like randn_like scalar_tensor new_zeros new_ones new_full new_empty "
    "new_tensor new_empty_strided empty_strided empty_permuted range"
)
_CONVERSIONS = frozenset(_CONVERSION_NAMES.split())
_CONSTRUCTORS = frozenset(_CONSTRUCTOR_NAMES.split())
_CAUSED = (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError)
_API = ("svod.tensor", "svod.nn", "svod.dtype", "svod.ir.build", "svod.frontend")
_API += ("svod.ir.node", "svod.ir.facts")
_VARARGS, _OPTIONS = 4, 8  # flags of code
_tensor_class: list[type] = []
_complex_class: list[type] = []  # empty until there is a complex tensor


def set_tensor_class(cls: type) -> None:
    """Name the class of tensors."""
    _tensor_class[:] = [cls]


def set_complex_class(cls: type) -> None:
    """Name the class of complex tensors."""
    _complex_class[:] = [cls]


def spelled(function: F) -> F:
    """The function for the public: both spellings of axis keywords, and errors that name the
    argument when one has the wrong type."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = frozenset(code.co_varnames[:count])
    rest = code.co_varnames[count] if code.co_flags & _VARARGS else ""
    takes = {*names, rest}
    renames = {other: own for own, other in _SPELLINGS if own in takes and other not in takes}
    is_of_reals = _is_of_reals(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_of_reals and _complex_class:
            _refuse_complex(function, args, kwargs)
        wants_gradient = False
        if kwargs and not kwargs.keys() <= names:
            args, wants_gradient = _translated(function, names, rest, renames, args, kwargs)
        try:
            found = function(*args, **kwargs)
            return found.requires_grad_() if wants_gradient else found
        except SvodError:
            raise
        except _CAUSED as error:
            found = _explained(function, args, kwargs, error)
            if found is None:
                raise
            raise found from error

    call.is_public = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _translated(
    function: Any,
    names: frozenset[str],
    rest: str,
    renames: dict[str, str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], bool]:
    """Positional arguments of a call with keywords that the function has not, which are changed in
    ``kwargs`` to its own; and whether the result shall be a leaf."""
    for other in renames.keys() & kwargs.keys():
        own = renames[other]
        if own in kwargs:
            raise ArgumentError(f"{function.__name__}() got both {own}= and {other}=")
        kwargs[own] = kwargs.pop(other)
    if kwargs.keys() <= names:
        return args, False
    is_constructor = function.__name__ in _CONSTRUCTORS and "requires_grad" not in names
    wants_gradient = kwargs.pop("requires_grad", False) if is_constructor else False
    if is_constructor or function.__name__ in _CONVERSIONS:
        for name in _WITHOUT_MEANING & kwargs.keys():
            del kwargs[name]
    if not function.__code__.co_flags & _OPTIONS:  # those with **options pass keywords on
        for operands in _OPERANDS[len(args) :]:
            given = [n for n in operands if n in kwargs and n not in names]
            if not given:
                break
            args += (kwargs.pop(given[0]),)
    if rest in kwargs:
        args += (kwargs.pop(rest),)
    return args, wants_gradient


def _is_of_reals(function: Any) -> bool:
    """Whether a function of Svod's own takes real tensors only."""
    module, name = function.__module__ or "", function.__name__
    if not module.startswith("svod") or module.startswith(MODULES):
        return False
    return not takes_complex(name) and not name.startswith("__")


def _refuse_complex(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    cls = _complex_class[0]
    for value in (*args, *kwargs.values()):
        for x in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(x, cls):
                raise DTypeError(f"{function.__name__} takes real numbers, not {x.uop.dtype.name}")


def guard(namespace: dict[str, Any], names: Iterable[str] = ()) -> None:
    """Make the public functions of a module `spelled`: its own, and these names from elsewhere."""
    module = namespace["__name__"]
    listed = set(names)
    for name, member in list(namespace.items()):
        if not isinstance(member, FunctionType) or hasattr(member, "is_public"):
            continue
        if name in listed or (member.__module__ == module and not name.startswith("_")):
            namespace[name] = spelled(member)


def guard_class(cls: type, *methods: str) -> None:
    """Make methods of one of Svod's own classes `spelled`; those of users stay as they are."""
    if cls.__module__.startswith("svod."):
        for name in methods:
            member = cls.__dict__.get(name)
            if isinstance(member, FunctionType) and not hasattr(member, "is_public"):
                setattr(cls, name, spelled(member))


def _explained(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> SvodError | None:
    """The error for the caller, or None where arguments are not what went wrong."""
    trace = error.__traceback__
    inner = None if trace is None else trace.tb_next
    title = _title(function, args)
    if inner is None:  # the call itself
        if not isinstance(error, TypeError):
            return None
        return ArgumentError(f"{title}(){str(error).partition('()')[2] or f': {error}'}")
    blamed = _blamed(function, title, args, kwargs)
    if blamed is not None:
        return blamed
    if not _is_ours(inner):
        return None
    if isinstance(error, AssertionError):
        return None
    is_method = function.__code__.co_varnames[:1] == ("self",)
    shown = [_described(v) for v in args[is_method:]]
    listed = ", ".join(shown + [f"{k}={_described(v)}" for k, v in kwargs.items()])
    text = f"{title}({listed}): {error}"
    if isinstance(error, LookupError):
        return IndexingError(text)
    return (
        ArgumentError(text) if isinstance(error, (AttributeError, TypeError)) else ShapeError(text)
    )


def _title(function: Any, args: tuple[Any, ...]) -> str:
    """The name of a function as its callers know it: a method is one of the class it is called on,
    which inherits it from families and bases that nobody else has heard of."""
    title: str = function.__qualname__.rpartition("<locals>.")[2]
    owner, _, name = title.rpartition(".")
    if not owner:
        return title
    for cls in [type(value) for value in args[:1]] + _tensor_class:
        if any((c.__module__, c.__name__) == (function.__module__, owner) for c in cls.__mro__):
            owner = cls.__name__
            break
    return owner if name == "__init__" else f"{owner}.{name}"


def _is_ours(trace: TracebackType) -> bool:
    """Whether the error was raised by the tensor API, or by NumPy at its hands."""
    is_ours = False
    found: TracebackType | None = trace
    while found is not None:
        name = str(found.tb_frame.f_globals.get("__name__", ""))
        if name.startswith("svod."):
            is_ours = name.startswith(_API)
        elif not name.startswith("numpy"):
            is_ours = False
        found = found.tb_next
    return is_ours


def _blamed(
    function: Any, title: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> SvodError | None:
    """An error for the first argument that is not what the signature says, if there is one."""
    code = function.__code__
    given = dict(zip(code.co_varnames[: code.co_argcount], args, strict=False)) | kwargs
    for name, value in given.items():
        wanted = str(function.__annotations__.get(name, "Any"))
        kinds = _KINDS.get(wanted.removesuffix(" | None"))
        if kinds is None or (value is None and wanted.endswith("None")):
            continue
        is_tensor = wanted.startswith("Tensor")
        if not isinstance(value, tuple(_tensor_class) if is_tensor else kinds):
            what = "a tensor" if is_tensor else wanted
            return DTypeError(
                f"{title}(): {name} must be {what}, not a {type(value).__name__}: {value!r:.60}"
            )
    return None


def _described(value: Any) -> str:
    if _tensor_class and isinstance(value, _tensor_class[0]):
        node = value.uop
        return f"{node.dtype!r}[{','.join([str(n) for n in node.shape])}]"
    if isinstance(value, np.ndarray):
        return f"array of {value.dtype} {value.shape}"
    return f"{value!r:.40}" if isinstance(value, _PLAIN) else f"a {type(value).__name__}"


_PLAIN = (bool, int, float, str, bytes, list, tuple, dict, NoneType)
_KINDS: dict[str, tuple[type, ...]] = {
    "Tensor": (),
    "int": (int, np.integer),
    "float": (int, float, np.number),
    "Scalar": (int, float, np.number),
    "bool": (bool, np.bool_),
    "str": (str,),
    "DType": (DType,),
    "str | Path": (str, PathLike),
    "str | os.PathLike[str]": (str, PathLike),
    "Sequence[int]": (list, tuple),
    "Sequence[Tensor]": (list, tuple),
    "tuple[Any, ...]": (list, tuple),
}
