"""`python -m bench.soak graphs --count 20000`: graphs that no cache has seen, one after the other.

Each is compiled, run and compared with NumPy. Resident memory is looked at all the time: once the
caches are full, which the first half sees to, it must not grow any more.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.soak import parser
from bench.soak.everything import resident_bytes
from bench.soak.fresh import is_right

LOOKS = 40  # at memory
GROWTH = 32 << 20  # bytes from the first half's most to the second half's: no leak of 2 kB a graph


@dataclass(slots=True)
class Outcome:
    """How many graphs there were, and the memory along the way."""

    graphs: int = 0
    wrong: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)  # bytes, in equal distances

    @property
    def growth(self) -> int:
        """From the most of the second quarter on, when caches are full, to the most at the end."""
        quarter = len(self.resident) // 4
        return max(self.resident[3 * quarter :]) - max(self.resident[quarter : 2 * quarter])

    def __str__(self) -> str:
        steps = ", ".join(str(each >> 20) for each in self.resident[:: max(1, LOOKS // 10)])
        return (
            f"{self.graphs:,} graphs, {len(self.wrong)} wrong; resident MB along the way: {steps}; "
            f"{self.growth / 1e6:+.1f} MB in the last half"
        )


def soak(count: int, seconds: float = 1e9, first: int = 0) -> Outcome:
    """Compile so many graphs, or as many as the seconds allow."""
    outcome = Outcome()
    deadline = time.monotonic() + seconds
    for number in range(first, first + count):
        if not is_right(number):
            outcome.wrong.append(number)
        outcome.graphs += 1
        if outcome.graphs % max(1, count // LOOKS) == 0:
            gc.collect()
            outcome.resident.append(resident_bytes())
            if time.monotonic() > deadline:
                break
    return outcome


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    options = parser("graphs", __doc__, count=20_000, minutes=40).parse_args(arguments)
    outcome = soak(options.count, options.minutes * 60)
    print(outcome)
    is_good = not outcome.wrong and outcome.growth <= GROWTH
    return 0 if is_good and outcome.graphs == options.count else 1
