"""What notebooks show of tensors, plans and profiles."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.runtime.profile import ProfileRow, ProfileTable


class Balance(HTMLParser):
    """Checks that every element that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def checked(text: str) -> str:
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert "<script" not in text and "http" not in text
    return text


def test_a_small_tensor_is_a_table_of_its_values() -> None:
    found = checked(Tensor([[1.5, -2.0], [3.0, 0.25]])._repr_html_())
    assert re.findall(r"<td[^>]*>([^<]*)</td>", found) == ["1.5", "-2", "3", "0.25"]
    assert "2 × 2 float32 on CPU" in found
    assert "<svg" not in found


def test_a_large_tensor_shows_its_corners_and_its_spread() -> None:
    values = np.arange(600, dtype=np.float32).reshape(20, 30)
    found = checked(Tensor(values)._repr_html_())
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", found)
    assert cells[0] == "0" and cells[-1] == "599" and "⋮" in cells and "…" in cells
    assert len(cells) == 81
    assert "0 to 599, mean 299.5" in found
    heights = [float(h) for h in re.findall(r"height='([\d.]+)'/>", found)]
    assert len(heights) == 32
    assert max(heights) - min(heights) < 3  # the values are spread evenly


def test_what_is_not_finite_is_counted() -> None:
    found = checked(Tensor([1.0, float("nan"), 2.0, float("inf")] * 16)._repr_html_())
    assert "1 to 2" in found and "32 of 64 are not finite" in found


@pytest.mark.parametrize(
    "tensor",
    [Tensor(3.5), svod.zeros(0, 3), Tensor([True]), Tensor([1 + 2j]), svod.zeros(2, 3, 4),
     svod.full((40,), 7), Tensor([1e300, -1e300] * 20, dtype=svod.float64)],
)  # fmt: skip
def test_every_tensor_has_html(tensor: Tensor) -> None:
    assert tensor.dtype.name in checked(tensor._repr_html_())


def test_a_tensor_that_is_not_computed_stays_so_where_texts_are_lazy() -> None:
    with svod.knobs.scope(REPR="lazy"):
        tensor = svod.ones(3) + 1
        assert "lazy" in checked(tensor._repr_html_())


def test_a_plan_names_its_ports_and_its_largest_kernels() -> None:
    x = svod.ones(8, 8).realize()
    plan = svod.prepare(x @ x, inputs={"<x>": x}, outputs=["y"])
    found = checked(plan._repr_html_())
    assert "← &lt;x&gt; float32 [8, 8]" in found and "→ y float32 [8, 8]" in found
    assert plan.prepared_kernels()[0].kernel.entry_point in found


def test_a_profile_is_a_table_with_shares() -> None:
    rows = tuple(ProfileRow(f"k{n}", "CPU", 2, 500, 0.01, 1.5, None, 0.5) for n in range(50))
    found = checked(ProfileTable(rows, 25000, 30000)._repr_html_())
    assert "25.00 µs in kernels, 30.00 µs in all" in found
    assert "and 10 more kernels" in found and "1.0%" in found and "50%" in found
