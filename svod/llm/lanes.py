"""Block formats with 16 rows side by side: what products with quantised weights read.

Words of 4 neighbours of a row are kept 16 rows at a time, and so are scales and minima: one load
has the same columns of 16 rows, one per lane, and a sum over columns needs no sum over lanes. Bits
stay as packed as the format has them. `Layout.factors` says what the arrays mean, as ordinary
tensors that fuse into whatever reads them: ``weight = scale * (quants - offset) - minimum``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import svod
from svod.dtype import types as dt
from svod.llm.formats import BlockFormat, signed_scales, six_bit_scales
from svod.tensor.tensor import Tensor

LANES = 16
WORD = 4  # neighbours of a row
Parts = dict[str, Tensor]
_WORDS = ("quants", "high")  # fields that are kept in words; all others are a number per lane


class Factors(NamedTuple):
    """Weights of rows in lanes; the columns are groups x inner x 4, and a group has one scale."""

    quants: Tensor  # uint8 (panels, *groups, *inner, lanes, 4)
    scale: Tensor  # float32 (panels, *groups, lanes)
    minimum: Tensor | None  # likewise
    offset: int
    groups: tuple[int, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What is done to the fields of blocks once, and what the arrays in lanes mean."""

    prepared: Callable[[Parts], Parts]  # fields as (blocks, count)
    factors: Callable[[Parts], Factors]  # words as (panels, blocks, words, lanes, 4)


