"""What an exported plan consists of: records, where their words point, memory, arguments.

In: a plan, a kernel for each of its launches, and the names of what is given at a run. Out: an
`Exported`, which knows no addresses: every word that will hold one is a place and an offset. The
places are the words themselves, the weights, the memory of an instance, and what callers give.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from svod.base.errors import ConfigError, UnsupportedError
from svod.device.launch import resolve_launch_dims
from svod.device.names import base_key
from svod.ir import ops as O
from svod.ir.guards import CHECK
from svod.ir.node import UOp
from svod.runtime.content import Region, find_regions, mark_needed
from svod.runtime.flat import is_small
from svod.runtime.native.layout import Flag, Record
from svod.runtime.native.records import Kind
from svod.runtime.ops import (
    CORE_ID,
    CompiledKernel,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    collect_runtime_vars,
)
from svod.runtime.ports import Port, written_places

if TYPE_CHECKING:
    from svod.runtime.plan import ExecutionPlan

LINE = 64
WORDS, WEIGHTS, MEMORY, GIVEN = 0, 1, 2, 3  # places; GIVEN + n is argument n
_RECORD_WORDS = Record.SIZE // 8


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as a call of the plan makes it: its buffers and values in the order it takes."""

    kernel: CompiledKernel
    buffers: Sequence[int]
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or an output of a run."""

    port: Port
    # Where its bytes are copied from or to; None where kernels read and write what is given.
    copied: int | None


@dataclass(frozen=True, slots=True)
class Variable:
    """A run-time size: its bounds, and the words that hold it."""

    name: str
    low: int
    high: int
    words: tuple[int, ...]


@dataclass(slots=True)
class Exported:
    """A plan without addresses."""

    words: list[int] = field(default_factory=list)  # records, then their buffers and values
    records: int = 0
    functions: list[tuple[int, int]] = field(default_factory=list)  # word, number of a symbol
    symbols: list[str] = field(default_factory=list)
    fixes: list[tuple[int, int, int]] = field(default_factory=list)  # place, word, offset
    sizes: list[tuple[int, UOp]] = field(default_factory=list)  # word, expression of variables
    arguments: list[Argument] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    memory_bytes: int = 0
    weights_bytes: int = 0
    starts: list[tuple[int, int, int]] = field(default_factory=list)  # memory, weights, bytes
    weights: list[tuple[int, Region]] = field(default_factory=list)  # offset, what lies there


def contents(
    plan: ExecutionPlan, launches: Sequence[Launch | None], given: Collection[str] | None
) -> Exported:
    """The parts of a plan; ``given`` names the inputs that are no weights, None for all."""
    return _Reading(plan, launches, given).found


class _Reading:
    def __init__(
        self, plan: ExecutionPlan, launches: Sequence[Launch | None], given: Collection[str] | None
    ) -> None:
        self.found = Exported()
        self.plan, self.launches = plan, launches
        self.ops: Sequence[PreparedOp] = plan.prepared_ops()
        self.buffers = plan.buffers()
        self._require_host()
        self.regions = find_regions(self.buffers)
        self.home = {p: region for region in self.regions for p in region.places}
        ports = self._ports(given)
        inputs = [port.index for port in plan.ports if not port.is_output]
        ordered = [self.ops[index] for index in plan.order]
        mark_needed(self.regions, ordered, self.buffers, inputs, plan.output_buffer_indices())
        self.at: dict[int, tuple[int, int]] = {}  # region -> its place, and where it starts there
        self._place_arguments(ports)
        self._place_the_rest(ports)
        self._records()
        self._variables()

    # -- memory -----------------------------------------------------------------------------------

    def _require_host(self) -> None:
        elsewhere = sorted({b.device for b in self.buffers if base_key(b.device) != "CPU"})
        if elsewhere:
            raise UnsupportedError(
                f"the plan uses memory of {', '.join(elsewhere)}: only plans that live on the CPU "
                "can be exported; realize what comes from files first",
                "export",
            )

    def _ports(self, given: Collection[str] | None) -> list[Port]:
        ports = self.plan.ports
        if given is None:
            return list(ports)
        known = [port.name for port in ports if not port.is_output]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ConfigError(
                f"{unknown[0]!r} is no input of the plan; its inputs are {', '.join(known)}"
            )
        return [port for port in ports if port.is_output or port.name in given]

    def _place_arguments(self, ports: Sequence[Port]) -> None:
        """Memory that callers give is used as it is, where it is the port's alone."""
        for number, port in enumerate(ports):
            region = self.home[port.index]
            buffer = self.buffers[port.index]
            is_whole = (buffer.address, buffer.nbytes) == (region.first, region.end - region.first)
            keeps = port.is_output and region.is_needed  # what was there before a run
            is_own = is_whole and not port.obstacle and not keeps and id(region) not in self.at
            if is_own:
                self.at[id(region)] = (GIVEN + number, region.start - region.first)

    def _place_the_rest(self, ports: Sequence[Port]) -> None:
        found = self.found
        written = {id(self.home[place]) for place in written_places(self.ops)}
        written |= {id(self.home[p.index]) for p in ports if id(self.home[p.index]) not in self.at}
        for region in self.regions:
            if id(region) in self.at:
                continue
            if region.is_needed:
                offset = found.weights_bytes
                found.weights.append((offset, region))
                found.weights_bytes += -(-region.nbytes // LINE) * LINE
                if id(region) not in written:
                    self.at[id(region)] = (WEIGHTS, offset)
                    continue
                found.starts.append((found.memory_bytes, offset, region.nbytes))
            self.at[id(region)] = (MEMORY, found.memory_bytes)
            found.memory_bytes += -(-region.nbytes // LINE) * LINE
        for number, port in enumerate(ports):
            place, offset = self.where(port.index)
            found.arguments.append(Argument(port, None if place == GIVEN + number else offset))

    def where(self, index: int) -> tuple[int, int]:
        """The place of a buffer, and its offset there."""
        region = self.home[index]
        place, start = self.at[id(region)]
        return place, start + self.buffers[index].address - region.start

    # -- records ----------------------------------------------------------------------------------

    def _records(self) -> None:
        rows: list[_Row] = []
        number = 0
        for group in self.plan.groups:
            together = len(group) > 1 and not any(self._may_thread(index) for index in group)
            for index in group:
                row = self._row(index, number)
                if row is not None:
                    rows.append(row)
                number += not together
            number += together
        self._lay_out(rows)

    def _may_thread(self, index: int) -> bool:
        launch = self.launches[index]
        return launch is not None and bool(launch.kernel.global_size[0].vmax > 1)

    def _row(self, index: int, group: int) -> _Row | None:
        """The record of an op; None for a view, which moves nothing."""
        op, launch = self.ops[index], self.launches[index]
        if isinstance(op, PreparedBufferView):
            return None
        if isinstance(op, PreparedCopy):
            target, source = op.buffer_indices[:2]
            return _Row(Kind.COPY, group, [target, source], [self.buffers[target].nbytes])
        if isinstance(op, PreparedCustomFunction):
            if op.kind == CHECK:
                return _Row(Kind.TEST, group, [op.buffer_indices[1]])
            raise UnsupportedError(
                f"the plan calls {op.kind}, which is code of this process: it cannot be exported",
                "export",
            )
        assert isinstance(op, PreparedKernel) and launch is not None
        kernel, values = launch.kernel, launch.values
        dims = kernel.dims or resolve_launch_dims(kernel.global_size, kernel.local_size, values)
        names = ["" if n in op.fixedvars or n == CORE_ID else n for n in kernel.var_names]
        return _Row(
            Kind.KERNEL, group, launch.buffers, [values.get(n, 0) for n in kernel.var_names], names,
            self._symbol(kernel), dims.global_size[0], kernel.global_size[0],
            int(Flag.SMALL) if dims.global_size[0] == 1 and is_small(kernel) else 0,
        )  # fmt: skip

    def _symbol(self, kernel: CompiledKernel) -> int:
        symbol = getattr(kernel.program, "name", "")
        if symbol not in self.found.symbols:
            self.found.symbols.append(symbol)
        return self.found.symbols.index(symbol)

    def _lay_out(self, rows: Sequence[_Row]) -> None:
        """The words, with 0 where an address will be."""
        found = self.found
        found.records = len(rows)
        words = found.words = [0] * (len(rows) * _RECORD_WORDS)
        self.values: dict[str, list[int]] = {}
        for number, row in enumerate(rows):
            start = number * _RECORD_WORDS
            words[start + Record.CORES // 8] = row.cores
            words[start + Record.KIND // 8] = int(row.kind)
            words[start + Record.GROUP // 8] = row.group
            words[start + Record.FLAGS // 8] = row.flags
            if row.symbol is not None:
                found.functions.append((start + Record.FUNCTION // 8, row.symbol))
            if row.size is not None and row.size.op != O.CONST:
                found.sizes.append((start + Record.CORES // 8, row.size))
            found.fixes.append((WORDS, start + Record.BUFFERS // 8, len(words) * 8))
            for index in row.buffers:
                place, offset = self.where(index)
                found.fixes.append((place, len(words), offset))
                words.append(0)
            found.fixes.append((WORDS, start + Record.VALUES // 8, len(words) * 8))
            for name, value in zip(row.names or [""] * len(row.values), row.values, strict=True):
                if name:
                    self.values.setdefault(name, []).append(len(words))
                words.append(value)
        found.fixes.sort()

    def _variables(self) -> None:
        bounds = self.plan.bounds
        needed = {v.name for _, size in self.found.sizes for v in collect_runtime_vars(size)}
        for name in sorted(bounds.keys() | self.values.keys() | (needed - {CORE_ID})):
            limits = bounds.get(name, [(-(1 << 63), (1 << 63) - 1)])
            low, high = max(low for low, _ in limits), min(high for _, high in limits)
            self.found.variables.append(Variable(name, low, high, tuple(self.values.get(name, ()))))


@dataclass(frozen=True, slots=True)
class _Row:
    """One record: what it does, and the buffers and values it takes."""

    kind: Kind
    group: int
    buffers: Sequence[int]
    values: Sequence[int] = ()
    names: Sequence[str] = ()  # of the values; empty where they are fixed
    symbol: int | None = None
    cores: int = 1
    size: UOp | None = None  # what the cores follow from
    flags: int = 0
