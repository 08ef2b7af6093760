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
VERSIONS = ("2024.12", "2025.12")
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


def _versions() -> list[str]:
    """The versions of the standard that svod has and the checkout has the signatures of."""
    stubs = Path(_SUITE, "array-api", "src", "array_api_stubs")
    return [v for v in VERSIONS if (stubs / f"_{v.replace('.', '_')}").is_dir()]


@pytest.mark.skipif(not _SUITE, reason="SVOD_ARRAY_API_SUITE names no checkout of the suite")
def test_checkout_has_the_signatures() -> None:
    assert _versions(), f"{_SUITE} has no array-api: run git submodule update --init there"


@pytest.mark.skipif(not _SUITE, reason="SVOD_ARRAY_API_SUITE names no checkout of the suite")
@pytest.mark.parametrize("version", _versions() if _SUITE else VERSIONS)
@pytest.mark.timeout(7200)
def test_suite(version: str) -> None:
    settings = {
        "ARRAY_API_TESTS_MODULE": "svod",
        "ARRAY_API_TESTS_VERSION": version,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "array_api_tests", "-n", "2"]
    command += ["--xfails-file", str(EXPECTED), "-o", "xfail_strict=True"]
    command += ["--json-report", "--json-report-file=none", "--hypothesis-disable-deadline"]
    command += ["--max-examples", os.environ.get("SVOD_ARRAY_API_EXAMPLES", "20")]
    done = subprocess.run(
        command, cwd=_SUITE, env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    print(f"\narray API {version}: {done.stdout.splitlines()[-1]}")
