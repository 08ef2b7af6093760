"""Capabilities: what the kernels of a kind of device can do.

The scheduler, the runtime and the tensors ask these and never the name of a device. A device that
knows more of itself, as which bodies it has one kernel for, says so with a record of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from svod.ir.node import UOp


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What kernels of a device can do, beside loops over memory."""

    packs_operands: bool = False  # a product computes its operands while it packs them
    copies_tiles: bool = False  # a product copies tiles of plain matrices: others are stored first
    runs_blocks: bool = False  # blocks of threads, each with results of its own, many at once
    scatters_at_once: bool = False  # memory finds the last of many writes; sums are sorted first
    scans_rows: bool = False  # the threads of a block fold a row up to each of its places
    joins_phases: bool = False  # one product with zeros is faster than some without
    evaluates_sorts: bool = False  # a sort is an operation
    fuses_attention: bool = False  # one kernel keeps scores to itself, narrow where inputs are
    fuses_attention_gradient: bool = False
    runs_on_cores: bool = False  # functions of this process, which its threads share
    launches_graphs: bool = False  # a plan is recorded once and launched as one
    is_on_host: bool = True  # its memory is read without a copy
    takes: Callable[[UOp], bool] | None = None  # whether there is one good kernel for a body


Capable: TypeAlias = Callable[[str], Capabilities]  # of the device of a name

PLAIN: Final = Capabilities()
BY_KIND: Final[dict[str, Capabilities]] = {
    "CPU": Capabilities(packs_operands=True, runs_on_cores=True),
    "REF": Capabilities(evaluates_sorts=True),
    "CUDA": Capabilities(
        copies_tiles=True, runs_blocks=True, scatters_at_once=True, scans_rows=True,
        joins_phases=True, fuses_attention=True, launches_graphs=True, is_on_host=False,
    ),
}  # fmt: skip


def capabilities_of(device: str) -> Capabilities:
    """What devices of a kind have in common, by the name of one."""
    return BY_KIND.get(device.partition(":")[0], PLAIN)
