"""The consortium's suite, array-api-tests, run against svod from a checkout.

The suite is not on the package index, so it runs where ``SVOD_ARRAY_API_SUITE`` names a checkout of
it; ``auto`` is the one in ``../shared/suites``, if that is there. The other files here cover the
standard without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__)
MOST = 10
VERSIONS = ("2024.12", "2025.12")
_NAMED = os.environ.get("SVOD_ARRAY_API_SUITE", "")
_BESIDE = HERE.parents[3] / "shared" / "suites" / "array-api-tests"
_SUITE = _BESIDE if _NAMED == "auto" else Path(_NAMED)
_WHY = f"no checkout of array-api-tests: {_SUITE if _NAMED else 'SVOD_ARRAY_API_SUITE names none'}"
_IS_THERE = bool(_NAMED) and (_NAMED != "auto" or _SUITE.is_dir())
_STUBS = _SUITE / "array-api" / "src" / "array_api_stubs"
_NEEDS = [name for name in ("ndindex", "pytest_jsonreport", "hypothesis") if not find_spec(name)]


def _expected(version: str) -> Path:
    return HERE.with_name(f"expected-failures-{version}.txt")


def _entries(version: str) -> list[tuple[str, str]]:
    """Every expected failure with the comment above it."""
    found, reason = [], ""
    for line in _expected(version).read_text().splitlines():
        text = line.strip()
        if text.startswith("#"):
            reason = text
        elif text:
            found.append((text, reason))
            reason = ""
        else:
            reason = ""
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_expected_failures_are_few_and_have_reasons(version: str) -> None:
    entries = _entries(version)
    assert len(entries) <= MOST
    assert [name for name, reason in entries if not reason] == []


@pytest.mark.skipif(not _IS_THERE, reason=_WHY)
def test_a_checkout_that_is_named_can_be_run() -> None:
    assert _STUBS.is_dir(), f"{_SUITE} has no array-api: run git submodule update --init there"
    assert not _NEEDS, f"the suite needs {' and '.join(_NEEDS)}: pip install them"


@pytest.mark.skipif(not _IS_THERE, reason=_WHY)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.timeout(3600)
def test_suite(version: str, tmp_path: Path) -> None:
    settings = {
        "ARRAY_API_TESTS_MODULE": "svod",
        "ARRAY_API_TESTS_VERSION": version,
        "PYTHONPATH": str(HERE.parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",  # the checkout may be read-only
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "array_api_tests", "-n", "2"]
    command += ["-p", "no:cacheprovider", "-o", "xfail_strict=True"]
    command += ["--xfails-file", str(_expected(version))]
    command += ["--json-report", "--json-report-file=none", "--hypothesis-disable-deadline"]
    command += ["--max-examples", os.environ.get("SVOD_ARRAY_API_EXAMPLES", "20")]
    done = subprocess.run(
        command, cwd=_SUITE, env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "don't match any collected" not in done.stdout, "an expected failure names no test"
    print(f"\narray API {version}: {done.stdout.splitlines()[-1]}")
