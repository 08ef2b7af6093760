"""What the loop choices need to know of a GPU, which of its units they may use, and by how much
work a thread or a block is given. ``variants`` are other amounts, for a search to time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


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
    mixes_bytes: bool = True  # whether Hopper's own take bytes with and without sign together
    uses_tf32: bool = False  # whether float32 products may be rounded to 11 bits
    block: int = 256  # threads of a block whose threads do not talk to each other
    row_vectors: int = 4  # vectors of a row that one thread reduces
    tile_columns: int = 0  # of a tile on tensor cores; 0 chooses

    @property
    def has_wgmma(self) -> bool:
        return self.capability == (9, 0) and self.tensor_cores == "auto"

    @property
    def has_mma(self) -> bool:
        return self.capability >= (8, 0) and self.tensor_cores != "none"

    @property
    def rounds_to_bfloat16(self) -> bool:
        """Whether there is an instruction for it."""
        return self.capability >= (8, 0)

    @property
    def has_float8(self) -> bool:
        return self.capability >= (8, 9) and self.has_mma

    def variants(self) -> Iterator[GpuMachine]:
        """The same GPU with one amount changed."""
        for block in (128, 512, 1024):
            yield replace(self, block=block)
        for vectors in (1, 2, 8, 16):
            yield replace(self, row_vectors=vectors)
        for columns in (64, 128, 256):
            yield replace(self, tile_columns=columns)
