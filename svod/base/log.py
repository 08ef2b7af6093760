"""What Svod says, through `logging`.

The logger `svod` carries warnings: to the program's log where it configured one, else to stderr.
`SVOD_DEBUG` is the other channel: `debug(2, text)` writes to stderr when the knob is at least 2,
through the logger `svod.debug`, whose handler is installed with the first such line.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

from svod.base.knobs import knobs
from svod.base.locks import reset_lock

logger = logging.getLogger("svod")
_debug_logger = logging.getLogger("svod.debug")
_install_lock = reset_lock()

COLORS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


def debug(level: int, text: str) -> None:
    """Write `text` to stderr if `SVOD_DEBUG` is at least `level`.

    Where building the text costs something, ask `knobs.debug >= level` first.
    """
    if knobs.debug < level:
        return
    _install()
    _debug_logger.debug("%s", text)


def warn(text: str) -> None:
    """A warning for the program's log, and for stderr with `SVOD_DEBUG=1` or without a log."""
    if logger.hasHandlers():
        logger.warning("%s", text)
        debug(1, f"warning: {text}")
    elif logger.isEnabledFor(logging.WARNING):
        sys.stderr.write(f"{colored('svod', 'dim')} warning: {text}\n")


def uses_color(stream: TextIO) -> bool:
    """Whether colours belong on this stream: NO_COLOR, then FORCE_COLOR, then is it a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def colored(text: str, color: str, stream: TextIO | None = None) -> str:
    """`text` in a colour of `COLORS`, plain where the stream (stderr if none) shows no colours."""
    if not uses_color(sys.stderr if stream is None else stream):
        return text
    return f"\033[{COLORS[color]}m{text}\033[0m"


class StderrHandler(logging.Handler):
    """Writes to whatever `sys.stderr` is at that moment, so that redirection works."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{colored('svod', 'dim')} {self.format(record)}\n")
        except Exception:
            self.handleError(record)


def _install() -> None:
    with _install_lock:
        if any(isinstance(handler, StderrHandler) for handler in _debug_logger.handlers):
            return
        _debug_logger.addHandler(StderrHandler())
        _debug_logger.setLevel(logging.DEBUG)
        _debug_logger.propagate = False  # the program's own handlers would print it again
