"""The suite on aarch64 without such a machine: a sysroot, and qemu's user mode."""

from __future__ import annotations

import os

import pytest

# Set by the program that `tests.arm.sysroot` makes.
not_emulated = pytest.mark.skipif("EMULATED" in os.environ, reason="an emulator has other times")
