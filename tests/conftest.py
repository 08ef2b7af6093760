"""Every test runs with the verifiers on: a stage that makes a malformed graph is stopped there.

Loops that cannot be compiled are an error too: plainer ones are for users, not for tests.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from hypothesis import settings

os.environ.setdefault("SVOD_VERIFY", "1")  # before svod is imported
os.environ.setdefault("SVOD_FALLBACK", "0")
settings.register_profile("svod", deadline=None)  # machines are shared: a slow example is no fault
settings.load_profile("svod")

GPU = Path(__file__).parent / "gpu"
ONNX = Path(__file__).parent / "frontend" / "onnx"
TORCH = Path(__file__).parent / "frontend" / "torch"
BROWSER = Path(__file__).parent / "browser"


def _has_gpu() -> bool:
    from svod.device.cuda.driver import is_available

    return is_available()


@cache
def _left_out() -> dict[Path, str]:
    """Folders whose tests cannot run here, and why."""
    found = {}
    if not _has_gpu():
        found[GPU] = "tests/gpu is left out: there is no NVIDIA driver or no GPU"
    if find_spec("torch") is None:
        found[TORCH] = "tests/frontend/torch is left out: torch is not installed"
    if find_spec("onnx") is None:
        found[ONNX] = "tests/frontend/onnx is left out: pip install svod[onnx]"
    if reason := _no_browser():
        found[BROWSER] = f"tests/browser is left out: {reason}"
    return found


def _no_browser() -> str:
    """Why the page cannot be opened here, or an empty text."""
    browsers = ("chromium", "chromium-browser")
    if not any(which(name) for name in browsers) or not which("chromedriver"):
        return "there is no Chromium (Debian: apt install chromium chromium-driver)"
    return "" if find_spec("selenium") else "pip install svod[browser]"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without a GPU, torch or onnx their tests are left out, which one line of the report says."""
    inside = (collection_path, *collection_path.parents)
    return True if any(folder in inside for folder in _left_out()) else None


def pytest_report_header(config: pytest.Config) -> list[str]:
    return list(_left_out().values())
