"""What Svod asks of an operating system."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Protocol


class System(Protocol):
    """One operating system. Sizes are bytes, addresses are numbers."""

    @property
    def name(self) -> str:
        """As in the text of a target: linux, macos or windows."""

    # -- memory -----------------------------------------------------------------------------------

    def private_map(self, nbytes: int) -> mmap.mmap:
        """Zeroed memory of this process alone, in whole pages."""

    def map_code(self, size: int, executable: int) -> int:
        """Memory for code; its first ``executable`` bytes become readable and executable."""

    def fill_code(self, address: int, image: bytearray, executable: int) -> None:
        """Write the memory and make its first part executable; no byte of it is ever writable and
        executable at once, and every processor sees the code afterwards."""

    def unmap_code(self, address: int, size: int) -> None:
        """Give memory of `map_code` back."""

    # -- code and threads -------------------------------------------------------------------------

    def symbol(self, name: str) -> int | None:
        """The address of a function that machine code may call; None where nobody has it."""

    def start_thread(self, function: int, argument: int, stack_bytes: int) -> bool:
        """A thread that nobody waits for and that takes no signals; False where it is refused."""

    def processors(self) -> list[int]:
        """The numbers of the processors this process may run on."""

    # -- facts and paths --------------------------------------------------------------------------

    def arm_features(self) -> frozenset[str]:
        """What an aarch64 processor has, by LLVM's names: programs cannot ask it themselves."""

    def processor_name(self) -> str:
        """What people call the processor; empty where nobody says."""

    def cache_bytes(self, level: int) -> int | None:
        """The data cache of a level that one core sees; None where the system does not say."""

    def cache_home(self, home: Path) -> Path:
        """Where programs of a user keep caches."""

    def user(self) -> str:
        """A name for this user that others do not have."""
