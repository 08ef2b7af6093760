"""Every test runs with the verifiers on: a stage that makes a malformed graph is stopped there."""

from __future__ import annotations

import os

os.environ.setdefault("SVOD_VERIFY", "1")  # before svod is imported
