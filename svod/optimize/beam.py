"""BEAM: a search for better loops that runs candidates, with the heuristics' plan as a seed.

In: a kernel as rangeify made it, the machine, and a bench that compiles and times candidates.
Out: the fastest opts that were found, never slower than the heuristics' own. The beam holds the
best few candidates; each round tries their neighbours, until nothing gets better or time is up.
The bench belongs to the runtime: nothing here compiles, allocates or runs anything.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from svod.base.log import debug
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp
from svod.optimize.actions import OptimizeError, apply_opts, chain
from svod.optimize.graph import evaluations, extent, renumber
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from svod.optimize.neighbours import neighbours
from svod.optimize.opts import Opt

EARLY_STOP = 3.0  # times the incumbent: a run beyond it ends the timing of a candidate
BLOAT = 1000.0  # times the leanest candidate's operations
LONG_RUN = 1.0  # seconds; what is expected to take longer and to lose is not started at all
GAIN = 0.99  # of the incumbent's time: less is noise
MARGIN = 0.98  # of the heuristics' time, measured side by side, before the search is believed
MAX_TEST_GLOBAL_SIZE = 65536  # work items of a launch that is timed
SHRINKABLE = 16  # an axis of a grid up to this size is not halved
BATCH = 16  # candidates compiled together before they are timed
TOP_OPS = 8


@dataclass(frozen=True, slots=True)
class BeamConfig:
    """The limits of a search."""

    width: int = 4
    seconds: float = 30.0  # for one kernel
    compile_seconds: float = 10.0  # for one candidate, compiling alone
    max_uops: int = 8000  # of the linearised program
    rounds: int = 12
    log_drops: bool = False  # print a line for every candidate that is dropped

    @classmethod
    def from_environment(cls, width: int = 4, seconds: float = 30.0) -> BeamConfig:
        """Reads `BEAM_TIMEOUT_SEC`, `BEAM_UOPS_MAX` and `BEAM_LOG_SURPASS_MAX`."""
        return cls(
            width=max(1, width),
            seconds=seconds,
            compile_seconds=_number("BEAM_TIMEOUT_SEC", 10.0),
            max_uops=int(_number("BEAM_UOPS_MAX", 8000)),
            log_drops="BEAM_LOG_SURPASS_MAX" in os.environ,
        )


def _number(name: str, default: float) -> float:
    try:
        value = float(os.environ.get(name, ""))
    except ValueError:
        return default
    return value if value > 0 else default


@dataclass(frozen=True, slots=True)
class Candidate:
    """Opts, the loops they make, and what is known before anything is compiled."""

    opts: tuple[Opt, ...]
    kernel: UOp
    operations: float  # compute operations, those of a vector counted once
    key: str  # structural hash: equal loops are one candidate

    @classmethod
    def of(cls, kernel: UOp, opts: Sequence[Opt]) -> Candidate:
        return cls(tuple(opts), kernel, compute_operations(kernel), kernel.content_hash)


@dataclass(frozen=True, slots=True)
class Drop:
    """Why a candidate is out of the search; an empty reason is not worth a line."""

    reason: str
    detail: str = ""


class Bench(Protocol):
    """Compiles and times candidates."""

    def compile(self, candidates: Sequence[Candidate]) -> list[Any | Drop]:
        """What `time` takes, or why there is nothing; compiled side by side."""

    def time(self, program: Any, limit: float | None) -> float | Drop:
        """The least seconds of some runs; a run above the limit is the last one."""

    def compare(self, first: Any, second: Any) -> tuple[float, float]:
        """The least seconds of both, measured in turns."""


@dataclass(slots=True)
class SearchResult:
    """What a search found."""

    opts: tuple[Opt, ...]
    kernel: UOp
    seconds: float
    heuristic_seconds: float
    is_heuristic: bool  # nothing was faster
    rounds: int = 0
    tried: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def beam_search(
    kernel: UOp,
    machine: Machine,
    config: BeamConfig,
    bench: Bench,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """The fastest opts for a kernel."""
    return _Search(kernel, machine, config, bench, clock).run()


class _Search:
    def __init__(
        self,
        kernel: UOp,
        machine: Machine,
        config: BeamConfig,
        bench: Bench,
        clock: Callable[[], float],
    ) -> None:
        self.kernel, self.machine, self.config = kernel, machine, config
        self.bench, self.clock = bench, clock
        self.end = clock() + config.seconds
        self.seen: set[str] = set()
        self.leanest = float("inf")
        self.best: tuple[float, Candidate] | None = None
        self.programs: dict[str, Any] = {}  # of candidates that may be compared at the end
        self.tried = 0
        self.dropped: Counter[str] = Counter()

    def run(self) -> SearchResult:
        found, opts = optimize(self.kernel, self.machine)
        heuristic = Candidate.of(found, opts)
        plain = Candidate.of(renumber(self.kernel), ())
        beam = list(self._measured([heuristic]))
        if not beam:
            reason = ", ".join(self.dropped) or "nothing was compiled"
            raise OptimizeError(f"the heuristics' own kernel could not be timed: {reason}")
        beam += self._measured([plain])
        rounds = 0
        while rounds < self.config.rounds and self.clock() < self.end:
            rounds += 1
            before = self._incumbent()
            options = [c for _, parent in beam for c in self._children(parent)]
            beam += self._measured(options)
            beam = sorted(beam, key=lambda timed: timed[0])[: self.config.width]
            if self._incumbent() > before * GAIN:
                break
        return self._compared(heuristic, rounds)

    def _children(self, parent: Candidate) -> Iterator[Candidate]:
        for opts in neighbours(self.kernel, parent.opts, self.machine):
            try:
                yield Candidate.of(apply_opts(self.kernel, opts, self.machine), opts)
            except Exception as problem:  # a candidate may be anything; it must not end the search
                self._drop(Drop("panic_in_worker", str(problem)), opts)

    def _incumbent(self) -> float:
        return self.best[0] if self.best else float("inf")

    def _measured(self, candidates: Iterable[Candidate]) -> Iterator[tuple[float, Candidate]]:
        """Times of candidates that are new, lean and not hopeless, the incumbent's in time."""
        fresh = [c for c in candidates if self._is_new(c)]
        for start in range(0, len(fresh), BATCH):
            if self.best and self.clock() >= self.end:
                return
            batch = fresh[start : start + BATCH]
            for candidate, program in zip(batch, self.bench.compile(batch), strict=True):
                if isinstance(program, Drop):
                    self._drop(program, candidate.opts)
                elif not self.best or self.clock() < self.end:
                    yield from self._timed(candidate, program)

    def _is_new(self, candidate: Candidate) -> bool:
        if candidate.key in self.seen:
            return False
        self.seen.add(candidate.key)
        self.leanest = min(self.leanest, candidate.operations)
        if candidate.operations > BLOAT * self.leanest:
            self._drop(Drop("too_many_operations", f"{candidate.operations:.0f}"), candidate.opts)
            return False
        if self.best:
            ratio = candidate.operations / max(1.0, self.best[1].operations)
            if ratio > EARLY_STOP and ratio * self.best[0] > LONG_RUN:
                seconds = ratio * self.best[0]
                self._drop(Drop("too_slow", f"about {seconds:.1f} s a run"), candidate.opts)
                return False
        return True

    def _timed(self, candidate: Candidate, program: Any) -> Iterator[tuple[float, Candidate]]:
        self.tried += 1
        limit = EARLY_STOP * self.best[0] if self.best else None
        seconds = self.bench.time(program, limit)
        if isinstance(seconds, Drop):
            self._drop(seconds, candidate.opts)
            return
        if limit is not None and seconds > limit:
            self.dropped["early_stop"] += 1
            return
        first = self.best is None
        if self.best is None or seconds < self.best[0]:
            self.best = (seconds, candidate)
        if first or self.best[1] is candidate:
            self.programs[candidate.key] = program
        yield seconds, candidate

    def _compared(self, heuristic: Candidate, rounds: int) -> SearchResult:
        """The winner where it is faster than the heuristics side by side, else the heuristics."""
        assert self.best is not None
        seconds, winner = self.best
        plain = seconds
        if winner is not heuristic:
            seconds, plain = self.bench.compare(
                self.programs[winner.key], self.programs[heuristic.key]
            )
            if seconds > plain * MARGIN:
                seconds, winner = plain, heuristic
        result = SearchResult(
            winner.opts, winner.kernel, seconds, plain, winner is heuristic, rounds,
            self.tried, self.dropped,
        )  # fmt: skip
        debug(1, describe(result))
        return result

    def _drop(self, drop: Drop, opts: Sequence[Opt]) -> None:
        if not drop.reason:
            return
        self.dropped[drop.reason] += 1
        if self.config.log_drops:
            say_drop(drop, chain(opts))


