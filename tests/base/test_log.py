from __future__ import annotations

import io
import logging
import os
import subprocess
import sys

import pytest

from svod.base import log
from svod.base.knobs import knobs


@pytest.fixture(autouse=True)
def no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_nothing_is_printed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    log.debug(1, "devices")
    log.logger.warning("for the program's log only")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_lines_up_to_the_level_go_to_stderr_once(capsys: pytest.CaptureFixture[str]) -> None:
    with knobs.scope(debug=2):
        log.debug(1, "devices")
        log.debug(2, "kernels 100%")
        log.debug(3, "schedules")
    captured = capsys.readouterr()
    assert captured.err == "svod devices\nsvod kernels 100%\n"
    assert captured.out == ""


def test_a_warning_reaches_the_log_of_the_program(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, "svod"):
        log.warn("the cache is off")
        with knobs.scope(debug=1):
            log.warn("still off")
    assert [record.getMessage() for record in caplog.records] == ["the cache is off", "still off"]
    assert capsys.readouterr().err == "svod warning: still off\n"


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_program_without_a_log_of_its_own_shows_warnings_once(debug: str) -> None:
    """And one that has a log decides where they go, or that they go nowhere."""
    text = "import logging, svod.base.log as log; {}; log.warn('look here')"

    def shown(before: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", text.format(before)],
            env={**os.environ, "SVOD_DEBUG": debug},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return run.stderr

    assert shown("0") == "svod warning: look here\n"
    assert shown("logging.getLogger('svod').setLevel(logging.ERROR)") == ""
    assert shown("logging.basicConfig(format='mine: %(message)s')").splitlines() == (
        ["mine: look here"] + ["svod warning: look here"] * int(debug)
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_follow_the_terminal_and_the_common_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not log.uses_color(Terminal())
    monkeypatch.delenv("NO_COLOR")
    assert log.uses_color(Terminal())
    assert not log.uses_color(io.StringIO())
    assert log.colored("x", "red", Terminal()) == "\033[31mx\033[0m"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert log.uses_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not log.uses_color(io.StringIO())
    assert log.colored("x", "red") == "x"


def test_a_closed_stderr_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with knobs.scope(debug=1):
        log.debug(1, "into the void")
