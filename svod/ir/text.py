"""Graphs as text: one node per line, deterministic, and it parses back.

    %0 = CONST f32 : 1.5
    %1 = PARAM f32[8,512] : ParamArg(slot=0, shape=(8, 512))
    %2 = ADD f32[8,512] %1 %0

A line is ``%number = OP dtype[shape] sources : argument``; the last line is the root, ``#`` starts
a comment line. Numbers follow structure, so equal graphs give equal text in every process.
``parse`` evaluates nothing: it reads literals and the records of ``svod.ir.args``.
"""

from __future__ import annotations

import ast
import math
import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NoReturn, get_type_hints

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import args as records
from svod.ir import ops as O
from svod.ir.args import BufferRef
from svod.ir.node import UOp, const, depth_first, make

_OP_ARGUMENT: Final = frozenset({O.REDUCE, O.LANE_REDUCE})  # the argument is itself an op
_INLINE: Final = frozenset({O.UNIQUE, O.LUNIQUE, O.DEVICE, O.CONST})  # in the tree
_DEPTH_LIMIT: Final = 64  # of nested tuples in an argument
_LANE_LIMIT: Final = 4096
_BOUND_LIMIT: Final = 128  # bits; without it a text of repeated squares grows without end
_INDENT_LIMIT: Final = 24  # levels of the tree; deeper ones show their depth


def dump(root: UOp) -> str:
    """The graph as text; raises GraphError for an argument that has no text form."""
    numbers: dict[UOp, int] = {}
    lines = []
    for node in depth_first(root):
        numbers[node] = len(numbers)
        parts = [f"%{numbers[node]} = {O.NAMES[node.op]} {_typed(node)}"]
        parts += [f"%{numbers[s]}" for s in node.src]
        if node.arg is not None:
            parts.append(f": {_argument(node)}")
        lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def brief(node: UOp) -> str:
    """The node without its sources, on one line: ``REDUCE_AXIS f32[8,1] : ReduceArg(...)``."""
    head = f"{O.NAMES.get(node.op, node.op)} {_typed(node)}"
    if node.arg is None:
        return head
    try:
        text = _argument(node)
    except GraphError:
        text = repr(node.arg)
    return f"{head} : {text if len(text) <= 100 else text[:97] + '...'}"


def tree(root: UOp) -> str:
    """The graph for people: users above their sources, shared nodes shown once by number."""
    users: dict[UOp, int] = {}
    order = list(depth_first(root))
    for node in order:
        for source in node.src:
            users[source] = users.get(source, 0) + 1
    shared = [n for n in order if users.get(n, 0) > 1 and n.op not in _INLINE]
    numbers = {node: number for number, node in enumerate(shared)}
    shown: set[UOp] = set()
    lines = []
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        indent = "  " * depth if depth <= _INDENT_LIMIT else "  " * _INDENT_LIMIT + f"{depth}| "
        label = f"%{numbers[node]}" if node in numbers else ""
        if node in shown:
            lines.append(f"{indent}{label}")
            continue
        shown.add(node)
        inline = [s for s in node.src if s.op in _INLINE]
        text = f"{indent}{label} = {brief(node)}" if label else f"{indent}{brief(node)}"
        if inline:
            text += "  (" + ", ".join(map(brief, inline)) + ")"
        lines.append(text)
        stack.extend((s, depth + 1) for s in reversed(node.src) if s.op not in _INLINE)
    return "\n".join(lines)


def buffers_of(root: UOp) -> dict[int, BufferRef]:
    """The buffers a graph refers to, by the number their text form shows."""
    found = (node.arg for node in depth_first(root) if isinstance(node.arg, BufferRef))
    return {reference.id: reference for reference in found}


def parse(text: str, buffers: Mapping[int, BufferRef] | None = None) -> UOp:
    """The node of a text written by ``dump``: the same object while the graph is alive.

    Text cannot carry memory. A BufferRef is taken from ``buffers`` (see ``buffers_of``), and one
    that is not there becomes a new reference without memory.
    """
    reader = _Reader(dict(buffers or {}))
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            reader.read_line(stripped)
        except GraphError as error:
            raise GraphError(f"line {number}: {error}") from None
        except _MALFORMED as error:
            raise GraphError(f"line {number}: not a well-formed node ({error})") from None
    if reader.last is None:
        raise GraphError("line 1: the text has no node")
    return reader.last


def _typed(node: UOp) -> str:
    try:
        shape = node.shape
        dims = ",".join([str(int(n)) for n in shape])
    except Exception:  # a malformed node must still be printable in the error about it
        return f"{node.dtype!r}[?]"
    return f"{node.dtype!r}[{dims}]" if shape else repr(node.dtype)


def _argument(node: UOp) -> str:
    arg = node.arg
    if node.op in _OP_ARGUMENT and arg in O.NAMES:
        return O.NAMES[arg]
    return _value_text(arg)