def say_drop(drop: Drop, opts: str) -> None:
    """One line about a candidate that is out of the search."""
    detail = f": {drop.detail}" if drop.detail else ""
    print(f"[BEAM drop] {drop.reason}{detail} opts=[{opts}]", file=sys.stderr)


def describe(result: SearchResult) -> str:
    """One line for the log."""
    gain = result.heuristic_seconds / result.seconds if result.seconds else 1.0
    return (
        f"beam: {result.seconds * 1e6:.1f} us, {gain:.2f}x the heuristics, "
        f"{result.tried} candidates in {result.rounds} rounds: {chain(result.opts)}"
    )


def compute_operations(kernel: UOp) -> float:
    """Arithmetic of one run on one core, a vector counted as one operation."""
    total = 0.0
    for node in kernel.toposort():
        if node.op in O.ELEMENTWISE or node.op == O.INDEX:
            count = float(evaluations(node))
            for r in node.ranges:
                if r.op == O.RANGE and r.arg.kind is AxisKind.LANE:
                    count /= extent(r)
            total += count
    return total


def top_operations(names: Iterable[str]) -> str:
    """The most frequent op kinds with their counts, for a line about a dropped candidate."""
    return ", ".join(f"{name}={count}" for name, count in Counter(names).most_common(TOP_OPS))


def shrunk_grid(grid: Sequence[int]) -> tuple[list[int], float]:
    """A grid small enough to be timed, and by which factor it is smaller.

    While it is too large, the last axis above SHRINKABLE is halved; where none is, it stays.
    """
    sizes = list(grid)
    whole = _product(sizes)
    while _product(sizes) > MAX_TEST_GLOBAL_SIZE:
        places = [i for i, size in enumerate(sizes) if size > SHRINKABLE]
        if not places:
            break
        sizes[places[-1]] //= 2
    return sizes, whole / _product(sizes) if _product(sizes) else 1.0


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
