"""CUDA programs: loaded machine code, and how it is launched.

Nothing here compiles, so a process that only loads plans does not load the compiler. Kernels take
wide accesses to be aligned; where an argument is not, a second form without wide accesses is
compiled by the function that the loader was given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

from svod.base.errors import DeviceError
from svod.base.timing import span
from svod.device.cuda.driver import (
    FUNCTION_DYNAMIC_SHARED,
    FUNCTION_LOCAL,
    FUNCTION_REGISTERS,
    FUNCTION_SHARED,
    Context,
)
from svod.device.cuda.maps import MapMemory
from svod.device.device import Size3
from svod.ir.needs import Needs


class PlainCode(NamedTuple):
    """The form of a kernel without wide accesses."""

    ptx: bytes
    symbol: str
    shared: int  # bytes of shared memory


class CudaModule:
    """Loaded machine code; it stays loaded as long as somebody holds this."""

    def __init__(self, owner: Context, code: bytes) -> None:
        self.context = owner
        self.code = code
        with span("load"):
            self.handle = owner.use().load_module(code)

    def function(self, name: str, shared: int) -> int:
        """A kernel that may be launched with this much shared memory."""
        driver = self.context.use()
        found = driver.handle("cuModuleGetFunction", self.handle, name.encode())
        if shared:
            driver.call("cuFuncSetAttribute", found, FUNCTION_DYNAMIC_SHARED, shared)
        return found


class CudaProgram:
    """One kernel that can be launched, in two forms: with wide accesses, and without."""

    __slots__ = (
        "_compile_plain", "_elsewhere", "_module", "_plain", "align", "context", "function", "name",
        "shared", "tensors",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        module: CudaModule,
        needs: Needs,
        compile_plain: Callable[[], PlainCode],
    ) -> None:
        self.name = name
        self.context = module.context
        self.align, self.shared, self.tensors = needs
        self.function = module.function(name, self.shared)
        self._module = module
        self._compile_plain = compile_plain
        self._plain: tuple[CudaModule, int] | None = None
        self._elsewhere: dict[int, CudaProgram] = {}

    def on(self, owner: Context) -> CudaProgram:
        """The same kernel on another GPU of the same kind."""
        if owner is self.context:
            return self
        found = self._elsewhere.get(owner.number)
        if found is None:
            if owner.facts.capability != self.context.facts.capability:
                raise DeviceError(
                    f"kernels were compiled for {self.context.facts.name}, but CUDA:{owner.number} "
                    f"is a {owner.facts.name}: all GPUs of a process must be of one kind"
                )
            module = CudaModule(owner, self._module.code)
            needs = Needs(self.align, self.shared, self.tensors)
            found = CudaProgram(self.name, module, needs, self._compile_plain)
            self._elsewhere[owner.number] = found
        return found

    def resources(self, threads: int) -> dict[str, int]:
        """What a block of so many threads takes of a multiprocessor, and how many fit on one."""
        driver = self.context.use()

        def ask(number: int) -> int:
            return driver.integer("cuFuncGetAttribute", number, self.function)

        found = {
            "registers per thread": ask(FUNCTION_REGISTERS),
            "spilled bytes per thread": ask(FUNCTION_LOCAL),
            "shared bytes per block": ask(FUNCTION_SHARED) + self.shared,
            "threads per block": threads,
        }
        occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        if driver.has(occupancy):
            blocks = driver.integer(occupancy, self.function, threads, self.shared)
            found["blocks per multiprocessor"] = blocks
        return found

    def function_for(self, buffers: Sequence[int]) -> int:
        """The form of the kernel that these addresses allow."""
        mask = self.align - 1
        for address in buffers:
            if address & mask:
                return self._without_wide_accesses()
        return self.function

    def _without_wide_accesses(self) -> int:
        if self._plain is None:
            plain = self._compile_plain()
            module = CudaModule(self.context, plain.ptx)
            self._plain = (module, module.function(plain.symbol, plain.shared))
        return self._plain[1]

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None:
        words = (ctypes.c_uint64 * (len(buffers) + len(vals) + 1))(*buffers, *vals)
        start = ctypes.addressof(words)
        count = len(buffers) + len(vals)
        maps = MapMemory(self.tensors)
        listed = [*[start + 8 * i for i in range(count)], *maps.places]
        places = (ctypes.c_void_p * (len(listed) + 1))(*listed)
        grid, block = global_size or (1, 1, 1), local_size or (1, 1, 1)
        driver = self.context.use()
        function = self.function_for(buffers)
        if self.tensors and function == self.function:
            maps.show(driver, buffers)
        code = driver.launch(
            function, *grid, *block, self.shared, self.context.stream, places, None
        )
        if code:
            raise driver.fault(f"launching {self.name} with grid {grid} and block {block}", code)
