"""The object loader: objects that LLVM emits run in this process without LLVM's linker."""

from __future__ import annotations

import ctypes
import gc
import platform
import struct
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from svod.base.errors import CompileError
from svod.device.cpu.elf import ObjectFormatError, ObjectImage
from tests.arm import not_emulated

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is for Linux")


@cache
def target_machine(
    reloc: str = "pic", model: str = "small", triple: str = ""
) -> llvm.TargetMachine:
    if triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return llvm.Target.from_triple(triple).create_target_machine(
            opt=2, reloc=reloc, codemodel=model
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        reloc=reloc,
        codemodel=model,
    )


def emit(ir: str, reloc: str = "pic", model: str = "small", triple: str = "") -> bytes:
    module = llvm.parse_assembly(ir)
    module.verify()
    return bytes(target_machine(reloc, model, triple).emit_object(module))


def call(image: ObjectImage, name: str, *arguments: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return int(function(image.symbol(name))(*arguments))


def vector(values: list[float]) -> str:
    return "<" + ", ".join(f"float {value:.1f}" for value in values) + ">"


CONSTANTS = f"""
@table = private unnamed_addr constant [64 x i64] [{", ".join(f"i64 {i * i}" for i in range(64))}]
define void @add(ptr %x) {{
  %a = load <16 x float>, ptr %x, align 4
  %b = fadd <16 x float> %a, {vector([float(i) for i in range(16)])}
  %c = fmul <16 x float> %b, {vector([2.0] * 8 + [3.0] * 8)}
  store <16 x float> %c, ptr %x, align 4
  ret void
}}
define double @scale(double %x) {{
  %y = fmul double %x, 3.25
  ret double %y
}}
define i64 @lookup(i64 %i) {{
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}}
"""

CALLS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare double @cos(double)
declare i64 @own(i64)
@cosine = global ptr @cos
define void @copy(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}
define void @clear(ptr %to, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %n, i1 false)
  ret void
}
define double @direct(double %x) {
  %y = call double @cos(double %x)
  ret double %y
}
define double @indirect(double %x) {
  %f = load ptr, ptr @cosine
  %y = call double %f(double %x)
  ret double %y
}
define i64 @through(i64 %x) {
  %y = call i64 @own(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""

DATA = """
@zeroed = global [4096 x i64] zeroinitializer
@start = global i64 41
@address = global ptr @start
define i64 @next() {
  %p = load ptr, ptr @address
  %v = load i64, ptr %p
  %n = add i64 %v, 1
  store i64 %n, ptr @start
  ret i64 %n
}
define i64 @bump(i64 %i) {
  %p = getelementptr i64, ptr @zeroed, i64 %i
  %v = load i64, ptr %p
  %n = add i64 %v, 1
  store i64 %n, ptr %p
  ret i64 %n
}
"""

FRAME = """
define i64 @frame(i64 %n) {
entry:
  %a = alloca [100000 x i64], align 64
  br label %fill
fill:
  %i = phi i64 [0, %entry], [%next, %fill]
  %p = getelementptr i64, ptr %a, i64 %i
  store volatile i64 %i, ptr %p
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 100000
  br i1 %more, label %fill, label %read
read:
  %q = getelementptr i64, ptr %a, i64 %n
  %v = load volatile i64, ptr %q
  ret i64 %v
}
"""


def jump_table() -> str:
    cases = " ".join(f"i64 {i}, label %c{i}" for i in range(12))
    blocks = "\n".join(
        f"c{i}:\n  store volatile i64 {i * 7 + 1}, ptr %out\n  br label %done" for i in range(12)
    )
    return f"""
define void @choose(i64 %i, ptr %out) {{
  switch i64 %i, label %done [ {cases} ]
{blocks}
done:
  ret void
}}
"""


def kernels(count: int) -> str:
    return "\n".join(
        f"""
define void @kernel{i}(ptr %bufs, ptr %vals, i64 %core) {{
  %x = load ptr, ptr %bufs
  %a = load <16 x float>, ptr %x, align 4
  %b = fadd <16 x float> %a, {vector([float(i + j) for j in range(16)])}
  store <16 x float> %b, ptr %x, align 4
  ret void
}}"""
        for i in range(count)
    )


def test_vector_and_scalar_constants_and_tables() -> None:
    image = ObjectImage(emit(CONSTANTS))
    values = np.arange(16, dtype=np.float32)
    call(image, "add", values.ctypes.data)
    assert (values == (np.arange(16) * 2) * np.repeat([2, 3], 8)).all()
    scale = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(image.symbol("scale"))
    assert scale(2.0) == 6.5
    assert [call(image, "lookup", i) for i in range(64)] == [i * i for i in range(64)]


def test_calls_to_the_c_library_and_to_given_addresses() -> None:
    own = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 10)
    address = ctypes.cast(own, ctypes.c_void_p).value or 0
    image = ObjectImage(emit(CALLS), {"own": address})
    source = np.random.default_rng(0).integers(0, 255, 100_003, dtype=np.uint8)
    copy = np.zeros_like(source)
    call(image, "copy", copy.ctypes.data, source.ctypes.data, source.size)
    assert (copy == source).all()
    call(image, "clear", copy.ctypes.data, 99_999)
    assert not copy[:99_999].any() and (copy[99_999:] == source[99_999:]).all()
    for name in ("direct", "indirect"):
        function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(image.symbol(name))
        assert function(1.0) == pytest.approx(np.cos(1.0))
    assert call(image, "through", 4) == 41


@pytest.mark.parametrize(("reloc", "model"), [("pic", "small"), ("static", "large")])
def test_writable_data_is_private_to_each_image(reloc: str, model: str) -> None:
    one, two = (ObjectImage(emit(DATA, reloc, model)) for _ in range(2))
    assert [call(one, "next") for _ in range(3)] == [42, 43, 44]
    assert call(two, "next") == 42
    assert call(one, "bump", 4095) == 1 and call(one, "bump", 4095) == 2
    assert call(two, "bump", 4095) == 1


def test_a_large_frame_and_a_jump_table() -> None:
    assert call(ObjectImage(emit(FRAME)), "frame", 77_777) == 77_777
    image = ObjectImage(emit(jump_table()))
    out = np.zeros(1, dtype=np.int64)
    for i in range(12):
        call(image, "choose", i, out.ctypes.data)
        assert out[0] == i * 7 + 1


@not_emulated
def test_many_kernels_load_in_about_a_millisecond() -> None:
    data = emit(kernels(50))
    best = 1.0
    for _ in range(10):
        start = time.perf_counter()
        image = ObjectImage(data)
        best = min(best, time.perf_counter() - start)
    assert len(image.symbols) == 50
    for i in (0, 7, 49):
        values = np.zeros(16, dtype=np.float32)
        buffers = np.array([values.ctypes.data], dtype=np.int64)
        call(image, f"kernel{i}", buffers.ctypes.data, 0, 0)
        assert (values == np.arange(i, i + 16)).all()
    assert best < 0.005, f"{best * 1e3:.2f} ms"


def test_memory_is_never_writable_and_executable_and_goes_with_the_image() -> None:
    image = ObjectImage(emit(DATA))
    low, high = image.address, image.address + image.size
    assert rights_of(low, high) == {"r-xp", "rw-p"}
    image.close()
    image.close()
    assert "r-xp" not in rights_of(low, high)
    with pytest.raises(CompileError, match="no symbol 'next'"):
        image.symbol("next")
    image = ObjectImage(emit(DATA))
    low, high = image.address, image.address + image.size
    del image
    gc.collect()
    assert "r-xp" not in rights_of(low, high)


def rights_of(low: int, high: int) -> set[str]:
    """The access rights of the mappings that overlap the range."""
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if start < high and end > low:
            found.add(rights)
    return found


def test_what_is_not_understood_is_refused_with_a_reason() -> None:
    with pytest.raises(ObjectFormatError, match="not a relocatable"):
        ObjectImage(b"\xcf\xfa\xed\xfe" + bytes(60))
    with pytest.raises(ObjectFormatError, match="damaged object file of 10 bytes"):
        ObjectImage(b"\x7fELF\x02\x01\x01aaa")
    data = emit(CALLS)
    with pytest.raises(CompileError, match="undefined symbol 'own'"):
        ObjectImage(data)
    for cut in range(64, len(data), 97):
        with pytest.raises(ObjectFormatError):
            ObjectImage(data[:cut], {"own": 1})
    if platform.machine() == "x86_64":
        with pytest.raises(ObjectFormatError, match="relocation type 29 is not known"):
            ObjectImage(emit(CONSTANTS.replace("private", "internal"), "pic", "large"))
    thread_local = "@v = thread_local global i64 1\n"
    with pytest.raises(ObjectFormatError, match="thread-local"):
        ObjectImage(emit(thread_local))


def test_aarch64_references_land_where_they_point() -> None:
    ir = (
        CONSTANTS
        + "declare i64 @own(i64)\n"
        + """
define i64 @through(i64 %x) {
  %y = call i64 @own(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""
        + DATA
    )
    data = emit(ir, triple="aarch64-unknown-linux-gnu")
    image = ObjectImage(data, {"own": 0x1122334455667788})
    code = ctypes.string_at(image.address, image.size)
    at = image.symbol("through") - image.address
    words = struct.unpack_from("<16I", code, at)
    branch = next(i for i, word in enumerate(words) if word >> 26 == 0b100101)  # bl
    distance = words[branch] & 0x3FFFFFF
    stub = at + branch * 4 + distance * 4
    assert struct.unpack_from("<IIQ", code, stub) == (0x58000050, 0xD61F0200, 0x1122334455667788)
    at = image.symbol("lookup") - image.address
    page, low = struct.unpack_from("<2I", code, at)
    assert page & 0x9F000000 == 0x90000000  # adrp
    pages = (page >> 29 & 3) | (page >> 5 & 0x7FFFF) << 2
    target = ((image.address + at) & -4096) + (pages << 12) + (low >> 10 & 0xFFF) - image.address
    assert struct.unpack_from("<64q", code, target) == tuple(i * i for i in range(64))


def test_loading_imports_no_llvm(tmp_path: Path) -> None:
    (tmp_path / "kernel.o").write_bytes(emit(CONSTANTS))
    program = (
        "import sys, ctypes; from svod.device.cpu.elf import ObjectImage;"
        f"image = ObjectImage(open({str(tmp_path / 'kernel.o')!r}, 'rb').read());"
        "f = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image.symbol('lookup'));"
        "print(f(9), 'llvmlite' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "81 False\n", result.stderr
