"""``python -m tests.fuzz FIRST LAST [WORKERS]``: see `tests.fuzz.every`."""

from __future__ import annotations

import sys

from tests.fuzz.every import main

if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])) > 0)
