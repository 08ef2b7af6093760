"""Machines by text, such as ``aarch64-linux+dotprod``: what code can be made for from anywhere.

In: an architecture, perhaps with a level (``x86-64-v3``), perhaps a system, perhaps features by
LLVM's names. Out: a `Target`, with all that its features imply. The facts that follow from it are
those of a usual machine of the kind, never of the one this process runs on, so that the same text
gives the same code everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from svod.base.errors import ConfigError
from svod.base.hashing import digest
from svod.device.cpu.features import ARM_FEATURES, BASELINE, V2, V3, V4, X86_FEATURES

SYSTEMS = {
    "linux": "unknown-linux-gnu",
    "macos": "apple-macosx11.0.0",
    "windows": "pc-windows-msvc",
}
_LEVELS = {"x86-64": BASELINE, "x86-64-v2": V2, "x86-64-v3": V3, "x86-64-v4": V4}
_ARM = frozenset({"fp-armv8", "neon"})  # of every aarch64
_SPELLINGS = {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}
# A feature and what a processor that has it has too.
_IMPLIES: dict[str, frozenset[str]] = {
    "avx": V2 | {"xsave"},
    **dict.fromkeys(("avx2", "fma", "f16c"), V2 | {"avx", "xsave"}),
    **dict.fromkeys(("avxvnni", "avxifma"), V3),
    **dict.fromkeys([name for name in X86_FEATURES if name.startswith("avx512")], V3 | {"avx512f"}),
    **dict.fromkeys(("avx512vnni", "avx512bf16"), V4),
    "sve2": frozenset({"sve", "fullfp16"}),
    "sve": frozenset({"fullfp16"}),
    "fp16fml": frozenset({"fullfp16"}),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A processor, or what several have in common, and the system its code is for."""

    name: str
    architecture: str
    cpu: str  # LLVM's name of it; empty for that of this processor
    features: frozenset[str] | None  # by LLVM's names; None for what ``cpu`` has by itself
    system: str = ""  # a key of SYSTEMS; empty for the one of this process

    def identity(self, here: str) -> str:
        """Everything of it that compiled code depends on; ``here`` is this processor."""
        features = "" if self.features is None else " ".join(sorted(self.features))
        return digest(self.architecture, self.cpu, features, "" if self.cpu else here, self.system)

    @property
    def is_named(self) -> bool:
        """Whether it was given as a text, and has nothing of this machine."""
        return bool(self.system)


@cache
def parse_target(text: str) -> Target:
    """The target of a text; ConfigError says what is known where it is none."""
    base, *wanted = text.strip().lower().replace("_", "-").split("+")
    found = re.fullmatch(r"(.*?)(?:-(linux|macos|windows))?", base)
    assert found is not None, "every text matches"
    level, system = found.group(1), found.group(2) or "linux"
    level = _SPELLINGS.get(level.replace("x86-64", "x86_64"), level)
    if level not in _LEVELS and level != "aarch64":
        raise _unknown(text, f"there is no architecture {level!r}")
    known = ARM_FEATURES if level == "aarch64" else X86_FEATURES
    has = set(_ARM if level == "aarch64" else _LEVELS[level])
    for name in wanted:
        if name not in known:
            raise _unknown(text, f"{level} has no feature {name!r}; known: {', '.join(known)}")
        has |= {name} | _IMPLIES.get(name, frozenset())
    architecture = "aarch64" if level == "aarch64" else "x86_64"
    cpu = "generic" if level == "aarch64" else level
    return Target(text, architecture, cpu, frozenset(has), system)


def _unknown(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"target {text!r}: {why}; use x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or aarch64, then "
        "-linux, -macos or -windows, then features such as +dotprod"
    )
