"""The memory planner: intermediate buffers that are never alive together share bytes.

In: schedule items with their buffers, and which buffers are outputs. Out: replacement buffers,
dependencies that keep the sharing safe in any execution order, and a report.
A buffer is alive from the first to the last execution level that touches it, both included, with
levels from the function the executor uses; bytes change hands only from one level to a later one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from svod.base.knobs import knobs
from svod.device.buffer import Buffer
from svod.device.names import base_key
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.runtime.order import execution_levels
from svod.runtime.packing import Block, lower_bound, pack, successions

ROUNDING = 256  # bytes; keeps every buffer of an arena on its own cache lines and vector-aligned


class MemoryMode(Enum):
    """How intermediate buffers share memory."""

    ARENA = "arena"  # packed into one allocation per device
    REMAP = "remap"  # a later buffer takes over a whole earlier one of the same size
    DISABLED = "disabled"

    @classmethod
    def parse(cls, text: str) -> MemoryMode:
        """The mode a text names; whatever names no other mode is the arena."""
        word = text.strip().lower()
        if word in ("off", "none", "0", "disabled"):
            return cls.DISABLED
        return cls.REMAP if word in ("remap", "pool") else cls.ARENA

    @classmethod
    def from_environment(cls) -> MemoryMode:
        """What `SVOD_MEMORY_PLANNER` says."""
        return cls.parse(knobs.memory_planner)


@dataclass(slots=True)
class MemoryItem:
    """What the planner must know of one schedule item."""

    id: int
    buffers: tuple[Buffer, ...]
    dependencies: Sequence[int] = ()
    outputs: frozenset[int] = frozenset()  # positions in `buffers` that are written
    instance_dependencies: Sequence[int] = ()
    is_kernel: bool = True  # its body is a SINK; operands of anything else are left alone
    masked_outputs: frozenset[int] = frozenset()  # positions of which data decide what is written


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of a plan, known before it runs."""

    mode: MemoryMode = MemoryMode.DISABLED
    buffers: int = 0  # intermediates the planner may place
    reused: int = 0  # of these, how many took over bytes of an earlier one
    logical_bytes: int = 0  # the intermediates, each with memory of its own
    planned_bytes: int = 0  # what is allocated for them instead
    lower_bound: int = 0  # the largest sum of living intermediates over the levels
    fixed_bytes: int = 0  # everything else the plan holds: inputs, outputs, constants
    constant_bytes: int = 0  # of these, copies and packed forms of frozen memory

    @property
    def saved_bytes(self) -> int:
        return max(0, self.logical_bytes - self.planned_bytes)

    @property
    def peak_bytes(self) -> int:
        """All memory the plan holds while it runs; nothing is allocated during a run."""
        return self.planned_bytes + self.fixed_bytes

    def with_fixed(self, fixed_bytes: int) -> MemoryReport:
        return replace(self, fixed_bytes=fixed_bytes)


@dataclass(frozen=True, slots=True)
class ReuseDependency:
    """Item `item` takes over bytes that item `on` was the last to use."""

    item: int
    on: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What the planner decided. Apply the dependencies first, then the replacements."""

    report: MemoryReport
    replacements: dict[int, Buffer] = field(default_factory=dict)  # by the id of the old buffer
    dependencies: tuple[ReuseDependency, ...] = ()

    @property
    def reused(self) -> int:
        return self.report.reused

    @property
    def saved_bytes(self) -> int:
        return self.report.saved_bytes


def plan_memory(
    items: Sequence[MemoryItem],
    output_ids: Collection[int] = (),
    mode: MemoryMode | None = None,
) -> MemoryPlan:
    """Decide which buffers share memory; `output_ids` are ids of buffers that must stay."""
    mode = MemoryMode.from_environment() if mode is None else mode
    levels = execution_levels(items, [item.instance_dependencies for item in items])
    lives = _lives(items, levels, output_ids)
    report = MemoryReport(
        mode,
        buffers=len(lives),
        logical_bytes=sum(life.buffer.nbytes for life in lives),
        lower_bound=sum(lower_bound(blocks) for blocks in _by_device(lives, exact=True).values()),
    )
    if mode is MemoryMode.DISABLED or len(lives) < 2:
        return MemoryPlan(replace(report, planned_bytes=report.logical_bytes))
    placed = _pack_arenas(lives) if mode is MemoryMode.ARENA else _share_whole(lives)
    report = replace(
        report, planned_bytes=placed.nbytes, reused=len({after for _, after in placed.handed_on})
    )
    dependencies = _dependencies(lives, placed.handed_on)
    return MemoryPlan(report, placed.replacements, dependencies)


def apply_reuse_dependencies(
    dependencies: Iterable[ReuseDependency], instance_dependencies: Sequence[list[int]]
) -> None:
    """Add the dependencies to the table of instance dependencies, each once."""
    for dependency in dependencies:
        if dependency.on not in instance_dependencies[dependency.item]:
            instance_dependencies[dependency.item].append(dependency.on)


def masked_slots(body: UOp) -> frozenset[int]:
    """The argument slots of which data decide what is stored: other bytes keep what they had."""
    found = set()
    for node in body.src:
        if node.op == O.SCATTER:
            target = node.src[0]
            while target.op in O.MOVEMENT:
                target = target.src[0]
            found.add(target.arg.slot)
    return frozenset(found)


def rounded(nbytes: int) -> int:
    """Bytes a buffer takes in an arena or a pool."""
    return -(-nbytes // ROUNDING) * ROUNDING


def pool_key(buffer: Buffer) -> tuple[str, int]:
    """Buffers with equal keys can take each other's place, whatever their shape and dtype."""
    return buffer.device, rounded(buffer.nbytes)


