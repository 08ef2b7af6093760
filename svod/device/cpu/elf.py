"""Relocatable ELF objects, as LLVM emits them for our kernels, made callable in this process.

In: the bytes of one object file (x86-64 or aarch64, little-endian, 64 bits). Out: an
`ObjectImage` that answers `symbol(name)` with an address. Everything of one object lies in one
anonymous private mapping, code and constants first, writable data on pages of its own, so all
relative references stay in range; external functions are reached through stubs in the mapping.
The memory is never writable and executable at once. Loading needs no LLVM, so a warm start does
not pay for importing it. A relocation or a section that is not known here raises
`ObjectFormatError` before anything is mapped executable: the caller may fall back to LLVM's linker.
Best compiled with `reloc="pic", codemodel="small"`.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple

from svod.base.errors import CompileError
from svod.base.system import system


class ObjectFormatError(CompileError):
    """An object file that this loader does not understand; LLVM's own linker may."""


class ObjectImage:
    """One object file in executable memory; the memory is freed by `close` or with the image.

    Nothing may run the code any more when it is closed. At interpreter exit the memory is left to
    the operating system, because a native thread may still be inside it.
    """

    __slots__ = ("__weakref__", "_release", "address", "size", "symbols")

    address: int
    size: int
    symbols: dict[str, int]  # the global symbols the object defines

    def __init__(self, data: bytes, externals: Mapping[str, int] | None = None) -> None:
        """`externals` gives addresses of undefined names; what it lacks comes from the process."""
        try:
            self._load(data, externals or {})
        except (error, IndexError, ValueError) as broken:
            raise ObjectFormatError(f"damaged object file of {len(data)} bytes: {broken}") from None

    def symbol(self, name: str) -> int:
        """The address of a global symbol the object defines."""
        try:
            return self.symbols[name]
        except KeyError:
            known = ", ".join(sorted(self.symbols)[:8])
            raise CompileError(f"no symbol {name!r} in the object; it defines: {known}") from None

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        self._release()
        self.symbols = {}

    def _load(self, data: bytes, externals: Mapping[str, int]) -> None:
        machine, sections = _read_sections(data)
        layout = _place(data, machine, sections)
        image = bytearray(layout.size)
        for section in sections:
            if section.number in layout.offsets and section.kind != _NOBITS:
                start = layout.offsets[section.number]
                image[start : start + section.size] = data[section.start : section.end]
        base = system().map_code(layout.size, layout.executable)
        self._release = weakref.finalize(self, system().unmap_code, base, layout.size)
        self._release.atexit = False
        self.address, self.size = base, layout.size
        try:
            _Linker(layout, image, base, externals).relocate_all()
            system().fill_code(base, image, layout.executable)
        except BaseException:
            self._release()
            raise
        self.symbols = {
            symbol.name: base + layout.offsets[symbol.section] + symbol.value
            for symbol in layout.symbols
            if symbol.is_global and symbol.section in layout.offsets
        }


_ELF_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QIIq")
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL = 1, 2, 4, 8, 9
_WRITE, _ALLOC, _EXECUTABLE, _THREAD_LOCAL = 1, 2, 4, 0x400
_UNDEFINED, _RESERVED, _ABSOLUTE = 0, 0xFF00, 0xFFF1
_X86_64, _AARCH64 = 62, 183
_PAGE = mmap.PAGESIZE
_SLOT = 8  # bytes of one entry of the table of addresses
_STUB = 16  # bytes of one stub, on either machine


class _Section(NamedTuple):
    number: int
    name: str
    kind: int
    flags: int
    start: int
    size: int
    link: int
    info: int
    align: int

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def is_loaded(self) -> bool:
        # Unwind tables are left out: kernels neither throw nor are thrown through.
        return bool(self.flags & _ALLOC) and self.size > 0 and self.name != ".eh_frame"


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    is_global: bool
    is_weak: bool


class _Reference(NamedTuple):
    place: int  # offset in the image
    kind: int
    symbol: int
    addend: int


class _Layout(NamedTuple):
    machine: int
    offsets: dict[int, int]  # section index -> offset in the image
    symbols: list[_Symbol]
    references: list[_Reference]
    slots: dict[int, int]  # symbol index -> offset of the slot that holds its address
    stubs: dict[int, int]  # symbol index -> offset of the stub that jumps to it
    executable: int  # bytes from the start that become readable and executable
    size: int


