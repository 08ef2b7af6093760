"""Modules and functions go by the names that users know: in imports, and in errors."""

from __future__ import annotations

import importlib
import re

import pytest

import svod
from svod import nn

MODULES = (
    "autograd cuda data distributed distributions errors fft func linalg masked nn "
    "nn.functional nn.init nn.utils nn.utils.rnn optim optim.lr_scheduler signal signal.windows "
    "special testing utils utils.data"
)


@pytest.mark.parametrize("name", MODULES.split())
def test_a_module_is_imported_by_the_name_it_is_used_by(name):
    found = importlib.import_module(f"svod.{name}")
    used = svod
    for part in name.split("."):
        used = getattr(used, part)
    assert used is found and found.__doc__


def test_from_imports_give_the_same_objects():
    from svod.errors import ShapeError
    from svod.fft import rfft
    from svod.linalg import solve
    from svod.optim import AdamW
    from svod.optim.lr_scheduler import CosineAnnealingLR
    from svod.signal.windows import hann

    assert AdamW is svod.optim.AdamW is nn.optim.AdamW
    assert CosineAnnealingLR is svod.optim.CosineAnnealingLR
    assert (solve, rfft) == (svod.linalg.solve, svod.fft.rfft)
    assert hann is svod.signal.windows.hann and ShapeError is svod.errors.ShapeError


def test_dtypes_go_by_torchs_short_names_too():
    short = ["half", "float", "double", "cfloat", "cdouble", "short", "int", "long"]
    long = ["float16", "float32", "float64", "complex64", "complex128", "int16", "int32", "int64"]
    assert [getattr(svod, name) for name in short] == [getattr(svod, name) for name in long]
    assert svod.zeros(2, dtype=svod.long).dtype == svod.int64
    assert svod.ones(2, 3).shape == svod.Size([2, 3])
    assert set(short) <= set(dir(svod)) and not set(short) & set(svod.__all__)


CALLS = {
    "Tensor.sum()": lambda x: x.sum(bogus=1),
    "Tensor.numpy()": lambda x: x.numpy(1),
    "Tensor.masked_fill()": lambda x: x.masked_fill(1),
    "Tensor.softmax()": lambda x: svod.Tensor.softmax(3),
    "ComplexTensor.angle()": lambda x: x.to(svod.complex64).angle(1, 2),
    "Linear()": lambda x: nn.Linear(),
    "Linear.forward()": lambda x: nn.Linear(3, 4)(x, x),
    "BatchNorm2d.forward()": lambda x: nn.BatchNorm2d(3)(bogus=x),
    "BatchNorm2d()": lambda x: nn.BatchNorm2d(bogus=3),
    "SGD()": lambda x: svod.optim.SGD(),
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_name_what_was_called(name):
    with pytest.raises(TypeError, match="^" + re.escape(name)):
        CALLS[name](svod.ones(3))


def test_every_method_of_a_tensor_is_named_as_one():
    """Methods are written in families, which nobody else has heard of."""
    x = svod.ones(3)
    for name in dir(svod.Tensor):
        method = getattr(svod.Tensor, name)
        if name.startswith("_") or not hasattr(method, "is_public"):
            continue
        with pytest.raises(TypeError) as found:
            method(x, no_such_keyword=1)
        title = str(found.value).partition("(")[0]
        assert "." not in title or title.startswith("Tensor."), found.value


def test_a_sequence_times_a_whole_number_is_repeated_as_in_python():
    three = svod.tensor(1) + 2
    assert "ab" * three == "ababab" and [0, 1] * three == [0, 1] * 3 and (7,) * three == (7,) * 3
    assert ([1.0, 2.0] * svod.tensor(2.5)).tolist() == [2.5, 5.0]
    with pytest.raises(TypeError, match="cannot be combined with a str"):
        "ab" * svod.tensor(2.5)


def test_a_state_that_does_not_fit_is_the_error_that_torch_users_catch():
    model = nn.Linear(2, 2)
    for state in ({"weight": svod.ones(2, 2)}, {**model.state_dict(), "bias": svod.ones(3)}):
        with pytest.raises(RuntimeError, match="bias"):
            model.load_state_dict(state)
