"""Values that few arguments need: kernels branch over them and keep the bits of a select."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from svod import Tensor
from svod.codegen.target import KernelCode
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from tests.codegen.decompose_harness import NUMPY, compiled, lower
from tests.codegen.test_decompose import quiet, same_bits, specials
from tests.codegen.test_nvptx import kernels, ptx, stored
from tests.schedule.graphs import bodies, code

__all__ = ["quiet"]  # a fixture

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "SIN": lambda x, y: x.sin(),
    "COS": lambda x, y: x.cos(),
    "TAN": lambda x, y: x.tan(),
    "LOG1P": lambda x, y: x.log1p(),
    "ASINH": lambda x, y: x.asinh(),
    "ACOSH": lambda x, y: x.acosh(),
    "ATANH": lambda x, y: x.atanh(),
    "POW": lambda x, y: x.pow(y),
    "FMOD": lambda x, y: x.fmod(y),
}
BOTH = [dt.float32, dt.float64]


def arguments(dtype: DType, rare: bool) -> tuple[Any, Any]:
    """Usual values, and among them some of every other kind."""
    kind = NUMPY[dtype]
    generator = np.random.default_rng(0)
    x = generator.uniform(0.1, 100, 4000).astype(kind)
    y = generator.uniform(0.1, 4, 4000).astype(kind)
    if rare:
        every = specials(kind)
        places = generator.choice(4000, len(every), replace=False)
        x[places] = every
        y[places[::2]] = generator.permutation(every)[: len(places[::2])]
        x[-3:] = -x[-3:]  # behind the last whole vector
    return x, y


def selected(name: str, dtype: DType, *arrays: Any) -> Any:
    """The function as one formula without branches."""
    arrays = arrays if name in ("POW", "FMOD") else arrays[:1]
    sources = [dtype] * len(arrays)
    return compiled(lower(O.BY_NAME[name], dtype, sources), sources)(*arrays)


@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("dtype", BOTH, ids=repr)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_branch_gives_the_bits_of_a_select(name: str, dtype: DType, rare: bool) -> None:
    for size in (1, 7, 64, 3999, 4000):
        x, y = [a[-size:] for a in arguments(dtype, rare)]
        got = FUNCTIONS[name](Tensor(x), Tensor(y)).numpy()
        same_bits(got, selected(name, dtype, x, y))


def test_one_argument_of_several_functions() -> None:
    x, _ = arguments(dt.float32, True)
    x = x[np.isfinite(x)]
    t = Tensor(x)
    got = (t.sin() + t.cos() * t.sin().cos()).numpy()
    sine = selected("SIN", dt.float32, x)
    exact = sine + selected("COS", dt.float32, x) * selected("COS", dt.float32, sine)
    same_bits(got, exact)


@pytest.mark.parametrize("axis", [0, 1])
def test_inside_sums(axis: int) -> None:
    x = np.random.default_rng(0).uniform(-100, 100, (33, 70)).astype(np.float32)
    x[::5, ::7] *= 2.0**40
    got = Tensor(x).sin().sum(axis).numpy()
    exact = np.sin(x.astype(np.float64)).sum(axis)
    assert np.abs(got - exact).max() < 1e-5


def generated(tensor: Tensor) -> KernelCode:
    (body,) = bodies(tensor)
    return code(body)


def test_what_is_rare_stands_behind_the_branch() -> None:
    text = generated(Tensor(np.ones(4096, np.float32)).sin()).text().function
    usual, rare = re.split(r"^rare\d+:", text, flags=re.M)
    assert "double" not in usual and "!prof !1" in usual
    rare, after = re.split(r"^usual\d+:", rare, flags=re.M)
    assert "double" in rare and "double" not in after


def test_a_rare_case_within_a_rare_case() -> None:
    ones = np.ones(4096, np.float32)
    text = generated(Tensor(ones).pow(Tensor(ones))).text().function
    outer, inner = re.findall(r"^rare(\d+):", text, flags=re.M)
    blocks = [f"rare{outer}:", f"rare{inner}:", f"usual{inner}:", f"usual{outer}:"]
    places = [text.index(block) for block in blocks]
    assert places == sorted(places)


@pytest.mark.parametrize("dtype", BOTH, ids=repr)
@pytest.mark.parametrize("name", ["SIN", "COS", "TAN", "POW", "FMOD"])
def test_branches_on_a_gpu(name: str, dtype: DType) -> None:
    x, y = stored(512, 512, dtype=dtype), stored(512, 512, dtype=dtype)
    (kernel,) = kernels(FUNCTIONS[name](x, y))
    assert re.search(r"@%p\d+ bra", ptx(kernel))
