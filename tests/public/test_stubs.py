"""What type checkers see is what the package has: stubs are up to date, programs check."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import svod
from svod.public import PUBLIC

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "user_program.py"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


stubs = load("stubs")


@pytest.mark.parametrize("name", sorted(stubs.FILES))
def test_a_stub_is_up_to_date(name):
    assert (ROOT / name).read_text(encoding="utf-8") == stubs.FILES[name](), (
        "run: python docs/stubs.py"
    )


def stub_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def defined(tree: ast.Module | ast.ClassDef) -> set[str]:
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            found |= {n.asname or n.name for n in node.names}
    return found


def test_the_stub_has_every_public_name():
    assert set(PUBLIC["svod"].split()) <= defined(stub_of("svod/__init__.pyi"))
    assert set(PUBLIC["svod.nn"].split()) <= defined(stub_of("svod/nn/__init__.pyi"))


def test_the_class_of_tensors_has_every_method():
    tree = stub_of("svod/tensor/tensor.pyi")
    cls = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    missing = set(PUBLIC["svod.Tensor"].split()) - defined(cls)
    assert missing <= {"uop", "shape", "dtype", "device", "ndim"}  # of its base
    assert {"__add__", "__getitem__", "cumsum_"} <= defined(cls)


def test_both_spellings_of_keywords_are_in_the_stub():
    text = (ROOT / "svod/tensor/tensor.pyi").read_text(encoding="utf-8")
    assert "def cumsum(self, dim: _b.int" in text and "def cumsum(self, *, axis: _b.int" in text
    assert "axis" in inspect.getsource(stubs.forms) or svod.ones(2, 2).cumsum(axis=0) is not None


def checked(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT), **more}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=folder, env=env, check=False
    )


@pytest.mark.long
def test_mypy_finds_nothing_in_the_program(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "program.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "program.py"]
    found = checked(command, tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.long
def test_pyright_finds_nothing_in_the_program(tmp_path):
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed: npm install --global pyright")
    (tmp_path / "program.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [pyright, "--outputjson", "--pythonpath", sys.executable]
    found = checked(command, tmp_path)
    report = json.loads(found.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    assert [d["message"] for d in report["generalDiagnostics"]] == []


def test_the_program_runs():
    found = checked([sys.executable, str(PROGRAM)], ROOT)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip().split("\n")[-1] == "done"
    assert len(PROGRAM.read_text(encoding="utf-8").split("\n")) >= 300
