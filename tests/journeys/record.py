"""``python -m tests.journeys.record [name ..]``: write what torch gives for journeys."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.journeys.harness import NAMES, record

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record(sys.argv[1:] or NAMES, Path(folder))
