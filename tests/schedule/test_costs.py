"""The numbers of the cost models: each has a unit and an origin, and code reads them from there."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from svod.base.errors import ConfigError
from svod.schedule.costs import ORIGINS, costs_of
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.schedule.work import WEIGHT

ROOT = Path(__file__).parents[2] / "svod"


@pytest.mark.parametrize("table", (CPU, GPU), ids=("cpu", "gpu"))
def test_every_number_has_a_unit_and_an_origin(table: Any) -> None:
    costs = costs_of(table)
    assert len(costs) > 40
    for cost in costs:
        kind, _, text = cost.origin.partition(": ")
        assert kind in ORIGINS and text and cost.unit and cost.value > 0, cost


@pytest.mark.parametrize("table", (CPU, GPU), ids=("CPU", "GPU"))
def test_every_number_is_read(table: Any) -> None:
    name = type(table).__name__[:3].upper()
    read: set[str] = set()
    for folder in ("schedule", "optimize"):
        for file in (ROOT / folder).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    read |= {node.attr} if node.value.id == name else set()
    assert {f.name for f in fields(table)} == read


def test_the_weight_of_an_operation_is_its_cost() -> None:
    from svod.ir import ops as O

    assert WEIGHT[O.EXP] == CPU.exponential and WEIGHT[O.DIV] == CPU.division
    assert WEIGHT[O.IDIV] == CPU.integer_division and WEIGHT[O.ADD] == 1.0


def test_a_table_cannot_be_changed_but_replaced() -> None:
    with pytest.raises(AttributeError):
        CPU.store = 7.0  # type: ignore[misc]
    other = CPU.replaced(store=7.0)
    assert other.store == 7.0 and other.kernel == CPU.kernel and other != CPU
    assert other.replaced(store=CPU.store) == CPU
    assert hash(other.replaced(store=CPU.store)) == hash(CPU)
    with pytest.raises(ConfigError, match="CpuCosts has no stores"):
        CPU.replaced(stores=7.0)
