"""Runs of a plan on memory that is given by address: the shortest way in for other runtimes.

In: a plan and the names of its ports. Out: a callable that takes one address per port, in that
order, and runs the plan there. Nothing is converted and no buffer is made: the caller vouches for
dtypes, sizes, alignment, and that memory which is written is nobody else's during the run. The
plan belongs to the callable from then on, since it holds addresses that outlive no call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from svod.device.buffer import Buffer, Storage
from svod.runtime import plan as plans
from svod.runtime.plan import ExecutionPlan


class AddressedPlan:
    """A plan that runs on other memory at every call."""

    __slots__ = ("_indirect", "_names", "_values", "_words", "plan")

    def __init__(self, plan: ExecutionPlan, names: Sequence[str]) -> None:
        self.plan = plan
        self._names = tuple(names)
        wiring = plan._wiring
        self._words: list[tuple[int, int]] = []  # place among the addresses, word of the records
        self._indirect: list[tuple[int, str]] = []  # ports that need a buffer
        for place, name in enumerate(names):
            direct = wiring._direct.get(name)
            if direct is None:
                self._indirect.append((place, name))
            else:
                self._words += [(place, word) for word in direct[2]]
        self._values: dict[str, int] = {}

    def __call__(self, addresses: Sequence[int], values: Mapping[str, int] | None = None) -> None:
        """Run on this memory, with these values of variables where they are not the last ones."""
        plan = self.plan
        with plan._lock:
            if self._indirect or plan._run is None or plans.watchers:
                self._bind_buffers(addresses)
            else:
                words = plan._wiring._words
                for place, word in self._words:
                    words[word] = addresses[place]
            if values and values != self._values:
                plan.set_vars(values)
                self._values = dict(values)
            run = plan._run
            if run is None or plans.watchers:
                plan.execute()
            else:
                run()

    def _bind_buffers(self, addresses: Sequence[int]) -> None:
        """The long way, for plans with stops in Python, views of ports, or other devices."""
        wiring = self.plan._wiring
        wiring.settle()
        for name, address in zip(self._names, addresses, strict=True):
            port = wiring.ports[name]
            device = wiring.buffers[port.index].device
            storage = Storage.wrap(device, port.nbytes, address, None)
            wiring._replace(port.index, Buffer(storage, port.size, port.dtype))
