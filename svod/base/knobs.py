"""Every `SVOD_*` variable, declared once: name, type, default, meaning.

`from svod.base.knobs import knobs`, then `knobs.debug`. The first read parses the environment and
leaves the value in the instance dictionary, so each later read is a plain attribute access.
In code a value is changed by `knobs.debug = 2`, or for a while by `with knobs.scope(DEBUG=2):`.
Both hold for the whole process, because compile workers must see what their caller set; scopes
may overlap between threads, and the one entered last wins.
The order is: scope, then assignment, then environment, then default.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from svod.base.errors import ConfigError
from svod.base.locks import held_rlock

T = TypeVar("T")

PREFIX = "SVOD_"


class Knob(Generic[T]):
    """One variable. `parse` turns text into a value and raises ValueError for what is refused."""

    __slots__ = (
        "accepts",
        "affects_codegen",
        "affects_numerics",
        "attribute",
        "default",
        "doc",
        "lenient",
        "name",
        "parse",
    )

    def __init__(
        self,
        parse: Callable[[str], T],
        default: T,
        doc: str,
        *,
        accepts: str,
        affects_codegen: bool = False,
        affects_numerics: bool = False,
        lenient: bool = False,
    ) -> None:
        self.parse, self.default, self.doc, self.accepts = parse, default, doc, accepts
        self.affects_codegen, self.affects_numerics = affects_codegen, affects_numerics
        self.lenient = lenient  # a malformed environment value means the default
        self.attribute = self.name = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute, self.name = attribute, PREFIX + attribute.upper()

    @overload
    def __get__(self, owner: None, kind: type | None = None) -> Knob[T]: ...
    @overload
    def __get__(self, owner: Knobs, kind: type | None = None) -> T: ...
    def __get__(self, owner: Knobs | None, kind: type | None = None) -> T | Knob[T]:
        if owner is None:
            return self
        value: T = owner._fill(self)
        return value

    if TYPE_CHECKING:  # at run time a plain instance attribute must win over the descriptor

        def __set__(self, owner: Knobs, value: T) -> None: ...

    def check(self, value: object) -> T:
        """`value`, given as text or as a Python object, as a value of this knob."""
        text = str(int(value)) if isinstance(value, bool) else str(value)
        try:
            return self.parse(text.strip())
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} is not valid: use {self.accepts}") from None

    def from_environment(self) -> T:
        """The value the environment gives, or the default where it gives none."""
        text = os.environ.get(self.name, "")
        if not text.strip():
            return self.default
        try:
            return self.check(text)
        except ConfigError:
            if self.lenient:
                return self.default
            raise

    def is_set(self) -> bool:
        """Whether the environment names this knob."""
        return bool(os.environ.get(self.name, "").strip())

    def __repr__(self) -> str:
        return f"Knob({self.name}, default={self.default!r})"


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PLANNERS = {
    **dict.fromkeys(("arena",), "arena"),
    **dict.fromkeys(("remap", "pool"), "remap"),
    **dict.fromkeys(("0", "off", "none", "disabled"), "disabled"),
}


def _flag(default: bool, doc: str, **facts: bool) -> Knob[bool]:
    def parse(text: str) -> bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE

    return Knob(parse, default, doc, accepts="0 or 1", **facts)


def _integer(default: int, doc: str, low: int, high: int | None = None, **facts: bool) -> Knob[int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < low or (high is not None and value > high):
            raise ValueError(text)
        return value

    bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
    return Knob(parse, default, doc, accepts=f"a whole number {bounds}", **facts)


def _bytes(default: int, doc: str, **facts: bool) -> Knob[int]:
    def parse(text: str) -> int:
        number = text.upper().removesuffix("B").removesuffix("I")
        unit = number[-1:] if number[-1:] in _UNITS else ""
        value = int(number.removesuffix(unit)) * _UNITS[unit]
        if value < 0:
            raise ValueError(text)
        return value

    return Knob(parse, default, doc, accepts="a number of bytes such as 500000, 64M or 2G", **facts)


def _text(default: str, doc: str, **facts: bool) -> Knob[str]:
    return Knob(str, default, doc, accepts="any text", **facts)


def _choice(default: str, doc: str, values: Mapping[str, str], **facts: bool) -> Knob[str]:
    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(text)
        return values[text.lower()]

    return Knob(parse, default, doc, accepts="one of " + ", ".join(values), **facts)


class Knobs:
    """All knobs as attributes; there is one instance, `knobs`."""

    debug = _integer(
        0,
        "What is printed to stderr: 1 devices and caches, 2 kernels with time, 3 schedules, "
        "4 the graph after each pass, 5 LLVM IR, 6 assembly.",
        0,
        6,
    )
    device = _text("CPU", "The device of tensors that name none.")
    threads = _integer(
        0,
        "The number of threads for compiling and running; 0 takes what the affinity mask, the "
        "container limit and OMP_NUM_THREADS allow.",
        0,
    )
    cache_dir = _text("", "The folder of all caches on disk; empty takes the user's cache folder.")
    object_cache = _flag(True, "Keep compiled machine code on disk.")
    object_cache_bytes = _bytes(1 << 30, "The size limit of the machine code kept on disk.")
    disable_schedule_cache = _flag(False, "Schedule every graph anew.")
    opt_cache_max = _integer(
        4096,
        "The number of optimised kernels kept in memory; an invalid value means the default.",
        1,
        lenient=True,
    )
    memory_planner = _choice(
        "arena",
        "How intermediate buffers share memory: arena packs them into a few allocations, remap "
        "swaps pooled buffers, disabled gives each its own.",
        _PLANNERS,
    )
    optimize = _flag(
        True,
        "Choose vector lanes, unrolling and threads for each kernel; 0 keeps plain loops.",
        affects_codegen=True,
        affects_numerics=True,
    )
    machine = _choice(
        "host",
        "What CPU kernels are compiled for: host is this processor with all it has, the others "
        "are what processors with AVX-512, AVX2, SSE4.2 or NEON have in common; generic is the "
        "least.",
        {name: name for name in ("host", "avx512", "avx2", "sse4", "neon", "generic")},
        affects_codegen=True,
        affects_numerics=True,
    )
    bf16_dot = _flag(
        True,
        "Multiply bfloat16 in pairs with the processor's own instruction, which takes subnormal "
        "numbers as zero; 0 converts to float32 first.",
        affects_codegen=True,
        affects_numerics=True,
    )
    tensor_cores = _choice(
        "auto",
        "Which tensor cores of a GPU matrix products use: auto takes the best there are, mma only "
        "those of a warp, none the ordinary units.",
        {"auto": "auto", "mma": "mma", "none": "none"},
        affects_codegen=True,
        affects_numerics=True,
    )
    tf32 = _flag(
        False,
        "Let a GPU round the factors of float32 matrix products to 11 bits, for tensor cores.",
        affects_codegen=True,
        affects_numerics=True,
    )
    fallback = _flag(
        True,
        "Compile a kernel whose chosen loops fail with plainer ones; 0 makes the failure an error.",
    )
    check_indices = _flag(
        True,
        "Raise IndexError where an index tensor, a label or a class number is out of range; with 0 "
        "such an index reads 0 and writes nothing. Recorded functions keep what held at recording.",
    )
    verify = _flag(False, "Check the graph after every stage.")
    origins = _flag(
        True, "Remember which line of user code made each tensor, for kernels and errors."
    )
    warn_recompile = _integer(
        32,
        "After how many different graphs of one line of user code a warning says that it keeps "
        "compiling; 0 never warns.",
        0,
    )
    repr = _choice(
        "values",
        "What the text of a tensor that is not computed yet shows: values computes it, lazy "
        "shows its dtype, shape and device.",
        {"values": "values", "lazy": "lazy"},
    )
    top = _flag(False, "Say once a second which plans run, for `svod top` in another terminal.")
    beam = _integer(
        0,
        "The width of the search for better loops; 0 uses the heuristics alone.",
        0,
        affects_codegen=True,
        affects_numerics=True,
    )

    tuned = _flag(
        True,
        "Use what searches for better loops have found, kept on disk.",
        affects_codegen=True,
        affects_numerics=True,
    )

    def __init__(self) -> None:
        store = self.__dict__
        store["_lock"] = held_rlock()
        store["_assigned"] = {}  # attribute -> value set in code
        store["_scopes"] = []  # one dictionary per open scope, the innermost last
        store["_codegen_key"] = None

    if TYPE_CHECKING:
        _lock: threading.RLock
        _assigned: dict[str, Any]
        _scopes: list[dict[str, Any]]
        _codegen_key: str | None

    def __setattr__(self, attribute: str, value: object) -> None:
        knob = find(attribute)
        checked = knob.check(value)
        with self._lock:
            self._assigned[knob.attribute] = checked
            self._forget(knob)

    def __delattr__(self, attribute: str) -> None:
        """Drop what was assigned in code; the environment holds again."""
        knob = find(attribute)
        with self._lock:
            self._assigned.pop(knob.attribute, None)
            self._forget(knob)

    @contextmanager
    def scope(self, **values: object) -> Iterator[None]:
        """Give knobs other values for the length of a block: `scope(DEBUG=2)`."""
        layer = {(knob := find(name)).attribute: knob.check(v) for name, v in values.items()}
        with self._lock:
            self._scopes.append(layer)
            self._forget(*map(find, layer))
        try:
            yield
        finally:
            with self._lock:
                self._scopes[:] = [other for other in self._scopes if other is not layer]
                self._forget(*map(find, layer))

    def refresh(self) -> None:
        """Read the environment again at the next use."""
        with self._lock:
            self._forget(*all_knobs())

    def codegen_key(self) -> str:
        """A stable text of every knob that changes generated code: a part of each cache key."""
        key = self._codegen_key
        if key is not None:
            return key
        with self._lock:
            parts = (f"{k.attribute}={getattr(self, k.attribute)!r}" for k in _codegen_knobs())
            key = self.__dict__["_codegen_key"] = ";".join(parts)
        return key

    def source(self, knob: Knob[Any]) -> str:
        """Where the value of a knob comes from: scope, code, environment or default."""
        with self._lock:
            if any(knob.attribute in layer for layer in self._scopes):
                return "scope"
            if knob.attribute in self._assigned:
                return "code"
        return "environment" if knob.is_set() else "default"

    def _fill(self, knob: Knob[Any]) -> Any:  # the type of the value is the knob's own
        with self._lock:
            value = self._current(knob)
            self.__dict__[knob.attribute] = value
        return value

    def _current(self, knob: Knob[Any]) -> Any:
        for layer in (*reversed(self._scopes), self._assigned):
            if knob.attribute in layer:
                return layer[knob.attribute]
        return knob.from_environment()

    def _forget(self, *changed: Knob[Any]) -> None:
        for knob in changed:
            self.__dict__.pop(knob.attribute, None)
        self.__dict__["_codegen_key"] = None


def all_knobs() -> tuple[Knob[Any], ...]:
    """Every knob, in the order of declaration."""
    return tuple(_BY_ATTRIBUTE.values())


def find(name: str) -> Knob[Any]:
    """The knob called `debug`, `DEBUG` or `SVOD_DEBUG`."""
    knob = _BY_ATTRIBUTE.get(name.upper().removeprefix(PREFIX).lower())
    if knob is None:
        raise ConfigError(f"there is no knob {name!r}; {PREFIX}* are: {', '.join(_BY_ATTRIBUTE)}")
    return knob


def unknown_variables() -> list[str]:
    """`SVOD_*` variables of the environment that no knob declares: most likely misspelt."""
    known = {knob.name for knob in all_knobs()}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def codegen_key() -> str:
    """See `Knobs.codegen_key`."""
    return knobs.codegen_key()


def _codegen_knobs() -> list[Knob[Any]]:
    return [knob for knob in all_knobs() if knob.affects_codegen]


_BY_ATTRIBUTE: dict[str, Knob[Any]] = {
    name: knob for name, knob in vars(Knobs).items() if isinstance(knob, Knob)
}

knobs = Knobs()
