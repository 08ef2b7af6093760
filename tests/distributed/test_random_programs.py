"""Random programs with random placements give what one device gives"""

from __future__ import annotations

import pytest

from tests.distributed.random_programs import compare


@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_over_a_mesh_is_what_one_device_gives(seed: int) -> None:
    compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("fifty", range(2))
def test_many_random_programs_give_what_one_device_gives(fifty: int) -> None:
    for seed in range(100 + 50 * fifty, 150 + 50 * fifty):
        compare(seed)
