"""Checks of indices in a plan: what a word other than 0 means.

In: the words that the CHECK functions of a plan are given (`svod.ir.guards`). Out: an
IndexRangeError with the function, the index and the range. A native run tests the word itself and
stops there; other runs call the function here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from svod.base.errors import IndexRangeError
from svod.device.buffer import Buffer
from svod.ir.guards import CheckAttrs, bad_index


def look_at_indices(
    buffers: Sequence[Buffer], attrs: tuple[object, ...], values: Mapping[str, int]
) -> None:
    """Raise where the word in buffer 1 says that an index was out of range."""
    word = int(buffers[1].copyout().view(np.uint64)[0])
    if word:
        size = int(buffers[2].copyout()[0]) if len(buffers) > 2 else None
        raise range_error(attrs, word, size)


def range_error(attrs: Sequence[object], word: int, size: int | None = None) -> IndexRangeError:
    """The error that a word stands for; ``size`` where it is known only when the plan runs."""
    found = CheckAttrs(*attrs)  # type: ignore[arg-type]
    if size is not None:
        found = found._replace(size=size)
    return out_of_range(found.what, bad_index(found, word), found.size, found.takes_negative)


def out_of_range(what: str, index: int, size: int, takes_negative: bool) -> IndexRangeError:
    """The error of one index."""
    low = -size if takes_negative else 0
    allowed = f"{low} to {size - 1}" if size else "none"
    return IndexRangeError(
        f"{what}: {index} is out of range for an axis of size {size}, which takes {allowed}"
    )
