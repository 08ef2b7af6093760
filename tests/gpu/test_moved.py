"""Journeys that begin on the CPU and go on on the GPU: the default device is the CPU here."""

# ruff: noqa: F403
from __future__ import annotations

from collections.abc import Iterator

import pytest

from svod.base.knobs import knobs
from tests.device.moved import *


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    """Tensors that name no device live on the CPU, as they do for users."""
    with knobs.scope(device="CPU"):
        yield


@pytest.fixture
def away() -> str:
    return "CUDA"
