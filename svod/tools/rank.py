"""One rank of a program: it runs in a session of its own, out of reach of the launcher.

python rank.py PROGRAM ARGUMENTS. A launcher ends all ranks as soon as one has ended badly, often
before the others could say which. So a rank that failed is reported late, when the others have
noticed by themselves; whatever ends this process ends the program.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from contextlib import suppress

PATIENCE = 11.0  # seconds for other ranks to end by themselves
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    with suppress(AttributeError, OSError):  # Linux alone has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Run the program; its exit status, 128 and more where a signal ended it."""
    program = subprocess.Popen(
        [sys.executable, *arguments],
        start_new_session=True,
        preexec_fn=_end_with_parent,
        close_fds=False,  # ranks find each other through one of the launcher's
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, frame: program.send_signal(n))
    status = program.wait()
    if status:
        time.sleep(PATIENCE)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
