"""Byte offsets of everything Python and the generated launcher share: one place for both.

A record is 64 bytes, one cache line. The state of a pool is a run of cache lines: what is written
by different threads lies on different lines. After it comes one block per lane (lane 0 is the
thread that calls): the argument of the lane's thread and the processors the lane may use.
"""

from __future__ import annotations

from typing import Final

LINE: Final = 64


class Record:
    """Fields of one launch record."""

    FUNCTION: Final = 0
    BUFFERS: Final = 8
    VALUES: Final = 16
    CORES: Final = 24
    KIND: Final = 32
    GROUP: Final = 40
    FLAGS: Final = 48
    SPARE: Final = 56
    SIZE: Final = 64


class State:
    """Fields of the state of one pool."""

    # Read by all, written rarely.
    THREADS: Final = 0  # lanes, the calling thread included
    IDLE_SPIN: Final = 8  # ticks a worker spins for a job before it sleeps
    RUN_SPIN: Final = 16  # the same while a run that uses the pool is under way
    SLICE: Final = 24  # ticks after which a run returns to Python for a moment
    INTERRUPT: Final = 32  # not 0: every run returns before its next group
    QUIT: Final = 40  # not 0: workers end
    STARTED: Final = 48  # 0 until the workers exist
    PLACE: Final = 56  # not 0: lanes are bound to their processors
    # The job: its number in the high half (the word workers sleep on), items left in the low half.
    CLAIM: Final = 1 * LINE
    PENDING: Final = 2 * LINE  # items of the job not finished
    SLEEPERS: Final = 3 * LINE  # workers that sleep or are about to
    LOCK: Final = 4 * LINE  # taken by the run whose group is spread over the pool
    PLACED: Final = 4 * LINE + 8  # 1 while a calling thread is bound to lane 0's processors
    ALIVE: Final = 4 * LINE + 16  # workers that have not ended
    ACTIVE: Final = 5 * LINE  # runs under way that have used the pool
    # What the job is; stable while items are left.
    JOB_FIRST: Final = 6 * LINE  # its first record
    JOB_TOTAL: Final = 6 * LINE + 8  # items of all its records
    JOB_RECORDS: Final = 6 * LINE + 16  # the first record of the array
    JOB_STAMPS: Final = 6 * LINE + 24  # where times are written, or 0
    LANES: Final = 7 * LINE


class Lane:
    """Fields of the block of one lane."""

    STATE: Final = 0
    NUMBER: Final = 8
    MASK: Final = LINE
    MASK_SIZE: Final = 128  # bytes: 1024 processors
    SIZE: Final = 3 * LINE


class Stamp:
    """The table of times: a header with the number of lanes, then [record][lane] of start, end."""

    LANES: Final = 0
    SLOTS: Final = LINE
    SLOT_SIZE: Final = 16


class Flag:
    """Bits of a record's flags."""

    SMALL: Final = 1  # too short to be worth the pool: run it on the calling thread
