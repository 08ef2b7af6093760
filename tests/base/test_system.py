"""Systems that are not this one, through fakes of their libraries; and this one as it is.

macOS and Windows have not been run: what is checked here is which calls are made, and in which
order, as their documentation wants them.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from svod.base.errors import AllocationError, CompileError
from svod.base.system import system, system_of
from svod.base.system.linux import Linux
from svod.base.system.macos import MacOS
from svod.base.system.windows import Windows

PAGE = 4096
RETURNS_42 = {"x86_64": "b82a000000c3", "aarch64": "40058052c0035fd6"}


class Function:
    """A function of a fake library: it notes its call and answers."""

    def __init__(self, library: Library, name: str) -> None:
        self.library, self.name = library, name
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        self.library.calls.append((self.name, *arguments))
        answer = self.library.answers.get(self.name, 0)
        return answer(*arguments) if callable(answer) else answer


class Library:
    """A library that has every function."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers = answers

    def __getattr__(self, name: str) -> Function:
        function = Function(self, name)
        setattr(self, name, function)
        return function

    def __getitem__(self, name: str) -> Any:
        raise AttributeError(name)  # no function has an address

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


@pytest.fixture
def memory() -> Any:
    return (ctypes.c_char * (2 * PAGE))()


# -- this one --------------------------------------------------------------------------------------


