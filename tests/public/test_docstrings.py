"""`help` of every public name: a docstring, every argument, and an example that runs.

All examples run in one process: a part of them here, the whole in the long lane.
"""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import svod
from svod.public import PUBLIC
from svod.reference import docstrings, texts
from tests.public.test_surface import module_of

# Names without a text of their own: constants, dtypes, modules, aliases of types.
SILENT = {"svod.Tensor.uop", "svod.onnx.Host", "svod.onnx.Value", "svod.testing.TOLERANCES"}
SILENT |= {"svod.Size", "svod.knobs", "svod.__array_namespace_info__"}
SHARE = 12  # one of so many examples runs in the ordinary lane
NEEDS_TORCH = ("svod.torch", "svod.hub")


@cache
def described() -> dict[str, Any]:
    """Everything public that `help` has to explain, by its full name."""
    found = {}
    for module in PUBLIC:
        if module in NEEDS_TORCH and find_spec("torch") is None:
            continue
        where = module_of(module)
        for name in PUBLIC[module].split():
            if name == "torch":
                continue
            value = inspect.getattr_static(where, name) if isinstance(where, type) else None
            value = getattr(where, name) if value is None else value
            is_data = isinstance(value, (ModuleType, svod.DType, float, str, dict))
            if not is_data and value is not None and f"{module}.{name}" not in SILENT:
                found[f"{module}.{name}"] = value
    return found


def text_of(value: Any) -> str:
    return inspect.getdoc(getattr(value, "__func__", value)) or ""


def names(failing: Iterator[str]) -> list[str]:
    return sorted(failing)


def test_every_name_has_a_docstring():
    assert len(described()) > 1700
    assert names(n for n, v in described().items() if len(text_of(v).split()) < 1) == []


def test_every_name_has_an_example():
    assert names(n for n, v in described().items() if ">>>" not in text_of(v)) == []


def test_every_argument_is_explained():
    missing = []
    for name, value in described().items():
        target = getattr(value, "__func__", value)
        text = text_of(value)
        for argument in docstrings.parameters(target) if callable(target) else ():
            if not re.search(rf"^    {argument}: \S", text, re.MULTILINE):
                missing.append(f"{name}({argument})")
    assert missing == []


def test_arguments_are_those_of_the_signature():
    for name in ("svod.cumsum", "svod.nn.Conv2d", "svod.nn.ReLU", "svod.Tensor.add_"):
        value = described()[name]
        known = set(docstrings.parameters(value))
        assert known == set(inspect.signature(value).parameters) - {"self"}, name


def test_texts_of_arguments_are_for_arguments_that_exist():
    """A text for a function or an argument that is not there is a slip."""
    used = {
        (name.rpartition(".")[2], argument)
        for name, value in described().items()
        if callable(target := getattr(value, "__func__", value))
        for argument in docstrings.parameters(target)
    }  # fmt: skip
    functions = {name for name, _ in used}
    if find_spec("torch") is None:  # these cannot be imported
        functions |= {name for module in NEEDS_TORCH for name in PUBLIC[module].split()}
    _, named, _ = texts._arguments()
    assert sorted({f for f, _ in named} - functions) == []
    assert {"dim", "dtype", "reduction"} <= {a for _, a in used}


class Checker(doctest.OutputChecker):
    """Numbers may differ in the last digits, which differ from machine to machine."""

    NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")

    def check_output(self, want: str, got: str, flags: int) -> bool:
        if super().check_output(want, got, flags):
            return True
        wanted, found = self.NUMBER.findall(want), self.NUMBER.findall(got)
        if len(wanted) != len(found):
            return False
        same = [re.sub(r"\s+", "", self.NUMBER.sub("", t)) for t in (want, got)]
        close = np.allclose([float(n) for n in wanted], [float(n) for n in found], 1e-5, 1e-6)
        return same[0] == same[1] and bool(close)


def run(wanted: list[str]) -> list[str]:
    """The examples that do not print what they say."""
    parser = doctest.DocTestParser()
    failing = []
    for name in wanted:
        runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=doctest.ELLIPSIS)
        test = parser.get_doctest(text_of(described()[name]), {"svod": svod}, name, None, 0)
        report: list[str] = []
        if runner.run(test, out=report.append).failed:
            failing.append("".join(report))
    return failing


def examples() -> list[str]:
    """Names with an example of their own, in an order that mixes modules."""
    seen: dict[str, str] = {}
    for name, value in described().items():
        seen.setdefault(text_of(value), name)
    return sorted(seen.values(), key=lambda name: name[::-1])


def test_examples_print_what_they_say():
    found = run(examples()[::SHARE])
    assert not found, "\n".join(found)


@pytest.mark.long
def test_all_examples_print_what_they_say():
    found = run(examples())
    assert not found, "\n".join(found)


def test_no_example_shows_an_error():
    shown = [text for entries in texts.examples().values() for text in entries.values()]
    assert len(shown) > 1000
    assert [text for text in shown if re.search(r"\w+Error: | lazy \(", text)] == []


def test_an_example_that_is_wrong_is_found():
    parser = doctest.DocTestParser()
    for want, is_right in (("Tensor(2.0, dtype", False), ("Tensor(3., dtype", True)):
        text = f">>> svod.tensor(3.0)\n{want}=float32, device=CPU)\n"
        runner = doctest.DocTestRunner(Checker(), verbose=False)
        test = parser.get_doctest(text, {"svod": svod}, "x", None, 0)
        assert (runner.run(test, out=lambda text: None).failed == 0) == is_right


def test_no_text_is_kept_where_python_keeps_none():
    program = "import svod; svod.ones(1); print(svod.Tensor.abs.__doc__, svod.exp.__doc__)"
    command = [sys.executable, "-OO", "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0 and "Example" not in found.stdout, found.stderr
