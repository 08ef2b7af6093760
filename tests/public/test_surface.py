"""The list of what is public is what the packages have, and what pages for users show is on it."""

from __future__ import annotations

import ast
import importlib
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import svod
from svod.public import PUBLIC

ROOT = Path(__file__).parents[2]
# Pages about the inside of Svod show the inside of it.
INSIDE = {"ir.md", "fusion.md", "pipeline.md", "compiler-in-300-lines.md", "contribute-a-target.md"}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def module_of(name: str) -> object:
    if name == "svod.Tensor":
        return svod.Tensor
    if name in ("svod.torch", "svod.hub") and find_spec("torch") is None:
        pytest.skip("svod.torch and svod.hub need torch")
    if name == "svod.timing":
        return svod.timing
    return importlib.import_module(name)


def names_of(name: str, where: object) -> set[str]:
    if name == "svod":
        return set(dir(svod)) | {"torch"}
    if isinstance(where, type):
        return {n for n in dir(where) if not n.startswith("_")}
    if hasattr(where, "__all__"):
        return set(where.__all__)
    return {
        n for n, value in vars(where).items()
        if not n.startswith("_") and getattr(value, "__module__", "") == where.__name__
    }  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_a_module_has_what_the_list_says(name):
    listed = PUBLIC[name].split()
    assert listed == sorted(set(listed)), "names stand once, in order"
    where = module_of(name)
    if name == "svod.timing":
        return
    assert names_of(name, where) == set(listed)
    for each in listed:
        if each != "torch" or find_spec("torch"):
            assert hasattr(where, each), f"{name}.{each}"


def test_every_public_module_is_on_the_list():
    """A module below a public one that is given away by name is public too."""
    for name in PUBLIC:
        where = module_of(name)
        for each in PUBLIC[name].split():
            if each == "torch" or (name, each) in {("svod", "tensor"), ("svod.onnx", "backend")}:
                continue
            value = getattr(where, each)
            if isinstance(value, ModuleType):
                aliases = {"svod.nn.optim": "svod.optim", "svod.nn.state": "svod"}
                full = aliases.get(f"{name}.{each}", f"{name}.{each}")
                full = "svod.data" if full == "svod.utils.data" else full
                full = "svod.optim.lr_scheduler" if each == "lr_scheduler" else full
                assert full in PUBLIC, full


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [p for p in found if p.name not in INSIDE and "decisions" not in p.parts]


def imports(page: Path) -> list[tuple[str, str]]:
    """What the blocks of a page import from Svod: module and name."""
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block[1])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("svod"):
                found += [(node.module or "", n.name) for n in node.names]
            elif isinstance(node, ast.Import):
                found += [(n.name, "") for n in node.names if n.name.startswith("svod")]
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_a_page_for_users_needs_public_names_only(page):
    for module, name in imports(page):
        assert module in PUBLIC, f"{page.name} imports {module}"
        assert not name or name in PUBLIC[module].split() or f"{module}.{name}" in PUBLIC


def test_pages_do_import_things():
    assert sum(len(imports(p)) for p in pages()) > 20


def test_a_list_of_tensors_is_prepared_and_realised():
    x = svod.tensor([1.0, 2.0]).realize()
    plan = svod.prepare([x + 1, x * 2], inputs={"x": x}, outputs=["more", "double"])
    more, double = plan(x=np.array([3.0, 4.0], np.float32))
    assert (more.tolist(), double.tolist()) == ([4.0, 5.0], [6.0, 8.0])
    a, b = x + 3, x + 4
    svod.realize([a, b])
    assert a.is_realized and b.is_realized
