"""The carrier of a process: a thread that carries out collectives while kernels run.

A plan asks for a collective as soon as its values are there and waits for it where it needs the
result. What was asked for is carried out in that order. An error of the thread is raised by whoever
waits; after it nothing is carried any more.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from svod.base.errors import ConfigError
from svod.device.buffer import Buffer
from svod.distributed.mpi import LINE_BYTES, MOVES, World
from svod.runtime.custom import register_custom_function
from svod.schedule.buckets import BEGIN, END

LOOK = 1e-3  # seconds between two looks at what is being sent
LOGGED = 10_000  # transfers that are remembered
Array = np.ndarray[Any, Any]
_NOTHING: Array = np.zeros(0)


class Transfer:
    """A collective that has begun: what it is, and the seconds at which it was asked for, carried
    out, waited for and over."""

    __slots__ = (
        "asked", "begun", "done", "ended", "error", "got", "kind", "line", "nbytes", "over",
        "waited",
    )  # fmt: skip

    def __init__(self, kind: str, line: str, nbytes: int, got: Array) -> None:
        self.kind, self.line, self.nbytes, self.got = kind, line, nbytes, got
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.asked = time.perf_counter()
        self.begun = self.ended = self.waited = self.done = 0.0

    @property
    def seconds(self) -> float:
        """How long it was under way."""
        return self.ended - self.begun

    @property
    def exposed(self) -> float:
        """How long the plan had nothing else to do."""
        return max(0.0, min(self.done - self.waited, self.seconds))


class Carrier:
    """A thread that carries out the collectives of this process in order, while kernels run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: deque[Transfer] = deque(maxlen=LOGGED)
        self._pending: dict[tuple[object, ...], Transfer] = {}
        self._queue: SimpleQueue[tuple[Transfer, Callable[[], None]]] = SimpleQueue()
        threading.Thread(target=self._work, name="svod collectives", daemon=True).start()
        atexit.register(self.drain)

    def drain(self) -> None:
        """Before the process ends: what was sent last arrives."""
        if not self.world.is_broken:
            self.ask(("drain",), Transfer("drain", "", 0, _NOTHING), self.world.finish_sends)
            self._pending.pop(("drain",)).over.wait(self.world.seconds + 1)

    def begin(
        self, buffers: Sequence[Buffer], attrs: tuple[object, ...], values: Mapping[str, int]
    ) -> None:
        """A beginning in a plan: where the result lands, perhaps the one before, what is sent."""
        mesh_name, axis, kind, fold, number = attrs
        group, ranks = self.world.group(str(mesh_name), str(axis))
        got, sent = buffers[0].numpy(), buffers[-1].numpy()
        line = f"{kind} {number} over {axis}, {sent.dtype}[{sent.size}], fold {fold}"
        self.ask(
            (mesh_name, number),
            Transfer(str(kind), line, sent.nbytes, got),
            partial(self._carry, group, ranks, line, MOVES[str(kind)], got, sent, fold),
        )

    def ask(self, key: tuple[object, ...], transfer: Transfer, work: Callable[[], None]) -> None:
        """Have something carried out after all that was asked for before."""
        self._pending[key] = transfer
        self._queue.put((transfer, work))

    def end(
        self, buffers: Sequence[Buffer], attrs: tuple[object, ...], values: Mapping[str, int]
    ) -> None:
        """An end in a plan: wait for the result."""
        transfer = self.finished(attrs)
        buffers[0].numpy().reshape(-1)[:] = transfer.got.reshape(-1)
        transfer.got = _NOTHING  # what is remembered keeps no memory

    def finished(self, key: tuple[object, ...]) -> Transfer:
        """The transfer with a key, which is over."""
        transfer = self._pending.pop(key)
        transfer.waited = time.perf_counter()
        transfer.over.wait()
        transfer.done = time.perf_counter()
        if transfer.error is not None:
            self._pending.clear()
            raise transfer.error
        self.log.append(transfer)
        return transfer

    def meet(self, line: str) -> None:
        """Wait until every rank has come here."""
        world = self.world
        transfer = Transfer("meet", line, 0, _NOTHING)
        everyone = tuple(range(world.size))
        self.ask(("meet", line), transfer, partial(world.meet, world.comm, everyone, line))
        self.finished(("meet", line))

    # -- from one rank to another ------------------------------------------------------------------

    def can_send(self) -> None:
        """Let plans send and receive; the custom functions of a pipeline are implemented here."""
        register_custom_function("distributed.send", self._send, replace=True)
        register_custom_function("distributed.receive", self._receive, replace=True)

    def tell(self, rank: int, text: str) -> None:
        """Send a line of text."""
        self._post(rank, "text", np.frombuffer(text.encode().ljust(LINE_BYTES, b" "), np.uint8))

    def hear(self, rank: int, what: str) -> str:
        """A line of text that another rank sends."""
        got = np.zeros(LINE_BYTES, np.uint8)
        self._take(rank, "text", got, what)
        return got.tobytes().decode().rstrip()

    def _send(
        self, buffers: Sequence[Buffer], attrs: tuple[object, ...], values: Mapping[str, int]
    ) -> None:
        """A send in a plan: its word, perhaps what comes before, the value."""
        buffers[0].numpy()[:] = 0
        value = buffers[-1].numpy()
        self._post(int(str(attrs[0])), f"{value.dtype}[{value.size}]", value.copy())

    def _receive(
        self, buffers: Sequence[Buffer], attrs: tuple[object, ...], values: Mapping[str, int]
    ) -> None:
        got = buffers[0].numpy()
        self._take(int(str(attrs[0])), f"{got.dtype}[{got.size}]", got, f"receive {attrs[1]}")

    def _post(self, rank: int, line: str, value: Array) -> None:
        transfer = Transfer("send", line, value.nbytes, value)
        self._queue.put((transfer, partial(self.world.post, rank, line, value)))

    def _take(self, rank: int, line: str, got: Array, what: str) -> None:
        key = ("receive", what, rank)
        transfer = Transfer("receive", line, got.nbytes, got)
        self.ask(key, transfer, partial(self.world.take, rank, line, got, what))
        self.finished(key).got = _NOTHING

    def _carry(
        self, group: Any, ranks: tuple[int, ...], line: str, move: Callable[..., Any],
        got: Array, sent: Array, fold: int,
    ) -> None:  # fmt: skip
        self.world.meet(group, ranks, line)
        move(self.world, group, ranks, line, got, sent, fold)

    def _work(self) -> None:
        broken: BaseException | None = None
        while True:
            try:  # what was sent moves only while this thread looks at it
                transfer, work = self._queue.get(timeout=LOOK if self.world.is_sending() else None)
            except Empty:
                continue
            transfer.begun = time.perf_counter()
            try:
                if broken is not None:
                    raise broken
                work()
            except BaseException as error:  # whoever waits for it raises it
                transfer.error = broken = error
            transfer.ended = time.perf_counter()
            transfer.over.set()


def transfers() -> list[Transfer]:
    """The last transfers that this process waited for, oldest first."""
    return [*the_carrier().log]


@cache
def the_carrier() -> Carrier:
    """The one of this process; MPI starts with it."""
    carrier = Carrier(World())
    register_custom_function(BEGIN, carrier.begin, replace=True)
    register_custom_function(END, carrier.end, replace=True)
    return carrier


def connect(count: int, seconds: float) -> World:
    """The ranks of this run, which must be as many as a mesh wants."""
    world = the_carrier().world
    world.seconds = seconds
    if world.size != count:
        raise ConfigError(f"a mesh of {count} ranks in a run of {world.size} processes")
    return world
