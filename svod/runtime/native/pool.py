"""One pool of native threads: its shared state, its start and its end.

In: the number of lanes. Out: a state that the launcher runs with. A pool never changes its size:
another number of threads means another pool, and the old one is retired, which is safe while runs
still use it, because a run does itself whatever no worker takes. Workers are plain pthreads with
every signal blocked, so Python never sees them. Each lane gets its own part of the processors the
process may use; the calling thread is lane 0 and is bound only while a run uses the pool.
"""

from __future__ import annotations

import ctypes

from svod.base.system import system
from svod.runtime.native.clock import Clock
from svod.runtime.native.code import Code
from svod.runtime.native.layout import Lane, State
from svod.runtime.native.memory import aligned_words

# A worker that has just worked spins this long for the next job, and this long between the jobs of
# one run. Waking a sleeping worker takes about 100 µs on a virtual machine.
IDLE_SPIN_NS = 80_000
RUN_SPIN_NS = 1_000_000
# With more lanes than processors a spinning worker only takes time from a working one.
CROWDED_SPIN_NS = 2_000
# A run returns to Python this often, between groups, so that Python can handle signals.
SLICE_NS = 50_000_000
STACK_BYTES = 8 << 20


class Pool:
    """The state of one pool; its workers start when the first run needs them."""

    __slots__ = ("_code", "_state", "address", "threads")

    def __init__(self, threads: int, code: Code, clock: Clock) -> None:
        self.threads = threads if code.has_threads else 1
        self._code = code
        self._state, self.address = aligned_words((State.LANES + self.threads * Lane.SIZE) // 8)
        processors = _processors()
        crowded = self.threads > len(processors)
        self._put(State.THREADS, self.threads)
        spins = (CROWDED_SPIN_NS, CROWDED_SPIN_NS) if crowded else (IDLE_SPIN_NS, RUN_SPIN_NS)
        self._put(State.IDLE_SPIN, clock.ticks_in(spins[0]))
        self._put(State.RUN_SPIN, clock.ticks_in(spins[1]))
        self._put(State.SLICE, clock.ticks_in(SLICE_NS))
        self._put(State.PLACE, int(self.threads > 1 and len(processors) > 1))
        for lane, own in enumerate(share_processors(processors, self.threads)):
            self._describe_lane(lane, own)

    @property
    def is_started(self) -> bool:
        return bool(self._get(State.STARTED))

    @property
    def workers(self) -> int:
        """Threads of this pool that have not ended."""
        return self._get(State.ALIVE)

    @property
    def interrupted(self) -> bool:
        return bool(self._get(State.INTERRUPT))

    @interrupted.setter
    def interrupted(self, value: bool) -> None:
        self._put(State.INTERRUPT, int(value))

    def start(self) -> None:
        """Create the workers; where the system refuses some, the pool is smaller."""
        if self.is_started:
            return
        # Counted before they exist: a worker counts itself out when it ends.
        self._put(State.ALIVE, self.threads - 1)
        created = 0
        for lane in range(1, self.threads):
            created += system().start_thread(
                self._code.worker, self._lane_address(lane), STACK_BYTES
            )
        if created < self.threads - 1:
            self._put(State.ALIVE, created)
            self._put(State.THREADS, created + 1)
        self._put(State.STARTED, 1)

    def retire(self) -> None:
        """Let the workers end; runs that still use the pool finish on their own thread."""
        if self.is_started and self.threads > 1:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.retire)(self.address)

    def _describe_lane(self, lane: int, processors: list[int]) -> None:
        start = State.LANES + lane * Lane.SIZE
        self._put(start + Lane.STATE, self.address)
        self._put(start + Lane.NUMBER, lane)
        mask = sum(1 << processor for processor in processors)
        raw = mask.to_bytes(Lane.MASK_SIZE, "little")
        ctypes.memmove(self.address + start + Lane.MASK, raw, Lane.MASK_SIZE)

    def _lane_address(self, lane: int) -> int:
        return self.address + State.LANES + lane * Lane.SIZE

    def _get(self, offset: int) -> int:
        return int(self._state[offset // 8])

    def _put(self, offset: int, value: int) -> None:
        self._state[offset // 8] = value


def share_processors(processors: list[int], lanes: int) -> list[list[int]]:
    """Disjoint neighbouring parts of the processors for the lanes; shared if there are too few.

    A lane may use several where there are more processors than lanes: then two processes that
    use half of the machine each are not bound to the same half.
    """
    count = len(processors)
    if lanes >= count:
        return [[processors[lane % count]] for lane in range(lanes)]
    bounds = [lane * count // lanes for lane in range(lanes + 1)]
    return [processors[bounds[lane] : bounds[lane + 1]] for lane in range(lanes)]


def _processors() -> list[int]:
    return [number for number in system().processors() if number < Lane.MASK_SIZE * 8]
