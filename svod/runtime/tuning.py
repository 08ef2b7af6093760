"""What measured times depend on besides the kernel: the key of the tuned store."""

from __future__ import annotations

from functools import cache

from svod.base.hashing import digest
from svod.device.cpu.host import cpu_identity, identity, target
from svod.device.cpu.targets import Target
from svod.optimize.machine import Machine


def tuning_identity(machine: Machine) -> str:
    """A digest of the processor, the wanted target and what the optimiser knows of them."""
    return _tuning_identity(machine, target())


@cache
def _tuning_identity(machine: Machine, wanted: Target) -> str:
    return digest(cpu_identity(), identity(wanted), repr(machine))
