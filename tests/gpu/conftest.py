"""Everything in this folder runs on a GPU; without one it is skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from svod.base.knobs import knobs
from svod.device.cuda.driver import is_available


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``SVOD_TEST_SHARD=2/12`` keeps every twelfth test, from the third on: for many processes."""
    shard = os.environ.get("SVOD_TEST_SHARD")
    if shard:
        first, count = map(int, shard.split("/"))
        config.hook.pytest_deselected(items=[t for i, t in enumerate(items) if i % count != first])
        items[:] = items[first::count]
    if is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA driver or no GPU")
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    """Tensors that name no device live on the GPU."""
    with knobs.scope(device="CUDA"):
        yield
