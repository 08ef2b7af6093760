"""Generated GPU kernels run by NumPy: all threads of a block step by step together.

Takes the LLVM IR of one kernel, as far as matmul tiles and what follows them need it, and says what
memory holds afterwards. Beyond values it checks what only shows now and then on a GPU: every
access is inside its array and aligned; shared memory is not read before a barrier follows its
writing (or a meeting of the warp that wrote it), not written while another thread or the tensor
cores may still read it; stores of sixteen bytes meet no bank twice. Asynchronous copies arrive when
they are waited for, no sooner.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any, Final

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
SHARED_BYTES: Final = 227 << 10
SHARED_START: Final = 16
SLOT: Final = 40  # bits of an address below the number of its array
INTEGERS: Final = {
    "i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
    "float": np.float32, "double": np.float64, "half": np.float16, "bfloat": ml_dtypes.bfloat16,
    "ptr": np.uint64,
}  # fmt: skip
FACTORS: Final = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "s8": np.int8,
    "u8": np.uint8, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "udiv": np.floor_divide, "urem": np.remainder,
    "shl": np.left_shift, "lshr": np.right_shift, "fadd": np.add, "fmul": np.multiply,
    "fsub": np.subtract, "fdiv": np.divide,
    "ashr": lambda a, b: (a.view(np.int32) >> b.view(np.int32)).view(np.uint32),
}  # fmt: skip
TESTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
FOLDS: Final[dict[str, Callable[..., Any]]] = {
    "llvm.umin.i32": np.minimum, "llvm.maxnum.f32": np.fmax, "llvm.minnum.f32": np.fmin,
}  # fmt: skip
_KIND = r"(?:<\d+ x [\w.]+>|ptr(?: addrspace\(\d\))?|\{[^}]*\}|[\w.]+)"
_TERM = r"(?:splat \([^)]*\)|[^,\s()]+)"
_ASSEMBLY = re.compile(r'call (\{[^}]*\}|\w+) asm (?:sideeffect )?"([^"]*)", "([^"]*)"\((.*)\)$')


class Emulator:
    """One kernel with its arguments: byte arrays by slot."""

    def __init__(self, source: str, memory: dict[int, Array], threads: int) -> None:
        self.memory = {slot: m.reshape(-1).view(np.uint8) for slot, m in memory.items()}
        self.threads = threads
        body = source[source.index("entry:") :]
        lines = body[: body.index("\n}")].splitlines()
        self.lines = [line.strip() for line in lines if line.strip()]
        self.labels = {line[:-1]: i for i, line in enumerate(self.lines) if line.endswith(":")}
        self.conflicts = 0
        self.arrays: dict[str, int] = {}  # of the module, and where they begin in shared memory
        place = 16
        for name, count, kind in re.findall(
            r"^(@\w+) = internal addrspace\(3\) global \[(\d+) x (\w+)\]", source, re.MULTILINE
        ):
            self.arrays[name] = place
            place += -(-int(count) * np.dtype(INTEGERS[kind]).itemsize // 16) * 16

    def run(self, grid: tuple[int, int, int]) -> None:
        for z, y, x in product(*map(range, reversed(grid))):
            self.block = {"x": x, "y": y, "z": z}
            with np.errstate(all="ignore"):
                self._run_block()

    def _run_block(self) -> None:
        self.values: dict[str, Any] = {}
        self.shared = np.full(SHARED_BYTES, 0xFF, np.uint8)
        self.epoch = 1
        self.written = np.full(SHARED_BYTES, 0)  # the epoch of the last writing, -1 on its way
        self.read = np.zeros(SHARED_BYTES, np.int64)
        self.meeting = 1  # of the threads of warps
        self.met = np.zeros((2, SHARED_BYTES), np.int64)  # the meeting before a writing, a reading
        self.warp = np.full((2, SHARED_BYTES), -1)  # who wrote, who read; -2 for several
        self.copies: list[list[tuple[Array, Array]]] = [[]]
        self.products: list[list[Array]] = []  # places that tensor cores read, by group
        self.finished: list[list[Array]] = []  # waited for by each thread, not yet by all
        self.busy = np.zeros(SHARED_BYTES, np.int64)  # groups that may still read there
        self.alive = np.ones(self.threads, bool)
        self.masks = [self.alive.copy()]
        self.entered: list[str] = []  # the block before each branch of some threads
        self.label, self.previous = "entry", ""
        at = 0
        while True:
            line = self.lines[at]
            at += 1
            if line == "ret void":
                if len(self.masks) == 1:
                    return
                self.alive &= ~self.masks[-1]
                continue
            if line.endswith(":"):
                at = self._enter(line[:-1], at)
            elif line.startswith("br i1"):
                test, one, other = re.match(  # type: ignore[union-attr]
                    rf"br i1 ({_TERM}), label %(\w+), label %(\w+)", line
                ).groups()
                truth = self._term("i1", test)
                if one.startswith("then"):
                    self.masks.append(self.masks[-1] & truth)
                    self.entered.append(self.label)
                else:
                    assert (truth == truth[0])[self.alive].all()
                    self.previous = self.label
                    at = self.labels[one if truth[0] else other]
            elif line.startswith("br label"):
                self.previous = self.label
            else:
                self._line(line)

    def _enter(self, label: str, at: int) -> int:
        """A block and its PHIs; after a branch of some threads, both ways meet there."""
        self.label = label
        inside, before = None, ""
        if label.startswith("next"):
            inside, before = self.masks.pop(), self.entered.pop()
            self.masks[-1] &= self.alive
        found = {}
        while " = phi " in self.lines[at]:
            name, kind, x, first, y, second = re.match(  # type: ignore[union-attr]
                rf"(%\w+) = phi ({_KIND}) \[ ({_TERM}), %(\w+) \], \[ ({_TERM}), %(\w+) \]",
                self.lines[at],
            ).groups()
            terms = {first: x, second: y}
            if inside is None:
                found[name] = self._term(kind, terms[self.previous])
            else:
                other = self._term(kind, terms.pop(before))
                (taken,) = [self._term(kind, t) for t in terms.values()]
                mask = inside if taken.ndim == 1 else inside[:, None]
                found[name] = np.where(mask, taken, other)
            at += 1
        self.values |= found
        return at

    # -- values --------------------------------------------------------------------------------

    def _dtype(self, kind: str) -> tuple[Any, int]:
        lanes = 1
        if kind.startswith("<"):
            count, kind = re.match(r"<(\d+) x (\w+)>", kind).groups()  # type: ignore[union-attr]
            lanes = int(count)
        return INTEGERS[kind.split()[0]], lanes

    def _term(self, kind: str, text: str) -> Array:
        if text in self.values:
            return self.values[text]  # type: ignore[no-any-return]
        dtype, lanes = self._dtype(kind)
        shape = (self.threads,) if lanes == 1 else (self.threads, lanes)
        if text == "@dynamic_shared":
            return np.full(shape, SHARED_START, np.uint64)
        if text.startswith("%p"):
            return np.full(shape, int(text[2:]) << SLOT, np.uint64)
        if text in self.arrays:
            return np.full(shape, self.arrays[text], np.uint64)
        if text.startswith("splat"):
            text = text[:-1].split()[-1]
        if text in ("poison", "zeroinitializer", "false"):
            number: Any = 0
        elif text == "true":
            number = 1
        elif np.issubdtype(dtype, np.floating):
            is_bits = text.startswith("0x")
            number = np.uint64(int(text, 16)).view(np.float64) if is_bits else float(text)
        else:
            number = int(text) & ((1 << (8 * np.dtype(dtype).itemsize)) - 1)
        return np.full(shape, number, dtype)

    def _line(self, line: str) -> None:
        name, text = line.split(" = ", 1) if line.startswith("%") else ("", line)
        word = text.split()[0]
        if " asm " in text:
            found = self._asm(text)
        elif word == "call":
            found = self._call(text)
        elif word in BINARY:
            found = self._binary(text)
        else:
            found = getattr(self, f"_{word}")(text)
        if name:
            self.values[name] = found

    def _binary(self, text: str) -> Array:
        word, kind, x, y = re.match(  # type: ignore[union-attr]
            rf"(\w+)(?: nuw| nsw| exact| contract)* ({_KIND}) ({_TERM}), ({_TERM})$", text
        ).groups()
        found: Array = BINARY[word](self._term(kind, x), self._term(kind, y))
        return found

    def _sdiv(self, text: str) -> Array:
        kind, x, y = re.match(  # type: ignore[union-attr]
            rf"sdiv (\w+) ({_TERM}), ({_TERM})$", text
        ).groups()
        a, b = (self._term(kind, t) for t in (x, y))
        a, b = (v.view(f"i{v.itemsize}") for v in (a, b))
        found: Array = np.trunc(a / b).astype(a.dtype).view(f"u{a.itemsize}")
        return found

    def _icmp(self, text: str) -> Array:
        test, kind, x, y = re.match(  # type: ignore[union-attr]
            rf"icmp (\w+) ({_KIND}) ({_TERM}), ({_TERM})$", text
        ).groups()
        a, b = self._term(kind, x), self._term(kind, y)
        if test[0] == "s":
            a, b = (v.view(f"i{v.itemsize}") for v in (a, b))
        found: Array = TESTS[test[1:] if test[0] in "su" else test](a, b)
        return found

    def _fcmp(self, text: str) -> Array:
        test, kind, x, y = re.match(  # type: ignore[union-attr]
            rf"fcmp (\w+) ({_KIND}) ({_TERM}), ({_TERM})$", text
        ).groups()
        assert test[0] == "o" or test == "une"
        found: Array = TESTS[test[1:]](self._term(kind, x), self._term(kind, y))
        return found

    def _select(self, text: str) -> Array:
        parts = re.match(  # type: ignore[union-attr]
            rf"select ({_KIND}) ({_TERM}), ({_KIND}) ({_TERM}), ({_KIND}) ({_TERM})$", text
        ).groups()
        test, x, y = (self._term(parts[i], parts[i + 1]) for i in (0, 2, 4))
        if test.ndim < x.ndim:
            test = test[:, None]
        return np.where(test, x, y)

    def _convert(self, text: str) -> Array:
        word, kind, x, target = re.match(  # type: ignore[union-attr]
            rf"(\w+) ({_KIND}) ({_TERM}) to ({_KIND})$", text
        ).groups()
        value, (dtype, lanes) = self._term(kind, x), self._dtype(target)
        if word == "bitcast":
            plain = np.ascontiguousarray(value).reshape(self.threads, -1).view(dtype)
            return plain[:, 0] if lanes == 1 else plain
        if word in ("sext", "sitofp"):
            value = value.view(f"i{value.itemsize}")
        return value.astype(dtype)

    _zext = _sext = _trunc = _bitcast = _inttoptr = _fpext = _fptrunc = _sitofp = _convert

    def _freeze(self, text: str) -> Array:
        kind, x = re.match(rf"freeze ({_KIND}) ({_TERM})$", text).groups()  # type: ignore[union-attr]
        found: Array = self._term(kind, x)
        return found

    def _ptrtoint(self, text: str) -> Array:
        assert "@dynamic_shared" in text
        return np.full(self.threads, SHARED_START, np.uint32)

    def _getelementptr(self, text: str) -> Array:
        kind, base, step, offset = re.match(  # type: ignore[union-attr]
            rf"getelementptr (?:inbounds )?({_KIND}), {_KIND} ({_TERM}), (\w+) ({_TERM})$", text
        ).groups()
        item = np.dtype(self._dtype(kind)[0]).itemsize
        found: Array = self._term("ptr", base) + self._term(step, offset) * np.uint64(item)
        return found

    def _insertelement(self, text: str) -> Array:
        kind, vector, one, value, place = re.match(  # type: ignore[union-attr]
            rf"insertelement ({_KIND}) ({_TERM}), (\w+) ({_TERM}), i64 (\d+)$", text
        ).groups()
        found = self._term(kind, vector).copy()
        found[:, int(place)] = self._term(one, value)
        return found

    def _extractelement(self, text: str) -> Array:
        kind, vector, place = re.match(  # type: ignore[union-attr]
            rf"extractelement ({_KIND}) ({_TERM}), i64 (\d+)$", text
        ).groups()
        found: Array = self._term(kind, vector)[:, int(place)]
        return found

    def _shufflevector(self, text: str) -> Array:
        kind, vector = re.match(  # type: ignore[union-attr]
            rf"shufflevector ({_KIND}) ({_TERM}), .* zeroinitializer$", text
        ).groups()
        value = self._term(kind, vector)
        return np.repeat(value[:, :1], value.shape[1], 1)

    def _extractvalue(self, text: str) -> Array:
        name, place = re.search(r"(%\w+), (\d+)$", text).groups()  # type: ignore[union-attr]
        found: Array = self.values[name][int(place)]
        return found

    def _call(self, text: str) -> Any:
        name, inside = re.match(  # type: ignore[union-attr]
            r"call \w+ @([\w.]+)\((.*)\)$", text
        ).groups()
        terms = [t.split(" ", 1) for t in inside.split(", ") if t]
        values = [self._term(*t) for t in terms]
        if name.startswith("llvm.nvvm.read.ptx.sreg.tid"):
            return np.arange(self.threads, dtype=np.uint32)
        if name.startswith("llvm.nvvm.read.ptx.sreg.ctaid"):
            return np.full(self.threads, self.block[name[-1]], np.uint32)
        if name.startswith("llvm.nvvm.barrier"):
            assert (self.masks[-1] == self.alive).all()
            self.epoch += 1
            self.meeting += 1
            for group in self.finished:
                self._mark(group, -1)
            self.finished = []
            return None
        if name == "llvm.nvvm.bar.warp.sync":
            self.meeting += 1
            return None
        if name == "llvm.nvvm.vote.ballot.sync":
            lanes = np.uint32(1) << np.arange(32, dtype=np.uint32)
            votes = (values[1].reshape(-1, 32) * lanes).sum(1, dtype=np.uint32)
            return np.repeat(votes, 32)
        if name == "llvm.ctpop.i32":
            return np.bitwise_count(values[0]).astype(np.uint32)
        if name == "llvm.nvvm.shfl.sync.idx.i32":
            return values[1][np.arange(self.threads) // 32 * 32 + int(values[2][0])]
        if name == "llvm.nvvm.shfl.sync.up.i32":
            place = np.arange(self.threads)
            source = place - int(values[2][0])
            return values[1][np.where(source // 32 == place // 32, source, place)]
        if name in FOLDS:
            return FOLDS[name](*values)
        if name in ("llvm.smin.i32", "llvm.smax.i32"):
            fold = np.minimum if "min" in name else np.maximum
            return fold(*[v.view(np.int32) for v in values]).view(np.uint32)
        if name == "llvm.fma.f32":
            a, b, c = (v.astype(np.float64) for v in values)
            return (a * b + c).astype(np.float32)
        if name == "llvm.nvvm.shfl.sync.bfly.i32":
            return values[1][np.arange(self.threads) ^ int(values[2][0])]
        assert name == "llvm.nvvm.prmt", name
        return _permuted(*values)

    # -- memory --------------------------------------------------------------------------------

    def _load(self, text: str) -> Array:
        kind, space, pointer, align = re.match(  # type: ignore[union-attr]
            rf"load ({_KIND}), ptr addrspace\((\d)\) ({_TERM}), align (\d+)", text
        ).groups()
        dtype, lanes = self._dtype(kind)
        size = np.dtype(dtype).itemsize * lanes
        if space == "3":
            return self._load_shared(self._term("ptr", pointer), dtype, size, int(align))
        found = np.zeros((self.threads, size), np.uint8)
        for slot, chosen, places in self._global(self._term("ptr", pointer), size, int(align)):
            found[chosen] = self.memory[slot][places]
        value = found.view(dtype)
        return value[:, 0] if lanes == 1 else value

    def _load_shared(self, address: Array, dtype: Any, size: int, align: int) -> Array:
        mask = self.masks[-1]
        assert not (address[mask] % np.uint64(align)).any()
        places = address[mask].astype(np.int64)[:, None] + np.arange(size)
        self._may_read(places)
        self._note(1, places)
        self.read[places] = self.epoch
        found = np.zeros((self.threads, size), np.uint8)
        found[mask] = self.shared[places]
        value = found.view(dtype)
        return value[:, 0] if size == np.dtype(dtype).itemsize else value

    def _store(self, text: str) -> None:
        kind, value, space, pointer, align = re.match(  # type: ignore[union-attr]
            rf"store ({_KIND}) ({_TERM}), ptr addrspace\((\d)\) ({_TERM}), align (\d+)", text
        ).groups()
        dtype, lanes = self._dtype(kind)
        size = np.dtype(dtype).itemsize * lanes
        data = np.ascontiguousarray(self._term(kind, value)).reshape(self.threads, lanes)
        raw, address = data.view(np.uint8), self._term("ptr", pointer)
        if space == "1":
            for slot, chosen, places in self._global(address, size, int(align)):
                self.memory[slot][places] = raw[chosen]
            return
        mask = self.masks[-1]
        assert not (address[mask] % np.uint64(align)).any()
        if size == 16 and (mask == self.alive).all():
            banks = (address[mask] // np.uint64(16) % np.uint64(8)).reshape(-1, 8)
            self.conflicts += sum(8 - len(set(row)) for row in banks.tolist())
        places = address[mask].astype(np.int64)[:, None] + np.arange(size)
        self._may_write(places, raw[mask])
        self._note(0, places)
        self.shared[places] = raw[mask]
        self.written[places] = self.epoch

    def _atomicrmw(self, text: str) -> None:
        pointer, added = re.match(  # type: ignore[union-attr]
            rf"atomicrmw add ptr addrspace\(3\) ({_TERM}), i32 (\d+) monotonic, align 4$", text
        ).groups()
        places = self._term("ptr", pointer)[self.masks[-1]].astype(np.int64)
        assert not (places % 4).any()
        assert (self.read[places] < self.epoch).all()
        np.add.at(self.shared.view(np.uint32), places // 4, np.uint32(added))
        self.written[places[:, None] + np.arange(4)] = self.epoch

    def _note(self, which: int, places: Array) -> None:
        """Which warp writes or reads there, and after which meeting."""
        warps = np.repeat(np.flatnonzero(self.masks[-1]) // 32, places.shape[1]).reshape(-1)
        flat = places.reshape(-1)
        same = self.met[which, flat] == self.meeting
        others = same & (self.warp[which, flat] != warps)
        self.warp[which, flat] = np.where(others, -2, warps)
        self.met[which, flat] = self.meeting

    def _is_met(self, which: int, places: Array) -> Array:
        """Whether only this thread's warp was there since the last barrier, before a meeting."""
        warps = (np.flatnonzero(self.masks[-1]) // 32)[:, None]
        if len(warps) != len(places):  # tensor cores read for all
            return np.zeros(places.shape, bool)
        found: Array = (self.warp[which][places] == warps) & (
            self.met[which][places] < self.meeting
        )
        return found

    def _global(self, address: Array, size: int, align: int) -> list[tuple[int, Array, Array]]:
        """Places in each array that active threads reach."""
        found = []
        slots = (address >> np.uint64(SLOT)).astype(np.int64)
        offsets = (address & np.uint64((1 << SLOT) - 1)).astype(np.int64)
        for slot in np.unique(slots[self.masks[-1]]).tolist():
            chosen = np.flatnonzero((slots == slot) & self.masks[-1])
            first = offsets[chosen]
            assert not (first % align).any(), "an access is not aligned"
            assert (first + size <= len(self.memory[slot])).all(), f"outside of argument {slot}"
            found.append((slot, chosen, first[:, None] + np.arange(size)))
        return found

    def _may_write(self, places: Array, data: Array) -> None:
        """Whether nobody reads there any more, or the same bytes come again."""
        is_changed = self.shared[places] != data
        changed = places[is_changed]
        is_free = (self.read[places] < self.epoch) | self._is_met(1, places)
        assert is_free[is_changed].all(), "written where another thread may read"
        assert not self.busy[changed].any(), "written where tensor cores may read"

    def _may_read(self, places: Array) -> None:
        assert (self.written[places] >= 0).all(), "read before a copy was waited for"
        is_there = self.written[places] < self.epoch
        if not is_there.all():
            is_there |= self._is_met(0, places)
        assert is_there.all(), "read before a barrier"

    # -- assembly ------------------------------------------------------------------------------

    def _asm(self, text: str) -> Any:
        found = _ASSEMBLY.match(text)
        assert found is not None, text
        _, code, constraints, inside = found.groups()
        inputs = re.findall(rf"({_KIND}) ({_TERM})(?:, |$)", inside)
        values = [self._term(kind, term) for kind, term in inputs]
        outputs = constraints.count("=")
        code = code.replace("\\0A", "\n")
        if code.startswith("cp.async"):
            return self._copy(code, values)
        if "@q st.global" in code:
            self._store_where(code, values)
            return None
        if code.startswith("ldmatrix"):
            return self._matrices(code, values[0])
        if code.startswith("mma.sync"):
            return self._mma(code, values)
        if code.startswith("wgmma.fence"):
            return self._wgmma(code, values, outputs)
        if code.startswith("wgmma.wait_group"):
            self._wait(int(code.rstrip(";").split()[-1]))
            return values
        if code.startswith("cvt.rna.tf32"):
            return _rounded(values[0])
        if code.startswith("ex2"):
            return np.exp2(values[0])
        if code.startswith("lg2"):
            return np.log2(values[0])
        packed = re.match(r"cvt.rn.(\w+)x2.f32", code)
        if packed is not None:
            halves = np.stack(values[::-1], 1).astype(FACTORS[packed[1]])
            return np.ascontiguousarray(halves).view(np.uint32)[:, 0]
        name = re.search(r"cvt.rn.f16x2.(\w+)x2 \$1", code)
        assert name is not None, code
        halves = values[0].view(np.uint8).reshape(-1, 4).view(FACTORS[name[1]]).astype(np.float16)
        words = halves.view(np.uint32)
        return [words[:, 0].copy(), words[:, 1].copy()]

    def _store_where(self, code: str, values: list[Array]) -> None:
        """A store of the threads whose first value is not zero."""
        wanted, address, *words = values
        bits = int(re.search(r"st.global.(?:v4.)?b(\d+)", code)[1])  # type: ignore[index]
        raw = (
            np.stack(words, 1).view(np.uint8).reshape(self.threads, -1)[:, : bits // 8 * len(words)]
        )
        self.masks.append(self.masks[-1] & (wanted != 0))
        for slot, chosen, places in self._global(address, raw.shape[1], raw.shape[1]):
            self.memory[slot][places] = raw[chosen]
        self.masks.pop()

    def _copy(self, code: str, values: list[Array]) -> None:
        if code.startswith("cp.async.commit"):
            self.copies.append([])
        elif code.startswith("cp.async.wait_group"):
            number = re.match(r"cp.async.wait_group (\d+)", code)
            assert number is not None
            while len(self.copies) > int(number[1]) + 1:
                for places, data in self.copies.pop(0):
                    self.shared[places] = data
                    self.written[places] = self.epoch
        else:
            offsets = re.match(r"cp.async.cg.shared.global \[\$0\+(\d+)\], \[\$1\+(\d+)\]", code)
            assert offsets is not None
            target = values[0].astype(np.int64) + int(offsets[1])
            source = values[1] + np.uint64(offsets[2])
            data = np.zeros((self.threads, 16), np.uint8)
            exists = self.masks[-1] & ((values[2] == 16) if len(values) > 2 else True)
            self.masks.append(exists)
            for slot, chosen, places in self._global(source, 16, 16):
                data[chosen] = self.memory[slot][places]
            self.masks.pop()
            mask = self.masks[-1]
            places = target[mask][:, None] + np.arange(16)
            self._may_write(places, data[mask])
            self.written[places] = -1
            self.copies[-1].append((places, data[mask]))

    def _matrices(self, code: str, address: Array) -> list[Array]:
        offset = re.search(r"\[\$4\+(\d+)\]", code)
        assert offset is not None
        places = (address.astype(np.int64) + int(offset[1]))[:, None] + np.arange(16)
        self._may_read(places)
        self.read[places] = self.epoch
        warps = self.threads // 32
        found = self.shared[places].reshape(warps, 4, 8, 8, 2).view(np.uint16)[..., 0]
        if ".trans" in code:
            found = found.swapaxes(-1, -2)
        words = np.ascontiguousarray(found).view(np.uint32)  # warp, matrix, row, pair
        return [words[:, i].reshape(-1).copy() for i in range(4)]

    def _mma(self, code: str, values: list[Array]) -> list[Array]:
        name = re.match(r"mma.sync.aligned.m16n8k\d+.row.col.\w+.(\w+).(\w+).\w+", code)
        assert name is not None
        warps = self.threads // 32
        words = [v.reshape(warps, 8, 4) for v in values]
        a = np.zeros((warps, 2, 8, 2, 4), np.uint32)
        b = np.zeros((warps, 8, 2, 4), np.uint32)
        for i in range(4):
            a[:, i % 2, :, i // 2] = words[i]
        for i in range(2):
            b[:, :, i] = words[4 + i]
        left = _factors(a.reshape(warps, 16, 8).view(np.uint8), name[1])
        right = _factors(b.reshape(warps, 8, 8).view(np.uint8), name[2])
        product = (left @ right.swapaxes(1, 2)).reshape(warps, 2, 8, 4, 2)
        return [
            _sum(words[6 + 2 * half + one], product[:, half, :, :, one]).reshape(-1)
            for half in range(2)
            for one in range(2)
        ]

    def _wgmma(self, code: str, values: list[Array], outputs: int) -> list[Array]:
        lines = [line for line in code.splitlines() if line.startswith("wgmma.mma_async")]
        places = [re.findall(r"\$(\d+)", line.split("}", 1)[1]) for line in lines]
        used = max(int(p) for line in places for p in line) + 1 - outputs
        sums = list(values[used:])
        group: list[Array] = []
        for line, numbers in zip(lines, places, strict=True):
            name = re.match(r"wgmma.mma_async.sync.aligned.m64n(\d+)k\d+.\w+.(\w+).(\w+) ", line)
            assert name is not None
            columns = int(name[1])
            assert columns == 2 * outputs
            inputs = [values[int(p) - outputs] for p in numbers]
            adds, *options = re.findall(r", (\d)", line.rsplit("$", 1)[1])
            turned = [o == "1" for o in options[2:]]
            if not int(adds):
                like = np.int32 if "s32" in line else np.float32
                sums = [np.zeros(self.threads, like) for _ in range(outputs)]
            parts = []
            for first in range(0, self.threads, 128):
                if not self.alive[first]:
                    parts.append(np.zeros((4, 2, 8, columns // 8, 4, 2), parts[0].dtype))
                    continue
                mine = [v[first : first + 128] for v in inputs]
                right = self._operand(mine[-1], columns, turned and turned[-1], name[3], group)
                if len(mine) == 5:
                    left = _from_registers(mine[:4], name[2])
                else:
                    left = self._operand(mine[0], 64, turned and turned[0], name[2], group)
                parts.append((left @ right.T).reshape(4, 2, 8, columns // 8, 4, 2))
            product = np.stack(parts)  # group, warp, half, row, eight, pair, one
            for i in range(outputs):
                eight, half, one = i // 4, i // 2 % 2, i % 2
                piece = product[:, :, half, :, eight, :, one].reshape(-1)
                sums[i] = _sum(sums[i], piece)
        self.products.append(group)
        self._mark(group, 1)
        return sums

    def _mark(self, group: list[Array], by: int) -> None:
        places = np.unique(np.concatenate([p.reshape(-1) for p in group]))
        self.busy[places] += by

    def _operand(
        self,
        descriptors: Array,
        rows: int,
        turned: bool | list[bool],
        name: str,
        group: list[Array],
    ) -> Array:
        """Rows of 32 bytes along k, as a descriptor says where they are."""
        assert (descriptors == descriptors[0]).all()
        places = _described(int(descriptors[0]), rows, bool(turned))
        self._may_read(places)
        group.append(places)
        return _factors(self.shared[places], name)

    def _wait(self, number: int) -> None:
        while len(self.products) > number:
            self.finished.append(self.products.pop(0))


def _permuted(a: Array, b: Array, selector: Array) -> Array:
    """Bytes of two words, chosen by four numbers."""
    pool = np.stack([a, b], 1).view(np.uint8)
    chosen = np.stack([(selector >> np.uint32(4 * i)) & np.uint32(7) for i in range(4)], 1)
    found: Array = np.take_along_axis(pool, chosen.astype(np.int64), 1).view(np.uint32)[:, 0]
    return found


def _rounded(words: Array) -> Array:
    """float32 to eleven bits, half away from zero."""
    found: Array = (words + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return found


def _factors(raw: Array, name: str) -> Array:
    if name == "tf32":
        raw = (np.ascontiguousarray(raw).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.uint8)
    values = np.ascontiguousarray(raw).view(FACTORS[name])
    return values.astype(np.int64 if name in ("s8", "u8") else np.float64)


def _sum(old: Array, added: Array) -> Array:
    """The sum in 32 bits, of the kind that was there."""
    if added.dtype == np.int64:
        wide = old.view(np.int32).astype(np.int64) + added
        return (wide & 0xFFFFFFFF).astype(np.uint32)
    return (old.astype(np.float64) + added).astype(np.float32)


def _described(descriptor: int, rows: int, turned: bool) -> Array:
    """Places of 32 bytes of each row: lines of 128 bytes, permuted by their number. They run along
    k, or along the rows where those are turned, 64 of 16 bits in each."""
    assert descriptor >> 62 == 1, "128-byte rows"
    start = (descriptor & 0x3FFF) << 4
    leading = ((descriptor >> 16) & 0x3FFF) << 4
    apart = ((descriptor >> 32) & 0x3FFF) << 4
    number = np.arange(rows)
    if turned:
        row, step = number[:, None, None], np.arange(16)[None, :, None]
        line = start + row // 64 * leading + step // 8 * apart + step % 8 * 128
        plain: Array = (line + row % 64 * 2 + np.arange(2)).reshape(rows, 32)
    else:
        line = start + number // 8 * apart + number % 8 * 128
        plain = line[:, None] + np.arange(32)
    return plain ^ ((plain >> 3) & 0x70)


def _from_registers(words: list[Array], name: str) -> Array:
    """64 rows of 32 bytes from what the threads of four warps have."""
    found = np.zeros((4, 2, 8, 2, 4), np.uint32)  # warp, half, row, part, pair
    for i, word in enumerate(words):
        found[:, i % 2, :, i // 2] = word.reshape(4, 8, 4)
    return _factors(found.reshape(64, 8).view(np.uint8), name)
