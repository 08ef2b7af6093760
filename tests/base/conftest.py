"""Knobs of this folder's tests start from an environment without SVOD_* variables."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from svod.base.knobs import all_knobs, knobs


@pytest.fixture(autouse=True)
def clean_knobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("SVOD_"):
            monkeypatch.delenv(name)
    knobs.refresh()
    yield
    monkeypatch.undo()
    for knob in all_knobs():
        delattr(knobs, knob.attribute)
    knobs.refresh()
