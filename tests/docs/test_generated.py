"""The generated parts of the documentation say what the code says."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


@pytest.mark.parametrize("name", sorted(generate.PARTS))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    path, text = generate.updated(name)
    assert path.read_text(encoding="utf-8") == text, "run: python docs/generate.py"


def test_every_op_is_listed() -> None:
    from svod.ir import ops as O

    listed = set(re.findall(r"^\| `([A-Z_0-9]+)` \|", generate.ops(), re.MULTILINE))
    assert listed == set(O.NAMES.values())


def test_every_pass_is_listed_in_order() -> None:
    from svod.codegen.targets import cpu, cuda
    from svod.schedule.schedule import SCHEDULE_PASSES

    steps = list(SCHEDULE_PASSES)
    for target in (cpu, cuda):
        steps += [*target.CHOOSING, *target.LOWERING, *target.SORTING]
    bold = re.findall(r"\*\*(\w+)\*\*", generate.passes())
    assert bold == [step.name for step in steps]


def test_every_module_has_a_sentence() -> None:
    empty = re.findall(r"^\| `([^`]+)` \|\s*\|$", generate.repository(), re.MULTILINE)
    assert not empty


def test_the_accuracy_table_is_what_the_tests_measure() -> None:
    source = (ROOT / "tests" / "codegen" / "test_decompose.py").read_text(encoding="utf-8")
    found = re.search(r"^ULPS: [^=]*= (\{.*?^\})", source, re.MULTILINE | re.DOTALL)
    assert found is not None
    measured = {name.lower(): value for name, value in ast.literal_eval(found[1]).items()}
    page = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    table = page.split("<!-- accuracy -->")[1].split("<!-- end -->")[0]
    for names, single, double in re.findall(r"^\| ([a-z].*?) \| (\S+) \| (\S+) \|$", table, re.M):
        for name in names.split(", "):
            assert measured.pop(name) == (float(single), float(double)), name
    assert set(measured) == {"recip", "fmod"}  # rounded correctly, exact
