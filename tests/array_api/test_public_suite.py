"""The consortium's suite, array-api-tests, run against svod from a checkout.

The suite is not on the package index, so it runs where ``SVOD_ARRAY_API_SUITE`` names a
checkout of it (``make conformance``); the other files here cover the standard without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPECTED = Path(__file__).with_name("expected-failures.txt")
MOST = 10
_SUITE = os.environ.get("SVOD_ARRAY_API_SUITE", "")


def _entries() -> list[tuple[str, str]]:
    """Every expected failure with the comment above it."""
    found, reason = [], ""
    for line in EXPECTED.read_text().splitlines():
        text = line.strip()
        if text.startswith("#"):
            reason = text
        elif text:
            found.append((text, reason))
            reason = ""
        else:
            reason = ""
    return found


def test_expected_failures_are_few_and_have_reasons() -> None:
    entries = _entries()
    assert len(entries) <= MOST
    assert [name for name, reason in entries if not reason] == []


@pytest.mark.skipif(not _SUITE, reason="SVOD_ARRAY_API_SUITE names no checkout of the suite")
@pytest.mark.parametrize("version", ["2024.12", "2025.12"])
@pytest.mark.timeout(3600)
def test_suite(version: str) -> None:
    settings = {
        "ARRAY_API_TESTS_MODULE": "svod",
        "ARRAY_API_TESTS_VERSION": version,
        "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "array_api_tests", "-n", "2"]
    command += ["--xfails-file", str(EXPECTED), "-o", "xfail_strict=True"]
    command += ["--disable-extension", "fft", "--hypothesis-disable-deadline"]
    command += ["--max-examples", os.environ.get("SVOD_ARRAY_API_EXAMPLES", "20")]
    done = subprocess.run(
        command, cwd=_SUITE, env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
