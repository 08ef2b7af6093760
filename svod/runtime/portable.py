"""What machine code of a saved plan needs from a processor, and whether this one has it.

The code may use every instruction of what it was compiled for (``SVOD_MACHINE``), so it runs where
all of them are there. Model and stepping do not matter; another architecture always does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from svod.base.errors import PlanFormatError
from svod.device.cpu.features import host_features
from svod.device.cpu.host import architecture, cpu_model, target_of
from svod.device.cpu.targets import Target


@dataclass(frozen=True, slots=True)
class Processor:
    """The architecture, the features code may rely on by LLVM's names, and a name for people."""

    architecture: str
    features: frozenset[str]
    model: str

    def refuse_if_lacking(self, other: Processor) -> None:
        """Raise where code made for the other processor cannot run on this one."""
        if self.architecture != other.architecture:
            raise PlanFormatError(
                f"the plan was saved for {other.architecture} ({other.model}) and this is "
                f"{self.architecture} ({self.model}): prepare and save it here"
            )
        missing = sorted(other.features - self.features)
        if missing:
            raise PlanFormatError(
                f"the plan was saved on {other.model} and uses instructions that {self.model} "
                f"lacks ({', '.join(missing[:8])}): prepare and save it here"
            )


def this_processor() -> Processor:
    """The processor this process runs on."""
    return Processor(architecture(), host_features(), cpu_model())


def needed_processor(programs: Iterable[object]) -> Processor:
    """What programs need: what each was compiled for, or all this processor has."""
    targets = target_of_programs(programs)
    needed: frozenset[str] = frozenset()
    for wanted in targets:
        needed |= host_features() if not wanted.cpu else wanted.features or frozenset()
    named = sorted([wanted.name for wanted in targets if wanted.is_named])
    families = {wanted.architecture for wanted in targets} or {architecture()}
    return Processor(families.pop(), needed, named[0] if named else cpu_model())


def target_of_programs(programs: Iterable[object]) -> set[Target]:
    """What programs were compiled for."""
    here = target_of("host")
    return {getattr(program, "target", here) for program in programs}
