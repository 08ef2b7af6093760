"""Everything in this folder runs on a GPU; without one it is not collected."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from svod.base.knobs import knobs


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: takes all of a GPU's memory")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``SVOD_TEST_SHARD=2/12`` keeps every twelfth test, from the third on: for many processes.
    Tests that need a GPU to themselves are kept by ``SVOD_TEST_SHARD=alone`` only."""
    shard = os.environ.get("SVOD_TEST_SHARD")
    if shard:
        alone = [t for t in items if t.get_closest_marker("alone")]
        kept = alone
        if shard != "alone":
            first, count = map(int, shard.split("/"))
            kept = [t for t in items if t not in alone][first::count]
        config.hook.pytest_deselected(items=[t for t in items if t not in kept])
        items[:] = kept


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    """Tensors that name no device live on the GPU."""
    with knobs.scope(device="CUDA"):
        yield
