"""The svod namespace: what is there, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import svod
from svod.base.errors import DTypeError, SvodError
from tests.tensor.check import Cases, pair

ARRAY_API = (
    "abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 "
    "atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift "
    "bitwise_xor broadcast_arrays broadcast_to can_cast ceil clip concat copysign cos cosh "
    "count_nonzero cumulative_prod cumulative_sum diff divide empty empty_like equal exp "
    "expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full full_like greater "
    "greater_equal hypot iinfo isdtype isfinite isinf isnan less less_equal linspace log log10 "
    "log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose "
    "max maximum mean meshgrid min minimum moveaxis multiply negative nonzero not_equal ones "
    "ones_like permute_dims positive pow prod reciprocal remainder repeat reshape result_type "
    "roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract "
    "sum take take_along_axis tan tanh tensordot tile tril triu trunc unstack var vecdot where "
    "zeros zeros_like e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float32 float64 "
)


def test_the_standard_names_are_there():
    missing = [name for name in ARRAY_API.split() if not hasattr(svod, name)]
    assert not missing
    assert set(ARRAY_API.split()) <= set(dir(svod))
    assert svod.Tensor([1]).__array_namespace__() is svod


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'summ'"):
        svod.summ  # noqa: B018


def test_functions_with_signatures_of_the_standard():
    x, a = pair((3, 4))
    cases = Cases()
    cases.add("clip", svod.clip(x, -1, 1), np.clip(a, -1, 1))
    cases.add("std", svod.std(x, axis=0), a.std(0), rtol=1e-5)
    cases.add("expand_dims", svod.expand_dims(x, axis=1), a[:, None])
    cases.add("repeat", svod.repeat(x, 2, axis=1), np.repeat(a, 2, 1))
    cases.add("diff", svod.diff(x, axis=0), np.diff(a, axis=0))
    cases.add("diff 2", svod.diff(x, n=2), np.diff(a, 2), atol=1e-5)
    cases.add("number first", svod.add(1, x), 1 + a)
    cases.add("number first power", svod.pow(2.0, x), np.float32(2) ** a, rtol=1e-5)
    cases.add("astype", svod.astype(x, svod.int32), a.astype(np.int32))
    left, right = svod.broadcast_arrays(x, svod.Tensor([1.0]))
    cases.add("broadcast", right + left * 0, np.ones_like(a))
    for i, part in enumerate(svod.unstack(x, axis=1)):
        cases.add(f"unstack {i}", part, a[:, i])
    cases.run()
    assert svod.result_type(x, 1.5, svod.float64) is svod.float64
    assert svod.can_cast(svod.int8, svod.int32)
    assert not svod.can_cast(svod.float64, svod.float32)
    assert svod.isdtype(svod.int8, ("integral", svod.bool))
    assert svod.finfo(svod.float32).bits == 32


def test_import_is_light():
    code = (
        "import sys, svod; assert svod.float32; svod.Tensor;"
        "print([m for m in ('llvmlite', 'ml_dtypes', 'torch', 'inspect') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert "llvmlite" not in found
    assert "ml_dtypes" not in found


def test_wrong_arguments_end_in_errors_of_svod():
    """Random methods with random arguments: whatever is refused is refused on purpose."""
    random = np.random.default_rng(0)
    tensors = [
        svod.Tensor([1.0, 2.0]),
        svod.Tensor([[1, 2], [3, 4]]),
        svod.Tensor(1.0),
        svod.zeros(0, 3),
        svod.ones(1, 2, 5, 5),
    ]
    arguments = [0, 1, -1, 5, None, 1.5, "x", (0, 1), (0, 0), [], {}, object(), *tensors]
    reads = "numpy item tolist realize prepare array_view copyin nonzero unique argwhere bincount "
    reads += "masked_select to to_device cpu backward"
    methods = [
        name
        for name in dir(svod.Tensor)
        if not name.startswith("_")
        and callable(getattr(svod.Tensor, name))
        and name not in reads.split()
    ]
    for _ in range(4000):
        name = methods[random.integers(len(methods))]
        tensor = tensors[random.integers(len(tensors))].detach()
        given = [arguments[i] for i in random.integers(len(arguments), size=random.integers(4))]
        try:
            getattr(tensor, name)(*given)
        except SvodError:
            pass
        except TypeError as error:
            assert "argument" in str(error), f"{name} {tensor.shape} {given}: {error}"


def test_the_argument_of_the_wrong_type_is_named():
    with pytest.raises(DTypeError, match=r"embedding\(\): weight must be a tensor, not a int: 3"):
        svod.arange(3).embedding(3)
