"""Needs: what the launch of a kernel must provide, beside its arguments.

The renderer finds it out; it travels in the specs to whoever loads and launches the kernel.
"""

from __future__ import annotations

from typing import NamedTuple


class TensorMap(NamedTuple):
    """A matrix, or a stack of them, as the copy engine sees it; sizes in elements, inner first."""

    slot: int  # of the argument
    offset: int  # bytes to the first element
    item: int  # bytes of an element
    sizes: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, of all axes but the first
    box: tuple[int, ...]
    steps: tuple[int, ...] = ()  # places from one to the next in a box; all 1 where not said


class Needs(NamedTuple):
    """What a launch must provide."""

    align: int = 1  # bytes all pointers are aligned to
    shared: int = 0  # bytes of shared memory
    maps: tuple[TensorMap, ...] = ()  # arguments that the launch makes of addresses
