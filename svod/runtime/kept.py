"""Plans of graphs that were computed before: run again over other memory, not built again.

In: the plan of a graph, and which of its buffers hold inputs. Out: a `KeptPlan` that has the plan's
records and no memory of its own: each run is given the inputs, takes what it needs besides, and
gives back the outputs. Only plans that are one native call of kernels are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from svod.device.allocator import Allocator
from svod.device.buffer import Buffer, Storage
from svod.device.names import HOST_KINDS, base_key
from svod.device.registry import get_device
from svod.dtype.types import DType
from svod.runtime.flat import FlatPlan
from svod.runtime.ops import PreparedKernel, PreparedOp
from svod.runtime.ports import written_places


class _Output(NamedTuple):
    """A result: what it is, and the words of the records that hold its address."""

    nbytes: int
    size: int
    dtype: DType
    words: tuple[int, ...]


class _Scratch(NamedTuple):
    """Memory between kernels: the words that hold addresses in it, with offsets."""

    nbytes: int
    words: tuple[tuple[int, int], ...]


class KeptPlan:
    """The records of a plan, without its memory."""

    __slots__ = (
        "_allocator",
        "_device",
        "_inputs",
        "_ops",
        "_outputs",
        "_run",
        "_scratch",
        "_words",
    )

    def __init__(
        self,
        ops: Sequence[PreparedOp],
        run: Callable[[], int],
        words: memoryview,
        device: str,
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[_Output],
        scratch: Sequence[_Scratch],
    ) -> None:
        self._ops = ops  # keeps the code of the kernels
        self._run = run
        self._words = words
        self._device = device
        self._allocator: Allocator = get_device(device).allocator
        self._inputs = inputs
        self._outputs = outputs
        self._scratch = scratch

    def run(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """The outputs for these inputs, in new memory. Only one thread may run it at a time."""
        words, device, allocator = self._words, self._device, self._allocator
        for buffer, places in zip(inputs, self._inputs, strict=True):
            if places:
                address = buffer.address
                for word in places:
                    words[word] = address
        found = []
        for nbytes, size, dtype, places in self._outputs:
            made = Buffer(Storage(device, nbytes, allocator), size, dtype)
            address = made.address
            for word in places:
                words[word] = address
            found.append(made)
        taken = []
        for nbytes, uses in self._scratch:
            storage = Storage(device, nbytes, allocator)
            storage.allocate()
            address = storage.address
            for word, offset in uses:
                words[word] = address + offset
            taken.append(storage)
        self._run()
        return found


def kept_plan(
    ops: Sequence[PreparedOp],
    flat: FlatPlan,
    buffers: Sequence[Buffer],
    read: Sequence[int | None],
    made: Sequence[int],
) -> KeptPlan | None:
    """The plan without its memory; None if it cannot be kept.

    ``read`` and ``made`` are the places of inputs and outputs in the buffer table; an input that
    nothing reads has none.
    """
    if not all(type(op) is PreparedKernel for op in ops):
        return None
    device = buffers[0].device
    if base_key(device) not in HOST_KINDS or any(b.device != device for b in buffers):
        return None
    inputs = [place for place in read if place is not None]
    held = {*inputs, *made}
    # Buffers of the same memory have one place: in the next run they may be two.
    if len(held) < len(inputs) + len(made) or not written_places(ops).isdisjoint(inputs):
        return None
    words = flat.buffer_words
    scratch: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    for place, buffer in enumerate(buffers):
        if place not in held:
            uses = scratch.setdefault(buffer.storage.id, (buffer.storage.nbytes, []))[1]
            uses += [(word, buffer.offset) for word in words.get(place, ())]
    outputs = [
        _Output(
            buffers[place].nbytes, buffers[place].size, buffers[place].dtype, tuple(words[place])
        )
        for place in made
    ]
    return KeptPlan(
        ops, flat.run, flat.words, device,
        [() if place is None else tuple(words.get(place, ())) for place in read],
        outputs, [_Scratch(nbytes, tuple(uses)) for nbytes, uses in scratch.values()],
    )  # fmt: skip
