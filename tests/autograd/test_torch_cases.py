"""What programs with svod.autograd and svod.func give, against what torch gave for the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.autograd.cases import CASES
from tests.autograd.libraries import FILE, plain, svod


@pytest.fixture(scope="module")
def recorded() -> Any:
    with np.load(FILE) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str, recorded: Any) -> None:
    found = [plain(value) for value in CASES[name](svod())]
    wanted = [recorded[key] for key in sorted(recorded) if key.rpartition(" ")[0] == name]
    assert len(found) == len(wanted)
    for number, (value, expected) in enumerate(zip(found, wanted, strict=True)):
        assert value.shape == expected.shape, number
        assert value.dtype.kind == expected.dtype.kind, (number, value, expected)
        if value.dtype.kind == "f":
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12, err_msg=str(number))
        else:
            assert (value == expected).all(), (number, value, expected)