def _value_text(value: object) -> str:
    # Numbers print through their base class: subclasses (NumPy floats, enums) differ in repr.
    if value is None or isinstance(value, (bool, str, bytes)):
        return repr(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, DType):
        return f"DType(name={value.scalar.name!r}, lanes={value.lanes})"
    if isinstance(value, BufferRef):
        return f"BufferRef(id={value.id}, size={value.size})"
    if isinstance(value, tuple):
        name = type(value).__name__
        if type(value) is _RECORDS.get(name):
            fields = zip(_FIELDS[name], value, strict=True)
            return f"{name}({', '.join(f'{f}={_field_text(name, f, v)}' for f, v in fields)})"
        if type(value) is tuple:
            inner = ", ".join(map(_value_text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
    raise GraphError(f"an argument of type {type(value).__name__} has no text form: {value!r}")


def _field_text(record: str, field: str, value: Any) -> str:
    names = _field_names(record, field)
    if names is not None:
        for name, named in names.items():
            if named == value:
                return name
    return _value_text(value)


# What node constructors raise, which compute bounds and trust their sources, and literal_eval.
_MALFORMED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    SyntaxError,
    TypeError,
    ValueError,
)
_CANONICAL_NAN: Final = struct.pack("<d", math.nan)


def _float_text(value: float) -> str:
    bits = struct.pack("<d", value)
    if value != value and bits != _CANONICAL_NAN:
        return f"nan(0x{struct.unpack('<Q', bits)[0]:016x})"
    return float.__repr__(value)


_RECORDS: Final[dict[str, Any]] = {
    name: found
    for name, found in vars(records).items()
    if isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")
}
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "DType": {"name": str, "lanes": int},
    "BufferRef": {"id": int, "size": int},
    **{name: get_type_hints(record) for name, record in _RECORDS.items()},
}


def _field_names(record: str, field: str) -> Mapping[str, int] | None:
    """The names a field is printed with: of an enum, or of an op."""
    hint = _FIELDS[record].get(field)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return hint.__members__
    return O.BY_NAME if field == "op" else None


