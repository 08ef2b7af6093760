"""What the loop choices need to know of a GPU, and which of its units they may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """Limits of one GPU."""

    multiprocessors: int = 132
    threads: int = 1024  # of one block at most
    warp: int = 32
    vector_bytes: int = 16
    shared_bytes: int = 48 << 10  # of one block without asking for more
    most_shared_bytes: int = 227 << 10  # of one block that asks
    capability: tuple[int, int] = (9, 0)
    tensor_cores: str = "auto"  # or "mma", without Hopper's own, or "none"
    uses_tf32: bool = False  # whether float32 products may be rounded to 11 bits

    @property
    def has_wgmma(self) -> bool:
        return self.capability == (9, 0) and self.tensor_cores == "auto"

    @property
    def has_mma(self) -> bool:
        return self.capability >= (8, 0) and self.tensor_cores != "none"
