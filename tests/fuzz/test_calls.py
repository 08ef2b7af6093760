"""Every public function takes bad arguments with an error of Svod's, or does something sensible.

``SVOD_FUZZ_CALLS=200`` makes more calls of each.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from svod.base.errors import ArgumentError, SvodError
from tests.fuzz import calls

CALLS = int(os.environ.get("SVOD_FUZZ_CALLS", "10"))
PARTS = 8
PUBLIC = calls.public()


@pytest.mark.parametrize("part", range(PARTS))
def test_bad_arguments_end_in_errors_of_svod(
    part: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name in list(PUBLIC)[part::PARTS]:
        wrong += calls.failures(name, PUBLIC[name], CALLS, realized=5)
    assert not wrong, "\n".join(wrong[:20])


def test_the_public_functions_are_found() -> None:
    wanted = {
        "svod.Tensor", "svod.sum", "svod.scan", "svod.jit", "svod.grad", "svod.Tensor.reshape",
        "svod.Tensor.__getitem__", "svod.nn.Linear", "svod.nn.LSTM", "svod.nn.optim.Adam",
        "svod.nn.init.xavier_uniform_", "svod.nn.state.load_file",
    }  # fmt: skip
    assert wanted <= set(PUBLIC)
    assert len(PUBLIC) > 600


def test_an_error_that_no_argument_explains_is_reported() -> None:
    def broken(x: int) -> None:
        raise KeyError(x)

    (wrong,) = calls.failures("svod.broken", broken, 1, 1)
    assert "KeyError" in wrong and "test_calls.py" in wrong


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda s: s.zeros(3).sum(1, 2, 3, 4, 5, 6), TypeError, r"sum\(\) takes"),
        (lambda s: s.nn.Linear(3), TypeError, r"Linear\(\) missing .*out_features"),
        (lambda s: s.nn.Linear(3, "a"), TypeError, r"a size must be a whole number, not 'a'"),
        (lambda s: s.nn.LSTM(2, 3)(s.zeros(2)), ValueError, "LSTM"),
        (lambda s: s.matmul(), TypeError, r"matmul\(\) needs a tensor"),
        (lambda s: s.zeros(2, 3)[5], IndexError, "5"),
        (lambda s: s.load_plan(3), TypeError, "path must be str"),
        (lambda s: s.nn.optim.SGD(3), TypeError, "SGD"),
        (lambda s: s.grad(3), TypeError, "grad takes a function"),
    ],
)  # fmt: skip
def test_errors_name_the_function_and_the_argument(call, kind, text) -> None:
    import svod

    with pytest.raises(kind, match=text) as caught:
        call(svod)
    assert isinstance(caught.value, SvodError)


def test_what_the_users_code_raises_passes() -> None:
    import svod

    class Odd(svod.nn.Module):
        def forward(self, x):
            return x.no_such_method()

    def body(carry, x):
        raise KeyError("mine")

    with pytest.raises(AttributeError) as plain:
        Odd()(svod.zeros(3))
    assert not isinstance(plain.value, ArgumentError)
    with pytest.raises(KeyError, match="mine"):
        svod.scan(body, svod.zeros(2), svod.zeros(3, 2))
    with pytest.raises(KeyError, match="mine"):
        svod.grad(lambda x: body(x, x))(svod.zeros(2))
