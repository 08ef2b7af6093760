"""What the optimiser knows of a target. Renderers provide it; nothing above them assumes a CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits of one target."""

    vector_bytes: int = 64  # of one vector register; 0 means no vectors
    registers: int = 32  # vector registers
    cores: int = 1  # the core axis: how many parts a large kernel is split into
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    stream_bytes: int = 32 << 20  # data beyond this does not stay in cache
    multipliers: int = 1  # multiply-adds of vectors in one cycle, and half of the loads
    has_masks: bool = True  # cheap masked loads and stores
    has_fma: bool = True  # a multiplication and an addition, rounded once
    has_parts: bool = False  # LDEXP, EXPONENT and SIGNIFICAND are instructions
    is_arm: bool = False  # aarch64, whose instructions have names of their own
    dots: tuple[str, ...] = ()  # the kinds of DOT there are instructions for

    def lanes(self, itemsize: int) -> int:
        return max(1, self.vector_bytes // itemsize)
