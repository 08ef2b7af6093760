"""Sequences of different lengths: padded to one length, or packed time by time.

Lengths are read: they are the shape of a packed sequence. Packed, the elements of all sequences at
the first time come first, then those at the second, and so on; longer sequences stand before
shorter ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.tensor.core.public_functions import guard
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.joining import concatenate, stack
from svod.tensor.tensor import Tensor


class PackedSequence(NamedTuple):
    """Elements time by time, how many there are at each time, and the order of the sequences."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def lengths(self) -> Any:
        """How long the sequences are, longest first."""
        sizes = self.batch_sizes.numpy()
        return (sizes[:, None] > np.arange(sizes[0])).sum(0)

    def with_data(self, data: Tensor) -> PackedSequence:
        """Other elements in the same order."""
        return self._replace(data=data)


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths as one tensor, (T, N, ...) or (N, T, ...)."""
    if padding_side not in ("left", "right"):
        raise ShapeError(f"pad_sequence: padding_side is left or right, not {padding_side!r}")
    given = list(sequences)
    if not given or not all(isinstance(s, Tensor) and s.ndim for s in given):
        raise DTypeError("pad_sequence takes tensors with an axis of time")
    longest = max([s.shape[0] for s in given])
    padded = []
    for s in given:
        if s.shape[1:] != given[0].shape[1:]:
            raise ShapeError(
                f"pad_sequence: elements of shapes {given[0].shape[1:]}, {s.shape[1:]}"
            )
        missing = longest - s.shape[0]
        border = [0, 0] * (s.ndim - 1)
        border += [missing, 0] if padding_side == "left" else [0, missing]
        padded.append(s.pad(border, value=padding_value) if missing else s)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The sequences without their padding."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    sizes = _numbers(lengths)
    if len(sizes) != rows.shape[0]:
        raise ShapeError(f"unpad_sequence: {len(sizes)} lengths for {rows.shape[0]} sequences")
    return [rows[i, :n] for i, n in enumerate(sizes.tolist())]


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """A padded tensor packed; without ``enforce_sorted`` the sequences are sorted by length."""
    rows = input.transpose(0, 1) if batch_first else input
    sizes = _numbers(lengths)
    if input.ndim < 2 or sizes.shape != (rows.shape[1],):
        raise ShapeError(f"pack_padded_sequence: lengths {sizes.tolist()} of {input.shape}")
    if not len(sizes) or sizes.min() < 1 or sizes.max() > rows.shape[0]:
        raise ShapeError(f"lengths are from 1 to {rows.shape[0]}: {sizes.tolist()}")
    order = None
    if not enforce_sorted:
        order = np.argsort(-sizes, kind="stable")
        sizes = sizes[order]
    elif (np.diff(sizes) > 0).any():
        raise ShapeError(f"lengths must fall: {sizes.tolist()}; or pass enforce_sorted=False")
    counts = (sizes[:, None] > np.arange(sizes[0])).sum(0)
    columns = np.arange(len(sizes)) if order is None else order
    places = [t * rows.shape[1] + columns[:n] for t, n in enumerate(counts.tolist())]
    flat = rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])
    where = input.device
    data = flat[Tensor(np.concatenate(places), device=where)]
    sizes_by_time = Tensor(counts, device="CPU")  # read by the host, as in torch
    if order is None:
        return PackedSequence(data, sizes_by_time)
    orders = [Tensor(o, device=where) for o in (order, np.argsort(order))]
    return PackedSequence(data, sizes_by_time, *orders)


def padded(sequence: PackedSequence, value: float = 0.0) -> tuple[Tensor, Any]:
    """The elements as (T, N, ...) in the order of the packing, and which of them are there."""
    sizes = sequence.batch_sizes.numpy()
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    line = np.arange(sizes[0])
    there = line < sizes[:, None]
    places = np.where(there, starts[:, None] + line, 0)
    where = sequence.data.device
    found = sequence.data[Tensor(places, device=where)]
    shown = there.reshape(*there.shape, *[1] * (found.ndim - 2))
    return select(Tensor(shown, device=where), found, value).cast(found.dtype), there


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A packed sequence as a padded tensor in its first order, and the lengths."""
    if not isinstance(sequence, PackedSequence):
        raise DTypeError(f"pad_packed_sequence takes a PackedSequence, not {sequence!r:.40}")
    found, _ = padded(sequence, padding_value)
    lengths = sequence.lengths()
    if total_length is not None:
        missing = total_length - found.shape[0]
        if missing < 0:
            raise ShapeError(f"total_length {total_length} is below {found.shape[0]}")
        border = [0, 0] * (found.ndim - 1) + [0, missing]
        found = found.pad(border, value=padding_value) if missing else found
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices
        found, lengths = found.index_select(1, order), lengths[order.numpy()]
    return found.transpose(0, 1) if batch_first else found, Tensor(lengths, device="CPU")


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of different lengths packed."""
    given = list(sequences)
    lengths = [s.shape[0] for s in given]
    return pack_padded_sequence(pad_sequence(given), lengths, enforce_sorted=enforce_sorted)


def repacked(found: Tensor, sequence: PackedSequence) -> PackedSequence:
    """Values at (T, N, ...) packed as a sequence is."""
    sizes = sequence.batch_sizes.numpy()
    parts = [found[t, :n] for t, n in enumerate(sizes.tolist())]
    return sequence.with_data(concatenate(parts, 0))


def _numbers(lengths: Tensor | Sequence[int]) -> Any:
    found = lengths.numpy() if isinstance(lengths, Tensor) else np.asarray(lengths)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise DTypeError(f"lengths are a vector of whole numbers, not {lengths!r:.60}")
    return found.astype(np.int64)


guard(globals())
