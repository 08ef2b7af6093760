"""Every Python block of the README and the documentation runs, and prints what the page says.

Blocks of one page share their names, in order. A ``text`` block right after a Python block is what
that block prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if BLOCK.search(p.read_text(encoding="utf-8"))], ids=name_of
)
def test_the_examples_of_a_page_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__example__"}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        source = "\n" * line + block[1]  # so that an error shows the line of the page
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(page), "exec"), names)
        if block[2] is not None:
            assert printed.getvalue() == block[2], f"{name_of(page)}, line {line}"


TORCH = re.compile(r"^```python needs-torch\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.M | re.S)


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [p for p in PAGES if TORCH.search(p.read_text(encoding="utf-8"))], ids=name_of
)
def test_the_examples_with_torch_run(page: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    names: dict[str, object] = {"__name__": "__example__"}
    for block in TORCH.finditer(page.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block[1], str(page), "exec"), names)
        if block[2] is not None:
            assert printed.getvalue() == block[2], name_of(page)


def test_there_are_examples() -> None:
    found = [name_of(p) for p in PAGES if BLOCK.search(p.read_text(encoding="utf-8"))]
    assert {"README.md", "docs/tutorial.md", "docs/fusion.md", "docs/numerics.md"} <= set(found)


def test_the_compiler_in_300_lines_has_no_more() -> None:
    text = (ROOT / "docs" / "compiler-in-300-lines.md").read_text(encoding="utf-8")
    lines = [line for block in BLOCK.finditer(text) for line in block[1].split("\n")]
    assert 200 < len([line for line in lines if line.strip()]) <= 300


def test_the_compiler_in_300_lines_agrees_with_numpy() -> None:
    """Forms the page does not show: sums of sums, reshapes, several stored sums, no vectors."""
    names: dict[str, Any] = {}
    for block in BLOCK.finditer((ROOT / "docs" / "compiler-in-300-lines.md").read_text("utf-8")):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(block[1], names)
    tensor, plan = names["Tensor"], names["Plan"]
    a = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    b = np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32)
    x, y = tensor(a), tensor(b)
    total = a.sum(1, keepdims=True)
    for got, wanted in (
        (y.sum(1).reshape(1, 3).sum(1), b.sum().reshape(1, 1)),
        (x.reshape(3, 16).permute(1, 0).reshape(4, 12) * 2, a.reshape(3, 16).T.reshape(4, 12) * 2),
        (x.permute(1, 0) @ x, a.T @ a),
        ((x @ x.permute(1, 0)) @ x, (a @ a.T) @ a),
        (x / x.sum(1) + x.sum(0), a / total + a.sum(0, keepdims=True)),
        (x.sum(1) / x.sum(1).sum(0), total / total.sum()),
    ):
        assert np.allclose(plan(got).execute(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "index.md":
            assert f"]({page.relative_to(ROOT / 'docs')})" in index, page.name
