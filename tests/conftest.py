"""Every test runs with the verifiers on: a stage that makes a malformed graph is stopped there.

Loops that cannot be compiled are an error too: plainer ones are for users, not for tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("SVOD_VERIFY", "1")  # before svod is imported
os.environ.setdefault("SVOD_FALLBACK", "0")
settings.register_profile("svod", deadline=None)  # machines are shared: a slow example is no fault
settings.load_profile("svod")

GPU = Path(__file__).parent / "gpu"


def _has_gpu() -> bool:
    from svod.device.cuda.driver import is_available

    return is_available()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a GPU its tests are left out, which one line of the report says."""
    is_inside = GPU in (collection_path, *collection_path.parents)
    return True if is_inside and not _has_gpu() else None


def pytest_report_header(config: pytest.Config) -> str | None:
    return None if _has_gpu() else "tests/gpu is left out: there is no NVIDIA driver or no GPU"
