"""Pickles as data: a stack machine that builds plain containers and runs nothing.

In: bytes, and what the globals and the persistent ids in them stand for. Out: the value they
describe, and where it ends. Opcodes that call, import or make objects of classes do so only through
`Names`, which knows a fixed list; anything else is refused by its name. Numbers are bounded, keys
of dicts are scalars, and a value may neither contain itself nor be huge when it is spelled out.
"""

from __future__ import annotations

import pickletools
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from svod.nn.state import StateFileError

DEPTH_LIMIT = 256  # of containers in containers
VALUES_LIMIT = 1 << 27  # of a value when shared parts are counted wherever they occur
NUMBER_LIMIT = 256  # bytes or digits of one whole number
_NAMES = {op.code.encode("latin1")[0]: op.name for op in pickletools.opcodes}


class Name(NamedTuple):
    """A global of a pickle: a name, and what it does with its arguments."""

    text: str
    call: Callable[..., Any]


class Opaque:
    """The base of values that only calls take: they are refused where the pickle ends."""

    __slots__ = ()


class _Mark:
    __slots__ = ()


_MARK = _Mark()


class Machine:
    """One pickle on its way to a value."""

    def __init__(
        self,
        data: memoryview,
        start: int,
        names: Mapping[str, Any],
        persistent: Callable[[Any], Any],
        path: str,
    ) -> None:
        self.data, self.place, self.path = data, start, path
        self.names, self.persistent = names, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []  # where the marks lie on the stack
        self.memo: dict[int, Any] = {}

    def run(self) -> tuple[Any, int]:
        """The value, and the place behind it."""
        while True:
            (code,) = self.take(1)
            if code == 0x2E:  # STOP
                break
            action = _ACTIONS.get(code)
            if action is None:
                name = _NAMES.get(code, f"{code:#04x}")
                raise self.error(f"the opcode {name} is not read: only tensors and containers are")
            action(self)
        value = self.pop()
        if self.stack:
            raise self.error(f"{len(self.stack)} values are left over")
        check_plain(value, self.error)
        return value, self.place

    # -- bytes ----------------------------------------------------------------------------------

    def error(self, what: str) -> StateFileError:
        return StateFileError(f"{self.path}: byte {self.place} of the pickle: {what}")

    def take(self, count: int) -> memoryview:
        stop = self.place + count
        if stop > len(self.data):
            raise self.error(f"{count} bytes are read where {len(self.data) - self.place} are left")
        found = self.data[self.place : stop]
        self.place = stop
        return found

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.place
        stop = min(len(self.data), end + 4096)
        while end < stop and self.data[end] != 0x0A:
            end += 1
        if end == stop:
            raise self.error("a line does not end")
        found = bytes(self.data[self.place : end])
        self.place = end + 1
        return self.decoded(found)

    def decoded(self, data: Any) -> str:
        try:
            return str(data, "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self.error(f"a text is not UTF-8: {error}") from None

    # -- the stack ------------------------------------------------------------------------------

    def pop(self) -> Any:
        if not self.stack or (self.marks and self.marks[-1] >= len(self.stack)):
            raise self.error("the stack is empty")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise self.error("there is no mark on the stack")
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def popped(self, count: int) -> list[Any]:
        found = [self.pop() for _ in range(count)]
        return found[::-1]

    # -- actions --------------------------------------------------------------------------------

    def integer(self, text: str) -> Any:
        if text in ("00", "01"):
            return text == "01"
        digits = text.removesuffix("L")
        if len(digits) > NUMBER_LIMIT:
            raise self.error(f"a whole number has {len(digits)} digits")
        try:
            return int(digits)
        except ValueError:
            raise self.error(f"{digits!r:.40} is no whole number") from None

    def floating(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise self.error(f"{text!r:.40} is no number") from None

    def long(self, count: int) -> int:
        if not 0 <= count <= NUMBER_LIMIT:
            raise self.error(f"a whole number has {count} bytes")
        return int.from_bytes(self.take(count), "little", signed=True)

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise self.error(f"elements are appended to a {type(target).__name__}")
        target.extend(values)

    def put(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, dict):
            raise self.error(f"keys are set in a {type(target).__name__}")
        if len(values) % 2:
            raise self.error("a key has no value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            parts = key if type(key) is tuple else (key,)
            for part in parts:
                if not (part is None or isinstance(part, (str, int, float, bytes))):
                    raise self.error(f"a key of a dict holds a {type(part).__name__}")
            target[key] = value

    def get(self, place: int) -> None:
        if place not in self.memo:
            raise self.error(f"nothing was noted at {place}")
        self.stack.append(self.memo[place])

    def note(self, place: int) -> None:
        self.memo[place] = self.top()

    def find(self, module: Any, name: Any) -> Any:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise self.error("a global has no name")
        text = f"{module}.{name}"
        if text not in self.names:
            raise self.error(
                f"{text} is not read: files of tensors may hold tensors, dicts, lists, tuples, "
                "texts and numbers, and no other objects; no code in a file is run"
            )
        return self.names[text]

    def reduce(self) -> Any:
        function, args = self.popped(2)
        if not isinstance(function, Name) or type(args) is not tuple:
            raise self.error(f"a {type(function).__name__} is called")
        try:
            return function.call(*args)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, StateFileError):
                raise
            raise self.error(f"{function.text} is called with wrong arguments: {error}") from None

    def build(self) -> None:
        """The attributes of an OrderedDict: a state dict has its versions there."""
        state = self.pop()
        target = self.top()
        is_state = type(target) is OrderedDict and isinstance(state, dict)
        if not is_state or set(state) - {"_metadata"}:
            raise self.error(f"attributes of a {type(target).__name__} are set")
        for key, value in state.items():
            setattr(target, key, value)

    def persist(self) -> None:
        self.stack.append(self.persistent(self.pop()))


def check_plain(value: Any, error: Callable[[str], Exception]) -> None:
    """Refuse a value that holds itself, is too deep, or has too many parts when spelled out."""
    measured: dict[int, tuple[int, int]] = {}  # depth and parts of containers that are done
    open_: set[int] = set()
    work: list[tuple[Any, bool]] = [(value, False)]
    while work:
        part, is_done = work.pop()
        if isinstance(part, (Opaque, Name)):
            what = part.text if isinstance(part, Name) else type(part).__name__.lower()
            raise error(f"{what} stands where a value is expected")
        if not isinstance(part, (dict, list, tuple)) or (id(part) in measured and not is_done):
            continue
        inside = _parts(part)
        if is_done:
            sizes = [measured[id(p)] for p in inside if id(p) in measured]
            depth = 1 + max([d for d, _ in sizes], default=0)
            count = 1 + len(inside) + sum(n for _, n in sizes)
            if depth > DEPTH_LIMIT or count > VALUES_LIMIT:
                raise error(f"containers of depth {depth} with {count} values")
            measured[id(part)] = depth, count
            open_.discard(id(part))
        elif id(part) in open_:
            raise error(f"a {type(part).__name__} contains itself")
        else:
            open_.add(id(part))
            work.append((part, True))
            work += [(p, False) for p in inside]


def _parts(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        return list(value)
    own = getattr(value, "_metadata", None)
    return [*value.values(), *([own] if own is not None else [])]


def _pusher(read: Callable[[Machine], Any]) -> Callable[[Machine], None]:
    def act(machine: Machine) -> None:
        machine.stack.append(read(machine))

    return act


def _text(form: str) -> Callable[[Machine], None]:
    return _pusher(lambda m: m.decoded(m.take(m.number(form))))


def _bytes(form: str) -> Callable[[Machine], None]:
    return _pusher(lambda m: bytes(m.take(m.number(form))))


def _string(form: str) -> Callable[[Machine], None]:
    """Texts of Python 2, which torch reads as UTF-8."""
    return _text(form)


def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))


_ACTIONS: dict[int, Callable[[Machine], Any]] = {
    ord(code): action
    for code, action in {
        "\x80": lambda m: m.take(1),  # PROTO
        "\x95": lambda m: m.take(8),  # FRAME
        "(": _mark,
        "0": lambda m: m.pop(),
        "1": lambda m: m.since_mark() and None,
        "2": lambda m: m.stack.append(m.top()),
        "N": _pusher(lambda m: None),
        "\x88": _pusher(lambda m: True),
        "\x89": _pusher(lambda m: False),
        "I": _pusher(lambda m: m.integer(m.line())),
        "L": _pusher(lambda m: m.integer(m.line())),
        "F": _pusher(lambda m: m.floating(m.line())),
        "J": _pusher(lambda m: m.number("<i")),
        "K": _pusher(lambda m: m.number("<B")),
        "M": _pusher(lambda m: m.number("<H")),
        "\x8a": _pusher(lambda m: m.long(m.number("<B"))),
        "\x8b": _pusher(lambda m: m.long(m.number("<i"))),
        "G": _pusher(lambda m: m.number(">d")),
        "X": _text("<I"),
        "\x8c": _text("<B"),
        "\x8d": _text("<Q"),
        "U": _string("<B"),
        "T": _string("<I"),
        "C": _bytes("<B"),
        "B": _bytes("<I"),
        "\x8e": _bytes("<Q"),
        "}": _pusher(lambda m: {}),
        "]": _pusher(lambda m: []),
        ")": _pusher(lambda m: ()),
        "d": _pusher(lambda m: _dict_of(m)),
        "l": _pusher(lambda m: m.since_mark()),
        "t": _pusher(lambda m: tuple(m.since_mark())),
        "\x85": _pusher(lambda m: tuple(m.popped(1))),
        "\x86": _pusher(lambda m: tuple(m.popped(2))),
        "\x87": _pusher(lambda m: tuple(m.popped(3))),
        "a": lambda m: m.append([m.pop()]),
        "e": lambda m: m.append(m.since_mark()),
        "s": lambda m: m.put(m.popped(2)),
        "u": lambda m: m.put(m.since_mark()),
        "g": lambda m: m.get(m.integer(m.line())),
        "h": lambda m: m.get(m.number("<B")),
        "j": lambda m: m.get(m.number("<I")),
        "p": lambda m: m.note(m.integer(m.line())),
        "q": lambda m: m.note(m.number("<B")),
        "r": lambda m: m.note(m.number("<I")),
        "\x94": lambda m: m.note(len(m.memo)),
        "c": _pusher(lambda m: m.find(m.line(), m.line())),
        "\x93": _pusher(lambda m: m.find(*m.popped(2))),
        "R": _pusher(lambda m: m.reduce()),
        "b": lambda m: m.build(),
        "Q": lambda m: m.persist(),
    }.items()
}


def _dict_of(machine: Machine) -> dict[Any, Any]:
    values = machine.since_mark()
    found: dict[Any, Any] = {}
    machine.stack.append(found)
    machine.put(values)
    machine.stack.pop()
    return found
