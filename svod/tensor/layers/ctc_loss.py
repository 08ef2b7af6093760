"""The CTC loss: a sequence of labels scored against every alignment in time.

The labels with blanks between and around them are the states of a walk through time: every step
stays, goes on by one, or skips a blank between two different labels. The logarithms of the chances
of all walks are added up by a scan over time, one loop whatever the length; lengths are data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import Core, integer, tensor_of, wrap
from svod.tensor.layers.losses import reduce_loss
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import index_of
from svod.tensor.ops.joining import concatenate
from svod.tensor.recording.scan import scan

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_NEVER = -1e30  # the logarithm of a chance of zero; sums of it stay finite in float32
_REDUCTIONS = ("none", "mean", "sum")

Lengths: TypeAlias = "Tensor | Sequence[int] | int"


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative logarithm of the chance of the labels under (T, N, C) log-probabilities.

    The targets are (N, S) with lengths, or all labels one after the other. Labels that cannot fit
    cost infinity, or with ``zero_infinity`` nothing.
    """
    if not isinstance(log_probs, Core) or log_probs.dtype.kind != "f":
        raise DTypeError("ctc_loss takes a tensor of floats as log_probs")
    if not isinstance(targets, Core):
        raise DTypeError(f"ctc_loss takes a tensor of targets, not a {type(targets).__name__}")
    how = _REDUCTIONS[reduction] if isinstance(reduction, int) else reduction
    single = log_probs.ndim == 2
    wide = log_probs if log_probs.dtype.bits >= 32 else log_probs.float()
    scores = wide.unsqueeze(1) if single else wide
    if scores.ndim != 3:
        raise ShapeError(f"ctc_loss: log_probs are (T, N, C) or (T, C), not {log_probs.shape}")
    steps, batch, classes = scores.shape
    blank = integer(blank, "blank")
    if not 0 <= blank < classes:
        raise ShapeError(f"ctc_loss: blank {blank} is outside of {classes} classes")
    times = _lengths(input_lengths, batch, steps, "input_lengths")
    labels, counts = _padded(targets, target_lengths, batch, single)
    line = wrap(B.iota(labels.shape[1], dt.int64), None)
    labels = labels.cast(dt.int64)
    known = select(line < counts.unsqueeze(1), labels, blank)  # what follows may be anything
    states, skips = _states(index_of(known, scores, classes, "ctc_loss"), blank)
    emitted = scores.gather(2, states.unsqueeze(0).expand(steps, *states.shape))
    found = -_chance(emitted, skips, times, counts)
    impossible = found > -_NEVER / 2
    # As in torch, the gradient is that of log-probabilities which stay normalised: the sum of the
    # chances of every step is added, which is constant behind a log_softmax.
    within = wrap(B.iota(steps, dt.int64), None).unsqueeze(1) < times
    chances = select(within, scores.exp().sum(2), 0.0).sum(0)
    found = found + (chances - chances.detach())
    found = select(impossible, 0.0 if zero_infinity else float("inf"), found)
    if how == "mean":
        found = found / counts.clamp(1).cast(found.dtype)
    found = reduce_loss(found.squeeze(0) if single and how == "none" else found, how)
    return found.cast(log_probs.dtype)


def _lengths(given: Lengths, batch: int, limit: int | None, what: str) -> Tensor:
    """Lengths as a vector; numbers are checked, those in a tensor are not read."""
    if not isinstance(given, Core):
        known = np.asarray(given)
        if known.dtype.kind not in "iu" and known.size:
            raise DTypeError(f"ctc_loss: {what} are whole numbers, not {given!r:.60}")
        if known.size and (known.min() < 0 or (limit is not None and known.max() > limit)):
            raise ShapeError(f"ctc_loss: {what} {known.tolist()} are outside of 0 to {limit}")
    found = tensor_of(given).reshape(-1)
    if found.dtype.kind not in "iu":
        raise DTypeError(f"ctc_loss: {what} are whole numbers, not {found.dtype.name}")
    if found.shape != (batch,):
        raise ShapeError(f"ctc_loss: {found.shape[0]} {what} for a batch of {batch}")
    return found.cast(dt.int64)


def _padded(targets: Tensor, lengths: Lengths, batch: int, single: bool) -> tuple[Tensor, Tensor]:
    """Labels as (N, S), and how many of each row count."""
    if single and targets.ndim == 1:
        targets = targets.unsqueeze(0)
    if targets.ndim == 2:
        if targets.shape[0] != batch:
            raise ShapeError(f"ctc_loss: targets {targets.shape} for a batch of {batch}")
        return targets, _lengths(lengths, batch, targets.shape[1], "target_lengths")
    if targets.ndim != 1:
        raise ShapeError(f"ctc_loss: targets are (N, S) or a vector, not {targets.shape}")
    known = np.asarray(lengths.numpy() if isinstance(lengths, Core) else lengths).reshape(-1)
    counts = _lengths(lengths, batch, None, "target_lengths")
    if known.sum() != targets.shape[0]:
        raise ShapeError(f"ctc_loss: {targets.shape[0]} targets, lengths {known.tolist()}")
    starts = tensor_of(np.cumsum(known) - known, targets).unsqueeze(1)
    line = wrap(B.iota(max(int(known.max(initial=0)), 1), dt.int64), None)
    places = (starts + line).clamp(max=max(targets.shape[0] - 1, 0))
    if not targets.shape[0]:
        return places * 0, counts
    return targets[places], counts


def _states(labels: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """Labels with blanks between and around, and which may be reached from two before."""
    batch, size = labels.shape
    labels = labels.cast(dt.int64)
    blanks = labels * 0 + blank
    states = labels.stack(blanks, dim=2).reshape(batch, 2 * size)
    first = wrap(B.full((batch, 1), blank, dt.int64), labels._device)
    states = concatenate([first, states], 1)
    before = concatenate([first, first, states[:, : 2 * size - 1]], 1)[:, : 2 * size + 1]
    return states, (states != blank) & (states != before)


def _chance(emitted: Tensor, skips: Tensor, times: Tensor, counts: Tensor) -> Tensor:
    """The logarithm of the chance of each row of labels."""
    steps, batch, size = emitted.shape
    line = wrap(B.iota(size, dt.int64), emitted._device)
    start = select(line == 0, 0.0, _NEVER).cast(emitted.dtype).expand(batch, size)

    def step(now: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        emits, time = at
        one = now.pad((1, 0), value=_NEVER)[:, :size]
        two = select(skips, now.pad((2, 0), value=_NEVER)[:, :size], _NEVER)
        top = now.maximum(one).maximum(two).detach()
        total = (now - top).exp() + (one - top).exp() + (two - top).exp()
        found = (total.log() + top + emits).clamp(_NEVER)
        return select((time < times).unsqueeze(1), found, now), ()

    clock = wrap(B.iota(steps, dt.int64), emitted._device)
    last, _ = scan(step, start, (emitted, clock))
    end = counts.unsqueeze(1) * 2
    full = select(line == end, last, _NEVER).amax(1)
    ended = select((line == end - 1) & (end > 0), last, _NEVER).amax(1)
    top = full.maximum(ended).detach()
    chance: Tensor = ((full - top).exp() + (ended - top).exp()).log() + top
    return chance
