"""Every torch name with complex inputs: what torch gives, values and gradients, or a refusal.

torch's results are recorded (``complex_cases``). A name that is not said to take complex numbers
(`svod.tensor.core.complex_support`) must refuse them, whatever torch does.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from svod.base.errors import DTypeError
from svod.tensor.core.complex_support import takes_complex
from tests.torch.case import Case, Svod
from tests.torch.complex_cases import (
    COMPLEX_CASES,
    key_of,
    recorded,
    svod_gradients,
    values,
)

# torch's LAPACK reads only the real part of a factor's diagonal; ours is in test_complex_linalg.
# Inputs are not Hermitian, of which gradients of Cholesky factors differ; vectors of eigh may turn.
LEFT_OUT = {"cholesky_inverse", "cholesky_ex", "eigh"}
NO_PRODUCTS = {"scatter", "scatter_", "scatter_reduce"}  # of complex numbers at one place

BY_NAME: dict[str, list[tuple[int, Case]]] = defaultdict(list)
for _place, _case in COMPLEX_CASES:
    BY_NAME[_case.name].append((_place, _case))


@cache
def torch_says() -> dict[str, dict[str, Any]]:
    return recorded()


@cache
def ours() -> Svod:
    return Svod()


@pytest.mark.parametrize("name", sorted(n for n in BY_NAME if not takes_complex(n)))
def test_functions_of_real_numbers_refuse(name: str) -> None:
    for _, case in BY_NAME[name]:
        with pytest.raises(DTypeError):
            values(ours(), case)


@pytest.mark.parametrize("name", sorted(n for n in BY_NAME if takes_complex(n)))
def test_values_and_gradients(name: str) -> None:
    for place, case in BY_NAME[name]:
        said = torch_says()[key_of(place, case)]
        if "values" not in said or name in LEFT_OUT:
            continue
        words = [a for a in (*case.args, *case.options.values()) if isinstance(a, str)]
        if name in NO_PRODUCTS and {*words} & {"multiply", "prod"}:
            with pytest.raises(DTypeError, match="takes real numbers"):
                values(ours(), case)
            continue
        found = [v for v in values(ours(), case) if v.dtype.kind in "fciub"]
        assert len(found) == len(said["values"])
        for a, b in zip(found, said["values"], strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, f"{case}"
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=f"{case}")
        if said.get("gradients") is None:
            continue
        for a, b in zip(svod_gradients(ours(), case), said["gradients"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9, err_msg=f"{case}")
