"""Everything that differs between operating systems, behind one module for each.

`system()` is the one place that chooses. What a system does is said in `interface`; code above asks
it for memory, threads, symbols, paths and facts, and never looks at the platform's name for them.
"""

from __future__ import annotations

import sys
from functools import cache

from svod.base.system.interface import System

__all__ = ["System", "system", "system_of"]


@cache
def system() -> System:
    """The system of this process."""
    return system_of(sys.platform)


def system_of(platform: str) -> System:
    """The system that Python calls by this name; one that is not known is taken for a Linux."""
    if platform == "darwin":
        from svod.base.system.macos import MacOS

        return MacOS()
    if platform == "win32":
        from svod.base.system.windows import Windows

        return Windows()
    from svod.base.system.linux import Linux

    return Linux()