@dataclass(slots=True)
class _Life:
    """A buffer, the levels it is alive in, and the items that touch it."""

    buffer: Buffer
    first: int
    last: int
    users: list[int]
    first_users: list[int]


@dataclass(slots=True)
class _Placed:
    nbytes: int
    replacements: dict[int, Buffer]
    handed_on: set[tuple[int, int]]  # (earlier, later): places in the list of lives


def _lives(
    items: Sequence[MemoryItem], levels: Sequence[Sequence[int]], output_ids: Collection[int]
) -> list[_Life]:
    level_of = {index: number for number, level in enumerate(levels) for index in level}
    excluded = _excluded(items, output_ids)
    lives: dict[int, _Life] = {}
    for index in sorted(level_of, key=lambda index: (level_of[index], index)):
        item, level = items[index], level_of[index]
        for position, buffer in enumerate(item.buffers):
            if buffer.id in excluded:
                continue
            life = lives.get(buffer.id)
            if life is None:
                if position not in item.outputs or position in item.masked_outputs:
                    # Read, or kept in part, before anything wrote it: not ours to place.
                    excluded.add(buffer.id)
                    continue
                life = lives[buffer.id] = _Life(buffer, level, level, [], [])
            life.last = level
            if not life.users or life.users[-1] != index:
                life.users.append(index)
                if level == life.first:
                    life.first_users.append(index)
    return list(lives.values())


def _excluded(items: Sequence[MemoryItem], output_ids: Collection[int]) -> set[int]:
    """Ids of buffers that must keep the memory they have."""
    distinct = {id(item.buffers): item.buffers for item in items}  # turns of a loop share theirs
    buffers = {buffer.id: buffer for held in distinct.values() for buffer in held}
    handles: dict[object, set[int]] = {}
    for buffer in buffers.values():
        handles.setdefault(buffer.storage_id, set()).add(buffer.id)
    kept = {
        buffer.id
        for buffer in buffers.values()
        if buffer.id in output_ids
        or buffer.is_allocated
        or buffer.offset != 0
        or buffer.nbytes == 0
        or base_key(buffer.device) == "DISK"
        or len(handles[buffer.storage_id]) > 1
    }
    for item in items:
        if not item.is_kernel:
            kept.update([buffer.id for buffer in item.buffers])
    return kept


def _by_device(lives: Sequence[_Life], exact: bool = False) -> dict[str, list[Block]]:
    devices: dict[str, list[Block]] = {}
    for number, life in enumerate(lives):
        size = life.buffer.nbytes if exact else rounded(life.buffer.nbytes)
        block = Block(number, size, life.first, life.last)
        devices.setdefault(life.buffer.device, []).append(block)
    return devices


def _pack_arenas(lives: Sequence[_Life]) -> _Placed:
    placed = _Placed(0, {}, set())
    for device, blocks in _by_device(lives).items():
        if len(blocks) < 2:
            placed.nbytes += sum(lives[block.key].buffer.nbytes for block in blocks)
            continue
        offsets, total = pack(blocks)
        arena = _allocation(device, total)
        placed.nbytes += total
        for block in blocks:
            buffer = lives[block.key].buffer
            placed.replacements[buffer.id] = _part(arena, offsets[block.key], buffer)
        placed.handed_on |= successions(blocks, offsets)
    return placed


def _share_whole(lives: Sequence[_Life]) -> _Placed:
    """First come, first served: the free buffer of the same key that was freed last."""
    chains: dict[tuple[str, int], list[list[int]]] = {}
    for number, life in enumerate(lives):  # in the order of their first levels
        waiting = chains.setdefault(pool_key(life.buffer), [])
        free = [chain for chain in waiting if lives[chain[-1]].last < life.first]
        if free:
            max(free, key=lambda chain: lives[chain[-1]].last).append(number)
        else:
            waiting.append([number])
    placed = _Placed(0, {}, set())
    for (device, size), found in chains.items():
        for chain in found:
            if len(chain) == 1:
                placed.nbytes += lives[chain[0]].buffer.nbytes
                continue
            shared = _allocation(device, size)
            placed.nbytes += size
            for number in chain:
                buffer = lives[number].buffer
                placed.replacements[buffer.id] = _part(shared, 0, buffer)
            placed.handed_on.update(pairwise(chain))
    return placed


def _dependencies(
    lives: Sequence[_Life], handed_on: Iterable[tuple[int, int]]
) -> tuple[ReuseDependency, ...]:
    found = {
        ReuseDependency(item, on)
        for before, after in handed_on
        for item in lives[after].first_users
        for on in lives[before].users
    }
    return tuple(sorted(found, key=lambda dependency: (dependency.item, dependency.on)))


def _allocation(device: str, nbytes: int) -> Buffer:
    return Buffer.new(device, nbytes, dt.uint8)


def _part(whole: Buffer, offset: int, like: Buffer) -> Buffer:
    return whole.view(offset, like.size, like.dtype)
