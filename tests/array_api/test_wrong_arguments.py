"""Functions of the standard called with arguments of every wrong kind: each call ends in a result
or in an error of Svod's own, never in one from inside."""

from __future__ import annotations

import inspect
import random
import zlib
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import svod
from svod import Tensor, linalg
from svod.base.errors import SvodError
from tests.array_api.reference import names

_METHODS = names(
    "det slogdet logdet inverse pinverse cholesky cholesky_solve cholesky_inverse qr svd matrix_exp"
)
_COMMON = [n for n in strict.__all__ if n in dir(svod) and inspect.isfunction(getattr(svod, n))]
FUNCTIONS: dict[str, Any] = {
    **{n: getattr(svod, n) for n in _COMMON},
    **{f"linalg.{n}": getattr(linalg, n) for n in linalg.__all__},
    **{f"Tensor.{n}": getattr(Tensor, n) for n in _METHODS},
}
CALLS = 60
_OURS = ("positional argument", "unexpected keyword", "required keyword", "required positional")


def _values() -> list[Any]:
    return [
        *(None, 1, -7, 2.5, "x", [], [1, 2], (0, 1), (0, 0), {}, object(), True, slice(1)),
        *(float("nan"), 10**30, svod.float32, np.ones((2, 2))),
        *(svod.zeros(()), svod.zeros((0,)), svod.zeros((2, 3)), svod.ones((2, 2))),
        *(svod.zeros((2, 3), dtype=svod.int64), svod.ones((3,), dtype=svod.bool)),
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_errors_of_svod(name: str) -> None:
    function = FUNCTIONS[name]
    choose = random.Random(zlib.crc32(name.encode()))
    parameters = inspect.signature(function).parameters.values()
    options = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    values = _values()
    tensors = [v for v in values if isinstance(v, Tensor)]
    for _ in range(CALLS):
        args = [choose.choice(values) for _ in range(choose.randint(1, 4))]
        if choose.random() < 0.5 or name.startswith("Tensor."):
            args[0] = choose.choice(tensors)
        chosen = {o: choose.choice(values) for o in options if choose.random() < 0.4}
        try:
            _read(function(*args, **chosen))
        except SvodError:
            continue
        except TypeError as error:  # Python's own, for a call that does not fit the signature
            assert any(text in str(error) for text in _OURS), (args, chosen, error)


def _read(result: Any) -> None:
    for each in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(each, Tensor):
            each.numpy()
