"""Every name of the standard is there, with the parameters the standard gives it."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

import array_api_strict as strict
import pytest

import svod
from svod import Tensor
from tests.array_api import reference

# Names of the reference that are its own.
_OWN = {"ArrayAPIStrictFlags", "Device", "ModuleType", "fft", "linalg"}
_LOOSE = {"Array.to_device"}  # the reference takes stream by place, the standard by keyword
_ARRAY = type(strict.asarray(1))
_PLAIN = set(dir(object)) | {"__buffer__", "__module__", "__dict__", "__weakref__", "__hash__"}


def _functions() -> list[tuple[str, Any, Any]]:
    spaces = [("", strict, svod), ("linalg.", strict.linalg, svod.linalg),
              ("fft.", strict.fft, svod.fft)]  # fmt: skip
    found = []
    for prefix, theirs, ours in spaces:
        for name in theirs.__all__:
            is_left_out = not prefix and name in _OWN
            if not is_left_out and "flags" not in name and not name.startswith("__"):
                found.append((prefix + name, getattr(theirs, name), ours))
    members = [n for n in vars(_ARRAY) if n not in _PLAIN]
    public = [n for n in members if not n.startswith("_") or n.startswith("__")]
    return found + [("Array." + n, getattr(_ARRAY, n), Tensor) for n in public]


@pytest.mark.parametrize("name, theirs, space", _functions(), ids=[f[0] for f in _functions()])
def test_name_and_parameters(name: str, theirs: Any, space: Any) -> None:
    short = name.rpartition(".")[2]
    assert hasattr(space, short), f"svod has no {name}"
    ours = getattr(space, short)
    if not inspect.isfunction(theirs):
        return
    wanted = list(inspect.signature(theirs).parameters.values())
    given = inspect.signature(ours).parameters
    order = list(given.values())
    for place, each in enumerate(wanted):
        if each.kind is Parameter.KEYWORD_ONLY:
            assert each.name in given, f"{name} does not take {each.name}="
            allowed = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
            assert given[each.name].kind in allowed
        elif each.kind is Parameter.VAR_POSITIONAL:
            assert order[place].kind is Parameter.VAR_POSITIONAL
        else:
            assert len(order) > place, f"{name} takes no argument {each.name}"
            if each.kind is Parameter.POSITIONAL_OR_KEYWORD and name not in _LOOSE:
                assert order[place].name == each.name
                assert order[place].kind is Parameter.POSITIONAL_OR_KEYWORD
        if each.default is not Parameter.empty and each.name in given:
            assert given[each.name].default is not Parameter.empty


def test_constants_and_versions() -> None:
    assert svod.__array_api_version__ == "2025.12"
    assert (svod.e, svod.pi, svod.inf) == (strict.e, strict.pi, strict.inf)
    assert svod.nan != svod.nan and svod.newaxis is None
    x = Tensor([1.0])
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        assert x.__array_namespace__(api_version=version) is svod
    with pytest.raises(ValueError, match=r"2020\.1"):
        x.__array_namespace__(api_version="2020.1")


def test_the_reference_is_the_standard() -> None:
    assert reference.strict.__array_api_version__ == "2025.12"
