"""Journeys from the CPU to a device with memory of its own, and back."""

# ruff: noqa: F403
from __future__ import annotations

import pytest

from tests.device.far import register
from tests.device.moved import *

register()


@pytest.fixture(params=["FAR", "CPU:1"])
def away(request: pytest.FixtureRequest) -> str:
    return str(request.param)
