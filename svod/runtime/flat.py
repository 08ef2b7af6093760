"""A plan as one flat array of records, run by one native call.

In: prepared ops in their groups, and buffers. Out: a `FlatPlan`, or None where some kernel is not
native code of the host; then the plain executor runs the plan. Other ops that native code cannot
do (Python custom functions, copies from files, faulty wiring) stay in the array as stops: the run
returns to Python for them and goes on after. Values and addresses are patched in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from svod.device.buffer import Buffer
from svod.ir import ops as O
from svod.runtime.custom import CustomFunction
from svod.runtime.executor import custom_values, launch_dims, run_custom, run_op
from svod.runtime.native import Kind, RecordArray, Stamps, launcher
from svod.runtime.native.layout import Record
from svod.runtime.ops import (
    CORE_ID,
    CompiledKernel,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
)
from svod.runtime.profile import KernelProfile, LaneTime

_RECORD_WORDS = Record.SIZE // 8
_CORES_WORD = Record.CORES // 8
WORD = 8  # bytes
# Handing a kernel to another thread costs about half a microsecond: shorter ones stay.
SMALL_BYTES, SMALL_FLOPS = 32 << 10, 64 << 10


class FlatPlan:
    """Records of a plan, and where each variable and each buffer is found in them."""

    __slots__ = (
        "_by_record", "_checked", "_names", "_ops", "_owners", "_places", "_symbolic",
        "buffer_words", "has_stops", "records", "run", "value_words", "words",
    )  # fmt: skip

    def __init__(self, ops: Sequence[PreparedOp]) -> None:
        self._ops = ops
        self.records = RecordArray()
        self._by_record: list[int] = []  # the op of each record
        self._places: list[Sequence[int]] = []  # per record: the buffer table's places it uses
        self._names: list[Sequence[str]] = []  # per record: variables, "" where fixed
        self._symbolic: list[tuple[int, PreparedKernel]] = []  # records whose size may change
        self._owners: list[object] = []  # what keeps native custom functions loaded
        self._checked: dict[int, list[Buffer]] = {}  # by record: what a check looks at
        self.has_stops = False

    @property
    def has_checks(self) -> bool:
        """Whether a run looks at what checks of indices found."""
        return bool(self._checked)

    # -- building -------------------------------------------------------------------------------

    def add_kernel(self, index: int, kernel: PreparedKernel, group: int) -> None:
        compiled = kernel.kernel
        cores = launch_dims(kernel).global_size[0]
        record = self.records.append(
            compiled.address, kernel.buffer_ptrs, kernel.vals, cores, Kind.KERNEL, group,
            small=cores == 1 and is_small(compiled),
        )  # fmt: skip
        if compiled.dims is None and _may_change(compiled):
            self._symbolic.append((record, kernel))
        names: Sequence[str] = compiled.var_names
        if names and kernel.fixedvars:
            names = ["" if n in kernel.fixedvars else n for n in names]
        self._note(index, kernel.buffer_indices, names)

    def add_copy(
        self, index: int, copy: PreparedCopy, buffers: Sequence[Buffer], group: int
    ) -> None:
        target, source = copy.buffer_indices[:2]
        addresses = (buffers[target].address, buffers[source].address)
        self.records.append(0, addresses, (buffers[target].nbytes,), 1, Kind.COPY, group)
        self._note(index, (target, source), ("",))

    def add_custom(
        self, index: int, custom: PreparedCustomFunction, function: CustomFunction,
        buffers: Sequence[Buffer], group: int,
    ) -> None:  # fmt: skip
        values = custom_values(custom, {})
        addresses = [buffers[place].address for place in custom.buffer_indices]
        self.records.append(
            function.address, addresses, [values[n] for n in function.var_names], 1,
            Kind.KERNEL, group,
        )  # fmt: skip
        self._owners.append(function.owner)
        names = ["" if n in custom.fixedvars else n for n in function.var_names]
        self._note(index, custom.buffer_indices, names)

    def add_check(
        self, index: int, custom: PreparedCustomFunction, buffers: Sequence[Buffer], group: int
    ) -> None:
        """Return to Python where the word of a check is not 0."""
        place = custom.buffer_indices[1]
        self.records.append(0, (buffers[place].address,), (), 1, Kind.TEST, group)
        self._note(index, (place,), ())
        self._checked[self.records.count - 1] = [buffers[p] for p in custom.buffer_indices]

    def add_stop(self, index: int, group: int) -> None:
        """Return to Python for an op."""
        self.records.append(0, (), (), 1, Kind.PYTHON, group)
        self._note(index, (), ())
        self.has_stops = True

    def _note(self, index: int, places: Sequence[int], names: Sequence[str]) -> None:
        self._by_record.append(index)
        self._places.append(places)
        self._names.append(names)

    def freeze(self) -> FlatPlan:
        """Lay the records out; from now on only words change."""
        records = self.records
        records.freeze()
        self.words = records.words
        self.buffer_words: dict[int, list[int]] = {}
        self.value_words: dict[str, list[int]] = {}
        starts = records.first_words()
        for word, places, names in zip(starts, self._places, self._names, strict=True):
            for place in places:
                self.buffer_words.setdefault(place, []).append(word)
                word += 1
            for name in names:
                if name and name != CORE_ID:
                    self.value_words.setdefault(name, []).append(word)
                word += 1
        self.run: Callable[[], int] = partial(launcher().run, records)
        if self._checked and not self.has_stops:
            self.run = self._run_checked
        return self

    # -- changing values and addresses ----------------------------------------------------------

    def sizes_with(self, values: Mapping[str, int]) -> list[tuple[int, int]]:
        """Words and numbers of all launch sizes that follow variables; changes nothing."""
        return [
            (record * _RECORD_WORDS + _CORES_WORD, launch_dims(kernel, values).global_size[0])
            for record, kernel in self._symbolic
        ]

    def set_values(self, values: Mapping[str, int], sizes: Sequence[tuple[int, int]]) -> None:
        """Write checked values, and the launch sizes that follow from them."""
        words = self.words
        for name, value in values.items():
            for word in self.value_words.get(name, ()):
                words[word] = value
        for word, cores in sizes:
            words[word] = cores

    # -- running --------------------------------------------------------------------------------

    def run_with_stops(
        self, buffers: Sequence[Buffer], variables: Mapping[str, int], stamps: Stamps | None = None
    ) -> None:
        """Run, with Python at the stops."""
        run, records = launcher().run, self.records
        at = run(records, 0, stamps)
        while at < records.count:
            run_op(self._ops[self._by_record[at]], buffers, variables)
            at = run(records, at + 1, stamps)

    def _run_checked(self) -> int:
        """Run, with Python only where a check stops the run."""
        run, records = launcher().run, self.records
        at = run(records)
        while at < records.count:
            op = self._ops[self._by_record[at]]
            assert isinstance(op, PreparedCustomFunction), "there are no other stops"
            held = self._checked[at]
            run_custom(replace(op, buffer_indices=list(range(len(held)))), held, {})
            at = run(records, at + 1)  # the clock stopped it, not the check
        return at

    def kernel_of(self, record: int) -> PreparedKernel | None:
        """The kernel launch a record stands for, if it is one."""
        op = self._ops[self._by_record[record]]
        return op if isinstance(op, PreparedKernel) else None

    def profiles(self, stamps: Stamps) -> list[KernelProfile]:
        """One profile per kernel in order of execution, from the times of a run."""
        pieces: dict[int, list[LaneTime]] = {}
        for piece in launcher().slices(stamps):
            part = LaneTime(piece.lane, piece.start, piece.end)
            pieces.setdefault(piece.record, []).append(part)
        profiles = []
        for record, index in enumerate(self._by_record):
            op, parts = self._ops[index], pieces.get(record)
            if isinstance(op, PreparedKernel) and parts:
                profiles.append(_profile(op, index, parts))
        return profiles


def _may_change(kernel: CompiledKernel) -> bool:
    return kernel.global_size[0].op != O.CONST


def is_small(kernel: CompiledKernel) -> bool:
    if kernel.bytes_moved is None or kernel.flops is None:
        return False
    return kernel.bytes_moved < SMALL_BYTES and kernel.flops < SMALL_FLOPS


def _profile(kernel: PreparedKernel, index: int, parts: Sequence[LaneTime]) -> KernelProfile:
    return KernelProfile(
        kernel.kernel,
        kernel.device,
        len(kernel.buffer_indices),
        min(part.start_ns for part in parts),
        max(part.end_ns for part in parts),
        parts[0].lane,
        index,
        tuple(parts) if len(parts) > 1 else (),
    )
