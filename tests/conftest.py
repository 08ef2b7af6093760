"""Every test runs with the verifiers on: a stage that makes a malformed graph is stopped there.

Loops that cannot be compiled are an error too: plainer ones are for users, not for tests.
"""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("SVOD_VERIFY", "1")  # before svod is imported
os.environ.setdefault("SVOD_FALLBACK", "0")
settings.register_profile("svod", deadline=None)  # machines are shared: a slow example is no fault
settings.load_profile("svod")