_LINE: Final = re.compile(
    r"%(?P<number>\d{1,9}) = (?P<op>[A-Z_][A-Z0-9_]*) "
    r"(?P<dtype>[a-z][a-z0-9]*)(?:\[(?P<shape>[0-9,-]+|\?)\])?"
    r"(?P<sources>(?: %\d{1,9})*)(?: : (?P<arg>.+))?",
    re.ASCII,
)
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^'\\]|\\(?:[\\'"nrt]|x..|u....|U.{8}))*'
            |"(?:[^"\\]|\\(?:[\\'"nrt]|x..|u....|U.{8}))*"
            |b'(?:[\x20-\x26\x28-\x5b\x5d-\x7e]|\\(?:[\\'"nrt]|x..))*'
            |b"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\(?:[\\'"nrt]|x..))*")
    |(?P<hex>0x[0-9a-f]{1,16})
    |(?P<float>-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf\b|nan\b))
    |(?P<int>-?\d+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>[(),=])
    |(?P<end>$)
    )""",
    re.VERBOSE | re.ASCII,
)
_DTYPE: Final = re.compile(r"(?P<name>.*?)(?:x(?P<lanes>[1-9][0-9]{0,3}))?", re.ASCII)
_WORDS: Final[dict[str, object]] = {"None": None, "True": True, "False": False}


class _Reader:
    """The nodes read so far."""

    def __init__(self, buffers: dict[int, BufferRef]) -> None:
        self.nodes: dict[int, UOp] = {}
        self.buffers = buffers
        self.last: UOp | None = None

    def read_line(self, line: str) -> None:
        found = _LINE.fullmatch(line)
        if found is None:
            raise GraphError(
                f"expected '%number = OP dtype[shape] sources : argument', not {line[:80]!r}"
            )
        number = int(found["number"])
        if number in self.nodes:
            raise GraphError(f"%{number} is defined twice")
        op = O.BY_NAME.get(found["op"])
        if op is None:
            raise GraphError(f"there is no op {found['op'][:40]!r}")
        dtype = _read_dtype(found["dtype"])
        src = tuple([self._source(int(s[1:])) for s in found["sources"].split()])
        arg = None if found["arg"] is None else _ArgumentReader(found["arg"], self).read(op)
        node = _constant(dtype, src, arg) if op == O.CONST else make(op, dtype, src, arg)
        if _typed(node) != line[found.start("dtype") : found.start("sources")]:
            raise GraphError(
                f"{found['op']} has dtype and shape {_typed(node)}, but the text says "
                f"{line[found.start('dtype') : found.start('sources')]}"
            )
        if node.vmax is not None and max(abs(node.vmin), abs(node.vmax)) >> _BOUND_LIMIT:
            raise GraphError(f"the bounds of this {found['op']} pass 2**{_BOUND_LIMIT}")
        self.nodes[number] = self.last = node

    def buffer(self, id: int, size: int) -> BufferRef:
        found = self.buffers.get(id)
        if found is None:
            found = self.buffers[id] = BufferRef(size)
        if found.size != size:
            raise GraphError(f"buffer {id} has {found.size} elements, not {size}")
        return found

    def _source(self, number: int) -> UOp:
        node = self.nodes.get(number)
        if node is None:
            raise GraphError(f"%{number} is used before it is defined")
        return node


def _read_dtype(text: str) -> DType:
    found = _DTYPE.fullmatch(text)
    name, lanes = (found["name"], int(found["lanes"] or 1)) if found else (text, 0)
    if name not in dt.BY_SHORT or not 1 <= lanes <= _LANE_LIMIT:
        raise GraphError(f"there is no dtype {text[:40]!r}")
    return dt.by_name(name, lanes)


def _constant(dtype: DType, src: tuple[UOp, ...], arg: object) -> UOp:
    kinds = {"b": bool, "f": float, "u": int, "i": int, "x": int}
    if src or type(arg) is not kinds.get(dtype.kind):
        raise GraphError(f"a CONST of {dtype!r} cannot have the value {arg!r}")
    return const(arg, dtype)


class _ArgumentReader:
    """One argument, read token by token."""

    def __init__(self, text: str, reader: _Reader) -> None:
        self.text = text
        self.at = 0
        self.reader = reader
        self.kind = self.token = ""
        self._advance()

    def read(self, op: int) -> object:
        value = self._value(0, O.BY_NAME if op in _OP_ARGUMENT else None)
        if self.kind != "end":
            self._fail("the end of the line")
        return value

    def _advance(self) -> str:
        """Moves to the next token and returns the one that was current."""
        before = self.token
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise GraphError(f"cannot read the argument at {self.text[self.at : self.at + 40]!r}")
        self.at = found.end()
        self.kind = str(found.lastgroup)
        self.token = found[self.kind]
        return before

    def _expect(self, sign: str) -> None:
        if self.token != sign or self.kind != "sign":
            self._fail(repr(sign))
        self._advance()

    def _fail(self, expected: str) -> NoReturn:
        raise GraphError(f"expected {expected} in the argument, not {self.token[:40]!r}")

    def _value(self, depth: int, names: Mapping[str, int] | None = None) -> object:
        if depth > _DEPTH_LIMIT:
            raise GraphError(f"the argument is nested more than {_DEPTH_LIMIT} deep")
        kind = self.kind
        if kind == "int":
            return int(self._advance())
        if kind == "float":
            return self._float()
        if kind == "text":
            return ast.literal_eval(self._advance())  # one quoted token, nothing else
        if kind == "sign" and self.token == "(":
            return self._tuple(depth)
        if kind != "name":
            self._fail("a value")
        name = self._advance()
        if names is not None and name in names:
            return names[name]
        if name in _WORDS:
            return _WORDS[name]
        if name in _FIELDS:
            return self._record(name, depth)
        raise GraphError(f"there is no record or name {name[:40]!r}")

    def _float(self) -> float:
        token = self._advance()
        if token != "nan" or self.kind != "sign" or self.token != "(":
            return float(token)
        self._advance()
        if self.kind != "hex":
            self._fail("the bits of a NaN")
        value = struct.unpack("<d", struct.pack("<Q", int(self._advance(), 16)))[0]
        self._expect(")")
        if value == value:
            raise GraphError(f"the bits of nan(...) are those of {value!r}")
        return float(value)

    def _tuple(self, depth: int) -> tuple[object, ...]:
        self._expect("(")
        values: list[object] = []
        comma = True
        while not (self.kind == "sign" and self.token == ")"):
            if not comma:
                self._fail("',' or ')'")
            values.append(self._value(depth + 1))
            comma = self.kind == "sign" and self.token == ","
            if comma:
                self._advance()
        if len(values) == 1 and not comma:
            raise GraphError("a tuple of one value needs a comma")
        self._expect(")")
        return tuple(values)

    def _record(self, name: str, depth: int) -> object:
        values = self._fields(name, depth)
        if name == "DType":
            return _make_dtype(**values)
        if name == "BufferRef":
            return self.reader.buffer(**values)
        return _RECORDS[name](**values)

    def _fields(self, name: str, depth: int) -> dict[str, Any]:
        self._expect("(")
        values: dict[str, Any] = {}
        for position, (field, hint) in enumerate(_FIELDS[name].items()):
            if position:
                self._expect(",")
            if self.kind != "name" or self.token != field:
                self._fail(f"{field}= of {name}")
            self._advance()
            self._expect("=")
            value = self._value(depth + 1, _field_names(name, field))
            if not _fits(value, hint):
                raise GraphError(f"{field} of {name} cannot be {value!r}")
            values[field] = value
        self._expect(")")
        return values


def _make_dtype(name: str, lanes: int) -> DType:
    if name not in dt.BY_NAME or not 1 <= lanes <= _LANE_LIMIT:
        raise GraphError(f"there is no dtype {name[:40]!r} of {lanes} lanes")
    return dt.by_name(name, lanes)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value has the type a field is declared with."""
    if hint == tuple[int, ...]:
        return type(value) is tuple and all(type(n) is int for n in value)
    if hint == tuple[object, ...]:
        return type(value) is tuple
    return type(value) is hint
