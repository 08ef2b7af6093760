"""Every core ATen operator gives what eager gives, without torch in between."""

from __future__ import annotations

import pytest

from tests.frontend.torch.cases import FUNCTIONAL, LEFT, core_operators
from tests.frontend.torch.coverage import state_of

NAMES = core_operators()
FAMILIES = [NAMES[start::16] for start in range(16)]


@pytest.mark.parametrize("names", FAMILIES, ids=lambda names: names[0])
def test_core_operators_are_what_eager_computes(names: list[str]) -> None:
    wrong = {n: why for n in names if n not in LEFT for s, why in [state_of(n)] if s == "wrong"}
    assert not wrong


def test_core_operators_are_covered() -> None:
    from tests.frontend.torch.cases import CASES, SHAPES_ONLY

    known = {*CASES, *SHAPES_ONLY, *FUNCTIONAL}
    sizes = [n for n in NAMES if n.startswith("sym_")]
    covered = [n for n in NAMES if n in known]
    assert not [n for n in NAMES if n not in known and n not in LEFT]
    assert (len(covered) + len(sizes)) / len(NAMES) >= 0.97


def test_every_name_of_the_table_is_an_operator_of_torch() -> None:
    import torch

    from svod.frontend.torch.ops import TABLE

    def exists(name: str) -> bool:
        space, base, form = name.split(".")
        return hasattr(getattr(getattr(torch.ops, space), base, None), form)

    own = [name for name in TABLE if name.startswith(("aten.", "prims."))]
    assert not [name for name in own if not exists(name)]