def in_lanes(kind: BlockFormat, raw: Tensor, rows: int) -> Parts:
    """The arrays of a matrix, from the bytes of its rows; missing rows of the last 16 are zero."""
    blocks = raw.shape[0] // (rows * kind.nbytes)
    if missing := -rows % LANES:
        raw = svod.cat([raw, svod.zeros(missing * blocks * kind.nbytes, dtype=dt.uint8)])
    found = {}
    for name, value in LAYOUTS[kind.name].prepared(kind.parts(raw)).items():
        if name in _WORDS:
            words = value.reshape(-1, LANES, blocks, value.shape[1] // WORD, WORD)
            found[name] = words.permute(0, 2, 3, 1, 4).contiguous()
        else:
            numbers = value.reshape(-1, LANES, blocks, value.shape[1])
            found[name] = numbers.permute(0, 2, 3, 1).contiguous()
    return found


def picked(parts: Parts, rows: Tensor) -> Parts:
    """The arrays of some rows, each in one lane of its own."""
    panels, lanes = rows // LANES, rows % LANES
    return {name: value[panels, :, :, lanes].unsqueeze(3) for name, value in parts.items()}


def weights(kind: BlockFormat, parts: Parts) -> Tensor:
    """All weights of the arrays as float32 (rows, columns), equal to the bit to the format's."""
    found = LAYOUTS[kind.name].factors(parts)
    panels, lanes = found.scale.shape[0], found.scale.shape[-1]
    groups = len(found.groups)
    ones = (1,) * len(found.inner)
    shape = (panels, *found.groups, *ones, lanes, 1)
    values = found.scale.reshape(shape) * (found.quants.cast(dt.int32) - found.offset).float()
    if found.minimum is not None:
        values = values - found.minimum.reshape(shape)
    axes = len(values.shape)
    order = (0, axes - 2, *range(1, 1 + groups + len(ones)), axes - 1)
    return values.permute(*order).reshape(panels * lanes, -1)


def _shifted(words: Tensor, shifts: Tensor, mask: int) -> Tensor:
    return (words >> shifts) & mask


def _steps(count: int, width: int, *shape: int) -> Tensor:
    """Shifts by multiples of a width, along the one axis of a shape that is not one."""
    return (svod.arange(count, dtype=dt.uint8) * width).reshape(*shape)


def _same(p: Parts) -> Parts:
    return p


# -- blocks of 32 ----------------------------------------------------------------------------------


def _unsigned(p: Parts) -> Parts:
    return {**p, "quants": p["quants"].bitcast(dt.uint8) ^ 0x80}


def _eight(p: Parts) -> Factors:
    quants = p["quants"]
    scale = p["d"].float().squeeze(2)
    return Factors(quants, scale, None, 128, (quants.shape[1],), (8,))


def _nibbles(p: Parts) -> Tensor:
    """Low halves of 16 bytes, then high ones: (panels, blocks, 2, 4, lanes, 4)."""
    return _shifted(p["quants"].unsqueeze(2), _steps(2, 4, 1, 1, 2, 1, 1, 1), 15)


def _four(offset: int) -> Callable[[Parts], Factors]:
    return lambda p: _of_32(p, _nibbles(p), offset)


def _of_32(p: Parts, quants: Tensor, offset: int) -> Factors:
    least = -p["minimum"].float().squeeze(2) if "minimum" in p else None
    return Factors(quants, p["d"].float().squeeze(2), least, offset, (quants.shape[1],), (2, 4))


def _bits_in_bytes(p: Parts) -> Parts:
    """32 high bits as a word whose byte p has, at bit w, the one of element 4 * w + p."""
    places = svod.arange(8, dtype=dt.uint32).reshape(1, 8, 1)
    inside = svod.arange(WORD, dtype=dt.uint32).reshape(1, 1, WORD)
    bits = (p["high"].reshape(-1, 1, 1) >> (places * WORD + inside)) & 1
    return {**p, "high": (bits << places).sum(1, dtype=dt.uint32).cast(dt.uint8)}


def _five(offset: int) -> Callable[[Parts], Factors]:
    def factors(p: Parts) -> Factors:
        shifts = svod.arange(8, dtype=dt.uint8).reshape(1, 1, 2, 4, 1, 1)
        high = _shifted(p["high"].unsqueeze(2), shifts, 1) << 4
        return _of_32(p, _nibbles(p) | high, offset)

    return factors


# -- blocks of 256 ---------------------------------------------------------------------------------


def _scales_apart(p: Parts) -> Parts:
    scale, least = six_bit_scales(p["scales"])
    kept = {name: value for name, value in p.items() if name != "scales"}
    return {**kept, "scale": scale.cast(dt.uint8), "least": least.cast(dt.uint8)}


def _with_minima(p: Parts, quants: Tensor) -> Factors:
    panels, blocks, lanes = quants.shape[0], quants.shape[1], quants.shape[-2]
    shape = (panels, blocks, 4, 2, lanes)
    d, least = (p[name].float().reshape(panels, blocks, 1, 1, lanes) for name in ("d", "minimum"))
    scale = d * p["scale"].float().reshape(*shape)
    minimum = least * p["least"].float().reshape(*shape)
    return Factors(quants, scale, minimum, 0, (blocks, 4, 2), (8,))


def _k_nibbles(p: Parts) -> Tensor:
    """64 elements per 32 bytes: (panels, blocks, 4, 2, 8, lanes, 4)."""
    q = p["quants"]
    q = q.reshape(q.shape[0], q.shape[1], 4, 1, 8, q.shape[3], WORD)
    return _shifted(q, _steps(2, 4, 1, 1, 1, 2, 1, 1, 1), 15)


def _q4_k(p: Parts) -> Factors:
    return _with_minima(p, _k_nibbles(p))


def _q5_k(p: Parts) -> Factors:
    h = p["high"]
    h = h.reshape(h.shape[0], h.shape[1], 1, 1, 8, h.shape[3], WORD)
    high = _shifted(h, svod.arange(8, dtype=dt.uint8).reshape(1, 1, 4, 2, 1, 1, 1), 1) << 4
    return _with_minima(p, _k_nibbles(p) | high)


def _pairs(p: Parts) -> Tensor:
    """Two bits each, 128 elements per 32 bytes: (panels, blocks, 2, 4, 2, 4, lanes, 4)."""
    q = p["quants"]
    q = q.reshape(q.shape[0], q.shape[1], 2, 1, 2, 4, q.shape[3], WORD)
    return _shifted(q, _steps(4, 2, 1, 1, 1, 4, 1, 1, 1, 1), 3)


def _in_sixteens(p: Parts, name: str) -> Tensor:
    """A number for each 16 elements: (panels, blocks, 2, 4, 2, lanes)."""
    value = p[name]
    return value.reshape(value.shape[0], value.shape[1], 2, 4, 2, value.shape[3])


def _once(p: Parts, name: str) -> Tensor:
    value = p[name].float()
    return value.reshape(value.shape[0], value.shape[1], 1, 1, 1, value.shape[3])


def _q2_k(p: Parts) -> Factors:
    quants, scales = _pairs(p), _in_sixteens(p, "scales")
    scale = _once(p, "d") * (scales & 15).float()
    minimum = _once(p, "minimum") * (scales >> 4).float()
    return Factors(quants, scale, minimum, 0, (quants.shape[1], 2, 4, 2), (4,))


def _q3_scales(p: Parts) -> Parts:
    return {**p, "scales": signed_scales(p["scales"]).cast(dt.int8)}


def _q3_k(p: Parts) -> Factors:
    h = p["high"]
    h = h.reshape(h.shape[0], h.shape[1], 1, 1, 2, 4, h.shape[3], WORD)
    high = _shifted(h, svod.arange(8, dtype=dt.uint8).reshape(1, 1, 2, 4, 1, 1, 1, 1), 1) << 2
    quants = _pairs(p) | high
    scale = _once(p, "d") * _in_sixteens(p, "scales").float()
    return Factors(quants, scale, None, 4, (quants.shape[1], 2, 4, 2), (4,))


def _q6_k(p: Parts) -> Factors:
    """128 elements take 64 bytes of low halves and 32 of high pairs."""
    q, h = p["quants"], p["high"]
    panels, blocks, lanes = q.shape[0], q.shape[1], q.shape[3]
    low = q.reshape(panels, blocks, 2, 1, 2, 2, 4, lanes, WORD)
    low = _shifted(low, _steps(2, 4, 1, 1, 1, 2, 1, 1, 1, 1, 1), 15)
    high = h.reshape(panels, blocks, 2, 1, 1, 2, 4, lanes, WORD)
    shifts = _steps(4, 2, 4).reshape(1, 1, 1, 2, 2, 1, 1, 1, 1)
    high = _shifted(high, shifts, 3) << 4
    scales = p["scales"].float().reshape(panels, blocks, 2, 2, 2, 2, lanes)
    scale = p["d"].float().reshape(panels, blocks, 1, 1, 1, 1, lanes) * scales
    return Factors(low | high, scale, None, 32, (blocks, 2, 2, 2, 2), (4,))


LAYOUTS: dict[str, Layout] = {
    "Q8_0": Layout(_unsigned, _eight),
    "Q4_0": Layout(_same, _four(8)),
    "Q4_1": Layout(_same, _four(0)),
    "Q5_0": Layout(_bits_in_bytes, _five(16)),
    "Q5_1": Layout(_bits_in_bytes, _five(0)),
    "Q2_K": Layout(_same, _q2_k),
    "Q3_K": Layout(_q3_scales, _q3_k),
    "Q4_K": Layout(_scales_apart, _q4_k),
    "Q5_K": Layout(_scales_apart, _q5_k),
    "Q6_K": Layout(_same, _q6_k),
}