def _read_sections(data: bytes) -> tuple[int, list[_Section]]:
    header = _ELF_HEADER.unpack_from(data)
    ident, kind, machine = header[0], header[1], header[2]
    if ident[:7] != b"\x7fELF\x02\x01\x01" or kind != 1:
        raise ObjectFormatError("not a relocatable 64-bit little-endian ELF object")
    if machine not in _RELOCATORS:
        raise ObjectFormatError(f"object for ELF machine {machine}; known: x86-64, aarch64")
    start, entry_size, count, names_index = header[6], header[11], header[12], header[13]
    if entry_size != _SECTION_HEADER.size or count == 0:
        raise ObjectFormatError(f"{count} section headers of {entry_size} bytes")
    table = data[start : start + count * entry_size]
    headers = list(_SECTION_HEADER.iter_unpack(table))
    names = data[headers[names_index][4] :]
    sections = []
    for index, (name, kind, flags, _, offset, size, link, info, align, _) in enumerate(headers):
        if kind != _NOBITS and offset + size > len(data):
            raise ObjectFormatError(f"section {index} ends at {offset + size} of {len(data)} bytes")
        text = names[name : names.index(b"\0", name)].decode()
        sections.append(_Section(index, text, kind, flags, offset, size, link, info, align))
    return machine, sections


def _place(data: bytes, machine: int, sections: list[_Section]) -> _Layout:
    """Offsets for everything: code, constants, stubs and slots, then writable data."""
    _, needs_stub, needs_slot = _RELOCATORS[machine]
    symbols = _read_symbols(data, sections)
    loaded = [section for section in sections if section.is_loaded]
    for section in loaded:
        if section.flags & _THREAD_LOCAL or section.align > _PAGE:
            raise ObjectFormatError(f"section {section.name} is thread-local or aligned to a page")
    offsets: dict[int, int] = {}
    cursor = _assign(offsets, [s for s in loaded if not s.flags & _WRITE], 0)
    relocations = []
    slots: dict[int, int] = {}
    stubs: dict[int, int] = {}
    for section in sections:
        if section.kind == _REL:
            raise ObjectFormatError(f"relocations without addends in {section.name}")
        if section.kind != _RELA or not sections[section.info].is_loaded:
            continue
        for place, kind, index, addend in _RELOCATION.iter_unpack(
            data[section.start : section.end]
        ):
            relocations.append((section.info, place, kind, index, addend))
            if kind in needs_slot:
                slots.setdefault(index, 0)
            elif kind in needs_stub and symbols[index].section == _UNDEFINED:
                stubs.setdefault(index, 0)
    cursor = _round_up(cursor, _STUB)
    for table, width in ((stubs, _STUB), (slots, _SLOT)):
        for index in table:
            table[index] = cursor
            cursor += width
    executable = _round_up(cursor, _PAGE)
    writable = [section for section in loaded if section.flags & _WRITE]
    size = _round_up(_assign(offsets, writable, executable), _PAGE)
    references = [_Reference(offsets[target] + p, k, i, a) for target, p, k, i, a in relocations]
    return _Layout(
        machine, offsets, symbols, references, slots, stubs, executable, max(size, _PAGE)
    )


def _assign(offsets: dict[int, int], sections: list[_Section], cursor: int) -> int:
    for section in sections:
        cursor = _round_up(cursor, max(section.align, 1))
        offsets[section.number] = cursor
        cursor += section.size
    return cursor


def _read_symbols(data: bytes, sections: list[_Section]) -> list[_Symbol]:
    table = next((section for section in sections if section.kind == _SYMTAB), None)
    if table is None:
        return []
    names = data[sections[table.link].start : sections[table.link].end]
    symbols = []
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(data[table.start : table.end]):
        text = names[name : names.index(b"\0", name)].decode() if name else ""
        symbols.append(_Symbol(text, section, value, info >> 4 in (1, 2), info >> 4 == 2))
    return symbols


class _Linker:
    """Writes the addresses of one image that will lie at `base` into its bytes."""

    def __init__(
        self, layout: _Layout, image: bytearray, base: int, externals: Mapping[str, int]
    ) -> None:
        self.layout, self.image, self.base, self.externals = layout, image, base, externals
        self._addresses: dict[int, int] = {}

    def relocate_all(self) -> None:
        layout = self.layout
        for index, offset in layout.slots.items():
            _WORD.pack_into(self.image, offset, self.address(index))
        for index, offset in layout.stubs.items():
            code = _STUB_CODE[layout.machine]
            self.image[offset : offset + _STUB] = code + _WORD.pack(self.address(index))
        relocate, _, _ = _RELOCATORS[layout.machine]
        for reference in layout.references:
            relocate(self, reference)

    def address(self, index: int) -> int:
        """Where the symbol lies, whoever defines it."""
        known = self._addresses.get(index)
        if known is None:
            known = self._addresses[index] = self._find(self.layout.symbols[index])
        return known

    def _find(self, symbol: _Symbol) -> int:
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section >= _RESERVED:
            raise ObjectFormatError(
                f"symbol {symbol.name!r} in special section {symbol.section:#x}"
            )
        if symbol.section != _UNDEFINED:
            if symbol.section not in self.layout.offsets:
                # An empty section has no place; its symbols are never dereferenced.
                return self.base + symbol.value
            return self.base + self.layout.offsets[symbol.section] + symbol.value
        if (given := self.externals.get(symbol.name)) is not None:
            return given
        if (found := _symbol(symbol.name)) is not None:
            return found
        if symbol.is_weak or not symbol.name:
            return 0
        raise CompileError(f"undefined symbol {symbol.name!r}: no library of this process has it")

    def call_target(self, index: int) -> int:
        """Where a call to the symbol should go: its stub if it lies outside the image."""
        stub = self.layout.stubs.get(index)
        return self.address(index) if stub is None else self.base + stub

    def slot(self, index: int) -> int:
        return self.base + self.layout.slots[index]

    def put(self, field: Struct, reference: _Reference, value: int) -> None:
        try:
            field.pack_into(self.image, reference.place, value)
        except error:
            raise ObjectFormatError(
                f"relocation type {reference.kind} to "
                f"{self.layout.symbols[reference.symbol].name!r} is out of range: {value:#x} does "
                "not fit; compile with reloc='pic', codemodel='small'"
            ) from None