def test_this_system_is_chosen_once() -> None:
    assert system() is system()
    assert system().name == {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def test_code_that_was_filled_in_runs() -> None:
    code = RETURNS_42.get(platform.machine())
    if code is None:
        pytest.skip(f"no code for {platform.machine()} here")
    image = bytearray(PAGE)
    image[: len(code) // 2] = bytes.fromhex(code)
    address = system().map_code(PAGE, PAGE)
    system().fill_code(address, image, PAGE)
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42
    system().unmap_code(address, PAGE)


def test_symbols_are_addresses() -> None:
    assert system().symbol("memcpy")
    assert system().symbol("no_such_function_anywhere") is None


def test_processors_and_private_memory() -> None:
    found = system().processors()
    assert found == sorted(set(found)) and found
    block = system().private_map(3 * PAGE)
    assert len(block) == 3 * PAGE and block[:8] == bytes(8)


# -- macOS -----------------------------------------------------------------------------------------


def test_apple_code_goes_to_pages_for_it(memory: Any) -> None:
    there = Library(mmap=ctypes.addressof(memory))
    mac = MacOS(there, is_arm=True)
    address = mac.map_code(PAGE, PAGE)
    assert there.calls == [("mmap", None, PAGE, 7, 0x1802, -1, 0)], "writable code, MAP_JIT"
    there.calls.clear()
    mac.fill_code(address, bytearray(b"code" + bytes(PAGE - 4)), PAGE)
    assert there.calls == [
        ("pthread_jit_write_protect_np", 0),
        ("pthread_jit_write_protect_np", 1),
        ("sys_icache_invalidate", address, PAGE),
    ]
    assert memory.raw[:4] == b"code"


def test_apple_code_with_variables_is_protected_in_parts(memory: Any) -> None:
    there = Library(mmap=ctypes.addressof(memory))
    mac = MacOS(there, is_arm=True)
    address = mac.map_code(2 * PAGE, PAGE)
    mac.fill_code(address, bytearray(2 * PAGE), PAGE)
    assert there.calls[0][3:5] == (3, 0x1002), "never writable and executable"
    assert there.names == ["mmap", "sys_icache_invalidate", "mprotect"]
    assert there.calls[-1][1:] == (address, PAGE, 5)


def test_a_page_that_cannot_be_written_stays_protected() -> None:
    there = Library(mmap=1)
    with pytest.raises(TypeError):
        MacOS(there, is_arm=True).fill_code(1, b"is no bytearray", 15)  # type: ignore[arg-type]
    assert there.names[-1] == "pthread_jit_write_protect_np" and there.calls[-1][1] == 1


def test_facts_of_macos_come_from_sysctl() -> None:
    known = {
        b"hw.optional.arm.FEAT_DotProd": (1).to_bytes(4, "little"),
        b"hw.optional.arm.FEAT_BF16": (0).to_bytes(4, "little"),
        b"hw.l1dcachesize": (65536).to_bytes(8, "little"),
        b"machdep.cpu.brand_string": b"Apple M1\0",
    }

    def answer(name: bytes, value: Any, size: int, new: None, length: int) -> int:
        if name not in known:
            return -1
        ctypes.memmove(value, known[name], len(known[name]))
        ctypes.c_size_t.from_address(size).value = len(known[name])
        return 0

    mac = MacOS(Library(sysctlbyname=answer), is_arm=True)
    assert mac.arm_features() == {"dotprod"}
    assert mac.cache_bytes(1) == 65536 and mac.cache_bytes(2) is None
    assert mac.processor_name() == "Apple M1"


# -- Windows ---------------------------------------------------------------------------------------


def test_windows_protects_and_flushes(memory: Any) -> None:
    there = Library(VirtualAlloc=ctypes.addressof(memory), VirtualProtect=1, GetCurrentProcess=7)
    windows = Windows(there)
    address = windows.map_code(PAGE, PAGE)
    windows.fill_code(address, bytearray(b"code" + bytes(PAGE - 4)), PAGE)
    windows.unmap_code(address, PAGE)
    assert there.names == [
        "VirtualAlloc", "VirtualProtect", "GetCurrentProcess", "FlushInstructionCache",
        "VirtualFree",
    ]  # fmt: skip
    assert there.calls[0] == ("VirtualAlloc", None, PAGE, 0x3000, 4), "reserved, committed, no code"
    assert there.calls[1][1:4] == (address, PAGE, 0x20), "read and execute"
    assert there.calls[-1] == ("VirtualFree", address, 0, 0x8000)
    assert memory.raw[:4] == b"code"


def test_windows_closes_the_handle_of_a_thread_it_started() -> None:
    there = Library(CreateThread=99)
    assert Windows(there).start_thread(1, 2, 8 << 20)
    assert there.calls[-1] == ("CloseHandle", 99)
    assert not Windows(Library(CreateThread=0)).start_thread(1, 2, 8 << 20)


def test_windows_processors_and_features() -> None:
    def mask(process: int, own: int, others: int) -> int:
        ctypes.c_size_t.from_address(own).value = 0b1011
        return 1

    windows = Windows(Library(GetProcessAffinityMask=mask))
    assert windows.processors() == [0, 1, 3]
    found = Windows(Library(IsProcessorFeaturePresent=lambda n: n == 43)).arm_features()
    assert found == {"neon", "fp-armv8", "dotprod"}


# -- all -------------------------------------------------------------------------------------------

REFUSING = [
    (Linux(Library(mmap=ctypes.c_void_p(-1).value)), Linux(Library(mprotect=-1))),
    (MacOS(Library(mmap=None), True), MacOS(Library(mprotect=-1), False)),
    (Windows(Library(VirtualAlloc=None)), Windows(Library(VirtualProtect=0))),
]


@pytest.mark.parametrize(("poor", "strict"), REFUSING, ids=["linux", "macos", "windows"])
def test_refusals_are_errors_that_say_so(poor: Any, strict: Any, memory: Any) -> None:
    with pytest.raises(AllocationError, match="no memory for 4096 bytes of code"):
        poor.map_code(PAGE, PAGE)
    with pytest.raises(CompileError, match="the system refuses executable memory"):
        strict.fill_code(ctypes.addressof(memory), bytearray(PAGE), PAGE)


def test_facts_of_linux_come_from_the_words_that_the_kernel_gave() -> None:
    words = {16: 1 << 1 | 1 << 20, 26: 1 << 14}
    there = Library(getauxval=lambda kind: words[kind])
    assert Linux(there).arm_features() == {"neon", "dotprod", "bf16"}


@pytest.mark.parametrize("name", ["linux", "darwin", "win32", "freebsd14"])
def test_every_system_has_a_folder_for_caches(name: str) -> None:
    found = system_of(name).cache_home(Path("/home/someone"))
    assert "svod" in found.parts and found.is_absolute()
