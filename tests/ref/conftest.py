"""Everything in this folder runs on REF: it is the meaning of every operation, so it runs all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from svod.base.knobs import knobs


@pytest.fixture(autouse=True)
def on_ref() -> Iterator[None]:
    """Tensors that name no device live on REF."""
    with knobs.scope(device="REF"):
        yield
