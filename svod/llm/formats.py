"""Block formats as data: how many weights share how many bytes, and what the bytes mean.

A format lists the fields of a block in their order and has one expression that makes the weights
of it. `decoded` turns bytes (a uint8 tensor) into float32 weights with ordinary operations of
tensors, so decoding fuses into whatever reads the weights. Each operation rounds once, in the
order of the format's definition: results are equal to the bit everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import svod
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.llm.errors import ModelFileError
from svod.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Field:
    """A run of equal elements in a block."""

    name: str
    dtype: DType
    count: int = 1


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """`elements` weights in the bytes of `fields`; `decode` gets each field as (blocks, count)."""

    name: str
    number: int  # in files
    elements: int
    fields: tuple[Field, ...]
    decode: Callable[[dict[str, Tensor]], Tensor]

    @property
    def nbytes(self) -> int:
        """Of one block."""
        return sum(field.count * field.dtype.itemsize for field in self.fields)

    def size(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor; its last axis must be whole blocks."""
        if not shape or shape[-1] % self.elements:
            raise ModelFileError(
                f"{self.name} keeps rows in blocks of {self.elements}: the shape {shape} has rows "
                f"of {shape[-1] if shape else 1}"
            )
        return prod(shape) // self.elements * self.nbytes

    def decoded(self, raw: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The weights of these bytes, as float32 of a shape."""
        if self.elements == 1:
            blocks = raw.reshape(-1, self.nbytes)
            return _field(blocks, 0, self.fields[0]).float().reshape(shape)
        return self.decode(self.parts(raw)).reshape(shape)

    def parts(self, raw: Tensor) -> dict[str, Tensor]:
        """The fields of these bytes, each as (blocks, count)."""
        blocks = raw.reshape(-1, self.nbytes)
        parts, place = {}, 0
        for field in self.fields:
            parts[field.name] = _field(blocks, place, field)
            place += field.count * field.dtype.itemsize
        return parts


def _field(blocks: Tensor, place: int, field: Field) -> Tensor:
    """A field of every block, put together from its bytes."""
    width = field.dtype.itemsize
    part = blocks[:, place : place + field.count * width]
    if width == 1:
        return part if field.dtype == dt.uint8 else part.bitcast(field.dtype)
    unsigned = {2: dt.uint16, 4: dt.uint32, 8: dt.uint64}[width]
    part = part.reshape(-1, field.count, width).cast(unsigned)
    whole = part[:, :, 0]
    for byte in range(1, width):
        whole = whole | (part[:, :, byte] << (8 * byte))
    return whole if field.dtype == unsigned else whole.bitcast(field.dtype)


def _bits(packed: Tensor, run: int, width: int) -> Tensor:
    """Numbers of `width` bits, from runs of bytes: all lowest bits of a run first, then the next.

    (blocks, bytes) in, (blocks, 8 // width * bytes) out.
    """
    count = 8 // width
    shifts = (svod.arange(count, dtype=dt.int32) * width).reshape(1, 1, count, 1)
    parts = packed.cast(dt.int32).reshape(packed.shape[0], -1, 1, run)
    return ((parts >> shifts) & ((1 << width) - 1)).reshape(packed.shape[0], -1)


def _high_bits(word: Tensor) -> Tensor:
    """The 32 bits of a number, lowest first: (blocks, 1) to (blocks, 32)."""
    places = svod.arange(32, dtype=dt.uint32).reshape(1, 32)
    return ((word >> places) & 1).cast(dt.int32)


def _table(values: tuple[int, ...], index: Tensor) -> Tensor:
    """Numbers of a table by index, as float32."""
    return Tensor(list(values), dtype=dt.float32)[index]


def _grouped(scale: Tensor, quants: Tensor) -> Tensor:
    """Quants (blocks, n) as float32 in as many groups as there are scales."""
    return quants.float().reshape(scale.shape[0], scale.shape[1], -1)


def _plain(parts: dict[str, Tensor]) -> Tensor:
    return parts["values"].float()


def _q4_0(p: dict[str, Tensor]) -> Tensor:
    return p["d"].float() * (_bits(p["quants"], 16, 4) - 8).float()


def _q4_1(p: dict[str, Tensor]) -> Tensor:
    return p["d"].float() * _bits(p["quants"], 16, 4).float() + p["minimum"].float()


def _q5(p: dict[str, Tensor]) -> Tensor:
    return _bits(p["quants"], 16, 4) | (_high_bits(p["high"]) << 4)


def _q5_0(p: dict[str, Tensor]) -> Tensor:
    return p["d"].float() * (_q5(p) - 16).float()


def _q5_1(p: dict[str, Tensor]) -> Tensor:
    return p["d"].float() * _q5(p).float() + p["minimum"].float()


def _q8_0(p: dict[str, Tensor]) -> Tensor:
    return p["d"].float() * p["quants"].float()


def _q2_k(p: dict[str, Tensor]) -> Tensor:
    scale = p["d"].float() * (p["scales"] & 15).float()
    minimum = p["minimum"].float() * (p["scales"] >> 4).float()
    quants = _grouped(scale, _bits(p["quants"], 32, 2))
    return scale.unsqueeze(2) * quants - minimum.unsqueeze(2)


def signed_scales(packed: Tensor) -> Tensor:
    """16 scales of 6 bits in 12 bytes, less 32: 4 bits of each in the first 8, 2 in the others."""
    low, high = _bits(packed[:, :8], 8, 4), _bits(packed[:, 8:], 4, 2)
    return (low | (high << 4)) - 32


def _q3_k(p: dict[str, Tensor]) -> Tensor:
    scale = p["d"].float() * signed_scales(p["scales"]).float()
    absent = _bits(p["high"], 32, 1) ^ 1
    quants = _bits(p["quants"], 32, 2) - (absent << 2)
    return scale.unsqueeze(2) * _grouped(scale, quants)


def six_bit_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """8 scales and 8 minima of 6 bits in 12 bytes: the upper 2 bits of the last four of each are
    above the first four."""
    b = packed.cast(dt.int32)
    first, second, third = b[:, :4], b[:, 4:8], b[:, 8:]
    scale = svod.cat([first & 63, (third & 15) | ((first >> 6) << 4)], 1)
    minimum = svod.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], 1)
    return scale, minimum


def _k_with_minimum(p: dict[str, Tensor], quants: Tensor) -> Tensor:
    scale, minimum = six_bit_scales(p["scales"])
    scale, minimum = p["d"].float() * scale.float(), p["minimum"].float() * minimum.float()
    return scale.unsqueeze(2) * _grouped(scale, quants) - minimum.unsqueeze(2)


def _q4_k(p: dict[str, Tensor]) -> Tensor:
    return _k_with_minimum(p, _bits(p["quants"], 32, 4))


def _q5_k(p: dict[str, Tensor]) -> Tensor:
    return _k_with_minimum(p, _bits(p["quants"], 32, 4) | (_bits(p["high"], 32, 1) << 4))


def _q6_k(p: dict[str, Tensor]) -> Tensor:
    quants = (_bits(p["quants"], 64, 4) | (_bits(p["high"], 32, 2) << 4)) - 32
    scale = p["d"].float() * p["scales"].float()
    return scale.unsqueeze(2) * _grouped(scale, quants)


_NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _iq4_nl(p: dict[str, Tensor]) -> Tensor:
    return p["d"].float() * _table(_NONLINEAR, _bits(p["quants"], 16, 4))


def _iq4_xs(p: dict[str, Tensor]) -> Tensor:
    low = _bits(p["low"], 1, 4)
    places = svod.arange(8, dtype=dt.uint16).reshape(1, 8) * 2
    high = ((p["high"] >> places) & 3).cast(dt.int32)
    scale = p["d"].float() * ((low | (high << 4)) - 32).float()
    values = _table(_NONLINEAR, _bits(p["quants"], 16, 4))
    return scale.unsqueeze(2) * _grouped(scale, values)


def _mxfp4(p: dict[str, Tensor]) -> Tensor:
    """The table is doubled, so the power of two is halved; the smallest two are subnormal."""
    exponent = p["exponent"].cast(dt.uint32)
    subnormal = svod.where(exponent == 0, 0x00200000, 0x00400000).cast(dt.uint32)
    bits = svod.where(exponent < 2, subnormal, (exponent - 1) << 23)
    return bits.bitcast(dt.float32) * _table(_E2M1_DOUBLED, _bits(p["quants"], 16, 4))


def _nvfp4(p: dict[str, Tensor]) -> Tensor:
    """Scales are floats of 4 and 3 bits without sign, halved as the table is doubled."""
    raw = p["scales"].cast(dt.uint32)
    exponent, fraction = (raw >> 3) & 15, raw & 7
    normal = (((exponent + 119) << 23) | (fraction << 20)).bitcast(dt.float32)
    scale = svod.where(exponent == 0, fraction.float() * 2.0**-10, normal)
    scale = svod.where((raw == 0) | (raw == 0x7F), 0.0, scale)
    values = _table(_E2M1_DOUBLED, _bits(p["quants"], 8, 4))
    return scale.unsqueeze(2) * _grouped(scale, values)


_D, _MIN = Field("d", dt.float16), Field("minimum", dt.float16)


def _u8(name: str, count: int) -> Field:
    return Field(name, dt.uint8, count)


def _whole(name: str, number: int, dtype: DType) -> BlockFormat:
    return BlockFormat(name, number, 1, (Field("values", dtype),), _plain)


_WORD, _NIBBLES, _SCALES = Field("high", dt.uint32), _u8("quants", 16), _u8("scales", 12)
FORMATS: tuple[BlockFormat, ...] = (
    _whole("F32", 0, dt.float32),
    _whole("F16", 1, dt.float16),
    _whole("BF16", 30, dt.bfloat16),
    _whole("F64", 28, dt.float64),
    _whole("I8", 24, dt.int8),
    _whole("I16", 25, dt.int16),
    _whole("I32", 26, dt.int32),
    _whole("I64", 27, dt.int64),
    BlockFormat("Q4_0", 2, 32, (_D, _NIBBLES), _q4_0),
    BlockFormat("Q4_1", 3, 32, (_D, _MIN, _NIBBLES), _q4_1),
    BlockFormat("Q5_0", 6, 32, (_D, _WORD, _NIBBLES), _q5_0),
    BlockFormat("Q5_1", 7, 32, (_D, _MIN, _WORD, _NIBBLES), _q5_1),
    BlockFormat("Q8_0", 8, 32, (_D, Field("quants", dt.int8, 32)), _q8_0),
    BlockFormat("Q2_K", 10, 256, (_u8("scales", 16), _u8("quants", 64), _D, _MIN), _q2_k),
    BlockFormat("Q3_K", 11, 256, (_u8("high", 32), _u8("quants", 64), _SCALES, _D), _q3_k),
    BlockFormat("Q4_K", 12, 256, (_D, _MIN, _SCALES, _u8("quants", 128)), _q4_k),
    BlockFormat(
        "Q5_K", 13, 256, (_D, _MIN, _SCALES, _u8("high", 32), _u8("quants", 128)), _q5_k
    ),
    BlockFormat(
        "Q6_K", 14, 256,
        (_u8("quants", 128), _u8("high", 64), Field("scales", dt.int8, 16), _D), _q6_k,
    ),
    BlockFormat("IQ4_NL", 20, 32, (_D, _NIBBLES), _iq4_nl),
    BlockFormat(
        "IQ4_XS", 23, 256,
        (_D, Field("high", dt.uint16), _u8("low", 4), _u8("quants", 128)), _iq4_xs,
    ),
    BlockFormat("MXFP4", 39, 32, (_u8("exponent", 1), _NIBBLES), _mxfp4),
    BlockFormat("NVFP4", 40, 64, (_u8("scales", 4), _u8("quants", 32)), _nvfp4),
)  # fmt: skip
BY_NUMBER = {found.number: found for found in FORMATS}
BY_NAME = {found.name: found for found in FORMATS}
