"""How the axes of an array lie in memory."""

from __future__ import annotations

Sizes = tuple[int, ...]


def is_row_major(shape: Sizes, strides: Sizes) -> bool:
    """Whether the last axis is the innermost, without gaps; axes of one element do not count."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def order_in_memory(shape: Sizes, strides: Sizes) -> list[int] | None:
    """The axes from the outermost to the innermost; None where memory has gaps or overlaps."""
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], -shape[axis]))
    sizes, steps = (tuple([values[axis] for axis in order]) for values in (shape, strides))
    return order if is_row_major(sizes, steps) else None
