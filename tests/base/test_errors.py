from __future__ import annotations

import pickle

import pytest

from svod.base import errors
from svod.base.errors import SvodError

BUILTIN: dict[str, type[BaseException]] = {
    "ShapeError": ValueError,
    "ArgumentError": TypeError,
    "DTypeError": TypeError,
    "RangeError": OverflowError,
    "ComplexOperand": TypeError,
    "IndexRangeError": IndexError,
    "IndexingError": IndexError,
    "DeviceError": RuntimeError,
    "ConfigError": ValueError,
    "CompileError": RuntimeError,
    "RenderError": RuntimeError,
    "CreateProgramError": RuntimeError,
    "VerifyError": RuntimeError,
    "RewriteLoopError": RuntimeError,
    "GraphError": ValueError,
    "BufferNotFound": KeyError,
    "AllocationError": MemoryError,
    "EmptySchedule": ValueError,
    "BatchOutputMismatch": RuntimeError,
    "VariableError": ValueError,
    "ExecutionError": RuntimeError,
    "LinAlgError": RuntimeError,
    "UnsupportedError": NotImplementedError,
    "CacheError": RuntimeError,
    "PlanFormatError": ValueError,
    "UntrustedPlanError": PermissionError,
    "WriteError": RuntimeError,
}

FAMILY = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, SvodError) and each is not SvodError
]


def make(kind: type[SvodError]) -> SvodError:
    return kind(3, 2) if kind is errors.BatchOutputMismatch else kind("the text")


def test_the_family_is_complete() -> None:
    assert {kind.__name__ for kind in FAMILY} == set(BUILTIN)


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_each_error_is_also_the_builtin_a_user_expects(kind: type[SvodError]) -> None:
    assert issubclass(kind, BUILTIN[kind.__name__])
    assert kind.__doc__
    with pytest.raises(BUILTIN[kind.__name__]):
        raise make(kind)


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_each_error_survives_pickling(kind: type[SvodError]) -> None:
    error = make(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) != ""
    assert vars(copy) == vars(error)


def test_the_texts() -> None:
    assert str(errors.ShapeError("shapes (2,) and (3,) differ")) == "shapes (2,) and (3,) differ"
    assert str(errors.BufferNotFound(17)) == "no buffer 17"
    assert str(errors.BufferNotFound(17, "the plan")) == "no buffer 17 in the plan"
    assert (
        str(errors.BatchOutputMismatch(3, 2))
        == "the plan has 2 outputs, but 3 tensors wait for one"
    )
    assert str(errors.VerifyError("two stores")) == "two stores"
    verify = errors.VerifyError("two stores", stage="rangeify", node="STORE(x)")
    assert str(verify) == "after rangeify: two stores\n  at STORE(x)"
    assert (verify.stage, verify.node) == ("rangeify", "STORE(x)")
    unsupported = errors.UnsupportedError("complex64", kind="dtype")
    assert str(unsupported) == "unsupported dtype: complex64"
    assert unsupported.kind == "dtype"


def test_warnings_have_their_own_category() -> None:
    assert issubclass(errors.SvodWarning, UserWarning)