_WORD = Struct("<Q")
_SIGNED_64, _SIGNED_32, _UNSIGNED_32 = Struct("<q"), Struct("<i"), Struct("<I")

# Stubs end in the absolute address: x86-64 `jmp *2(%rip)` at byte 0, padded to 8 bytes;
# aarch64 `ldr x16, #8; br x16`.
_STUB_CODE = {
    _X86_64: b"\xff\x25\x02\x00\x00\x00\xcc\xcc",
    _AARCH64: b"\x50\x00\x00\x58\x00\x02\x1f\xd6",
}


def _relocate_x86_64(link: _Linker, reference: _Reference) -> None:
    place, kind, index, addend = reference
    if kind in (2, 4):  # PC32, PLT32
        link.put(_SIGNED_32, reference, link.call_target(index) + addend - link.base - place)
    elif kind in (9, 41, 42):  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
        link.put(_SIGNED_32, reference, link.slot(index) + addend - link.base - place)
    elif kind == 1:  # 64
        link.put(_WORD, reference, (link.address(index) + addend) & 0xFFFFFFFFFFFFFFFF)
    elif kind == 24:  # PC64
        link.put(_SIGNED_64, reference, link.address(index) + addend - link.base - place)
    elif kind == 10:  # 32
        link.put(_UNSIGNED_32, reference, link.address(index) + addend)
    elif kind == 11:  # 32S
        link.put(_SIGNED_32, reference, link.address(index) + addend)
    elif kind != 0:
        raise ObjectFormatError(f"x86-64 relocation type {kind} is not known")


# Loads and stores with a scaled 12-bit offset: relocation type -> log2 of the access size.
_AARCH64_SCALED = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}


def _relocate_aarch64(link: _Linker, reference: _Reference) -> None:
    place, kind, index, addend = reference
    here = link.base + place
    if kind == 257:  # ABS64
        link.put(_WORD, reference, (link.address(index) + addend) & 0xFFFFFFFFFFFFFFFF)
    elif kind == 260:  # PREL64
        link.put(_SIGNED_64, reference, link.address(index) + addend - here)
    elif kind == 261:  # PREL32
        link.put(_SIGNED_32, reference, link.address(index) + addend - here)
    elif kind in (282, 283):  # JUMP26, CALL26
        distance = _in_range(link.call_target(index) + addend - here, 28, reference)
        _patch(link.image, place, 0x03FFFFFF, distance >> 2)
    elif kind in (275, 276, 311):  # ADR_PREL_PG_HI21, its unchecked form, ADR_GOT_PAGE
        target = link.slot(index) if kind == 311 else link.address(index) + addend
        pages = _in_range((target & -4096) - (here & -4096), 33, reference) >> 12
        _patch(link.image, place, 0x60FFFFE0, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)
    elif kind == 274:  # ADR_PREL_LO21
        distance = _in_range(link.address(index) + addend - here, 21, reference)
        _patch(link.image, place, 0x60FFFFE0, (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5)
    elif kind in _AARCH64_SCALED:
        target = link.slot(index) if kind == 312 else link.address(index) + addend
        _patch(link.image, place, 0x003FFC00, (target & 0xFFF) >> _AARCH64_SCALED[kind] << 10)
    elif kind not in (0, 256):
        raise ObjectFormatError(f"aarch64 relocation type {kind} is not known")


def _patch(image: bytearray, place: int, mask: int, bits: int) -> None:
    (word,) = _UNSIGNED_32.unpack_from(image, place)
    _UNSIGNED_32.pack_into(image, place, word & ~mask | bits & mask)


def _in_range(value: int, bits: int, reference: _Reference) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ObjectFormatError(
            f"aarch64 relocation type {reference.kind} is out of range: {value:#x}"
        )
    return value


_Relocator = Callable[[_Linker, _Reference], None]

# Machine -> (relocate, types that may go through a stub, types that go through a slot).
_RELOCATORS: dict[int, tuple[_Relocator, frozenset[int], frozenset[int]]] = {
    _X86_64: (_relocate_x86_64, frozenset({4}), frozenset({9, 41, 42})),
    _AARCH64: (_relocate_aarch64, frozenset({282, 283}), frozenset({311, 312})),
}


def _round_up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


@lru_cache(maxsize=1024)
def _symbol(name: str) -> int | None:
    return system().symbol(name)
