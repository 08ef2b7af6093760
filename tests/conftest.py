"""Every test runs with the verifiers on: a stage that makes a malformed graph is stopped there."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("SVOD_VERIFY", "1")  # before svod is imported
settings.register_profile("svod", deadline=None)  # machines are shared: a slow example is no fault
settings.load_profile("svod")
