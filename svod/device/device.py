"""Device: a renderer, a compiler, a runtime and an allocator under one name.

A renderer turns a kernel into source (ProgramSpec), a compiler turns that into something loadable
(CompiledSpec), and the runtime makes a program of it that can be called. A device may offer several
(renderer, compiler) pairs; the first is the primary one. They are made at first use, so that a
device that only holds memory loads no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from svod.base.errors import DeviceError
from svod.base.locks import reset_lock
from svod.device.names import base_key, canonical
from svod.ir.capabilities import Capabilities, capabilities_of

if TYPE_CHECKING:
    from svod.codegen.target import KernelCode, Target
    from svod.device.allocator import Allocator
    from svod.device.spec import CompiledSpec, ProgramSpec
    from svod.ir.node import UOp
    from svod.optimize.gpu_machine import GpuMachine

Size3: TypeAlias = tuple[int, int, int]


@runtime_checkable
class Program(Protocol):
    """A loaded kernel.

    It keeps no state between calls and may be called from several threads at once; the caller
    answers for valid addresses and for the absence of races between calls.
    """

    @property
    def name(self) -> str: ...

    def __call__(
        self,
        buffers: Sequence[int],  # addresses, in the order of ProgramSpec.globals
        vals: Sequence[int],  # variable values, in the order of CompiledSpec.var_names
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None: ...


@runtime_checkable
class Compiler(Protocol):
    """Turns rendered source into something the runtime loads."""

    def compile(self, spec: ProgramSpec) -> CompiledSpec: ...

    def cache_key(self) -> str:
        """Identity of the compiler: what it makes is never mixed with what another makes."""
        ...


@runtime_checkable
class Renderer(Protocol):
    """Turns a kernel into source."""

    @property
    def device(self) -> str: ...

    def render(self, ast: UOp, name: str | None = None) -> ProgramSpec:
        """Source and metadata of a kernel; without a name it is called "kernel"."""
        ...

    def decompositor(self) -> Any | None:  # rules of svod.ir for ops the target lacks
        """Rules that replace what the target cannot do, or None where it can do everything."""
        ...


@runtime_checkable
class Targeting(Protocol):
    """A renderer that is a target of the compiler."""

    def target(self) -> Target[Any]: ...


@runtime_checkable
class Able(Protocol):
    """A renderer that knows more of its device than what all of its kind have in common."""

    @property
    def capabilities(self) -> Capabilities: ...


@runtime_checkable
class Planning(Protocol):
    """A renderer that chooses loops itself, and can be told to choose others."""

    @property
    def machine(self) -> GpuMachine:
        """What it knows of the device."""
        ...

    def code(self, body: UOp) -> KernelCode:
        """A kernel with the loops that it chooses."""
        ...

    def choice_of(self, body: UOp) -> str:
        """What was chosen for a kernel beside the usual, as a part of keys."""
        ...

    def take_plainer(self, body: UOp) -> bool:
        """Render a body without a plan from now on; False where it was so already."""
        ...

    def work(self, body: UOp) -> tuple[int, int]:
        """Operations and least bytes of a kernel."""
        ...


RuntimeFactory: TypeAlias = Callable[["CompiledSpec"], Program]
CompilerPair: TypeAlias = tuple[Renderer, Compiler]


class Toolchain(NamedTuple):
    """All of a device that makes and loads programs; the first pair is the primary one."""

    pairs: tuple[CompilerPair, ...]
    runtime: RuntimeFactory
    # Programs of one module, where they are better loaded together: the code and their names.
    load_module: Callable[[bytes, Sequence[str]], Sequence[Program]] | None = None


class Device:
    """One place that holds memory and runs programs."""

    def __init__(
        self,
        name: str,
        allocator: Allocator,
        toolchain: Toolchain | Callable[[], Toolchain] | None = None,
    ) -> None:
        self.name = canonical(name)
        self.allocator = allocator
        self._toolchain = toolchain if isinstance(toolchain, Toolchain) else None
        self._make_toolchain = None if isinstance(toolchain, Toolchain) else toolchain
        self._lock = reset_lock()

    @classmethod
    def single(
        cls,
        name: str,
        allocator: Allocator,
        renderer: Renderer,
        compiler: Compiler,
        runtime: RuntimeFactory,
    ) -> Device:
        """A device with one renderer and one compiler."""
        return cls(name, allocator, Toolchain(((renderer, compiler),), runtime))

    @property
    def base_device_key(self) -> str:
        """The name without the index: CPU:0 and CPU:1 share compiled code."""
        return base_key(self.name)

    @property
    def runs_programs(self) -> bool:
        return self._toolchain is not None or self._make_toolchain is not None

    @property
    def compilers(self) -> tuple[CompilerPair, ...]:
        """The (renderer, compiler) pairs, the primary one first."""
        return self.toolchain.pairs

    @property
    def renderer(self) -> Renderer:
        return self.toolchain.pairs[0][0]

    @property
    def capabilities(self) -> Capabilities:
        """What its kernels can do."""
        renderer = self.renderer if self.runs_programs else None
        return renderer.capabilities if isinstance(renderer, Able) else capabilities_of(self.name)

    @property
    def target(self) -> Target[Any] | None:
        """What `svod.codegen.compile` compiles for; None where a renderer does it all itself."""
        renderer = self.renderer
        return renderer.target() if isinstance(renderer, Targeting) else None

    @property
    def planning(self) -> Planning | None:
        """Its renderer, where that chooses loops itself and can choose others."""
        return self.renderer if isinstance(self.renderer, Planning) else None

    @property
    def compiler(self) -> Compiler:
        return self.toolchain.pairs[0][1]

    @property
    def runtime(self) -> RuntimeFactory:
        return self.toolchain.runtime

    @property
    def toolchain(self) -> Toolchain:
        """Renderers, compilers and runtime; made at first use."""
        found = self._toolchain
        if found is None:
            with self._lock:
                found = self._toolchain
                if found is None:
                    found = self._toolchain = self._new_toolchain()
        return found

    def _new_toolchain(self) -> Toolchain:
        if self._make_toolchain is None:
            raise DeviceError(f"{self.name} holds memory only and runs no programs: copy to CPU")
        made = self._make_toolchain()
        if not made.pairs:
            raise DeviceError(f"{self.name} offers no renderer and compiler")
        return made

    def __repr__(self) -> str:
        return f"Device({self.name})"
