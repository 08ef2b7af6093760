"""What machine code of a saved plan needs from a processor, and whether this one has it.

The code uses every instruction set of the processor it was made for, so it runs where all of them
are there. Model and stepping do not matter; another architecture always does.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from svod.base.errors import PlanFormatError

# Flags of x86-64 that name instructions a compiler may use; the others are about the system.
_INSTRUCTIONS = re.compile(
    r"(sse|ssse|pni|avx|fma|f16c|bmi|abm|popcnt|movbe|aes|vaes|pclmul|vpclmul|gfni|sha|amx|adx"
    r"|rdrand|rdseed|rdpid|xsave|clflushopt|clwb|cx16|3dnowprefetch|fsgsbase|movdir|serialize)"
)


@dataclass(frozen=True, slots=True)
class Processor:
    """The architecture, the features code may rely on, and a name for people."""

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


@cache
def this_processor() -> Processor:
    """The processor this process runs on."""
    architecture = platform.machine().lower()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        model = platform.processor() or architecture
        return Processor(architecture, frozenset({model}), model)
    flags = _field(text, "flags") or _field(text, "Features")
    features = [flag for flag in flags.split() if _is_instruction(flag, architecture)]
    model = _field(text, "model name") or _field(text, "CPU part") or architecture
    return Processor(architecture, frozenset(features), model)


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _is_instruction(flag: str, architecture: str) -> bool:
    return architecture not in ("x86_64", "amd64") or _INSTRUCTIONS.match(flag) is not None
