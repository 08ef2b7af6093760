"""The element types: one interned object per type and lane count.

A ``DType`` is compared by identity. ``lanes`` is 1 for scalars; the optimiser makes vectors
with ``vec(n)`` and they stay vectors until the renderer. ``index`` is the abstract integer of
index arithmetic; its width is chosen late, from bounds.
"""

from __future__ import annotations

from typing import Final


class DType:
    """An element type. Use the module's constants; never call this.

    Arguments:
        name: the full name, such as "float32".
        short: the short name, such as "f32".
        kind: "b" bool, "u" unsigned, "i" signed, "f" float, "c" complex.
        bits: the width.
        serial: the order among dtypes.

    Example:
        >>> isinstance(svod.float32, svod.DType)
        True
    """

    __slots__ = ("_vectors", "bits", "kind", "lanes", "name", "scalar", "serial", "short")

    def __init__(self, name: str, short: str, kind: str, bits: int, serial: int) -> None:
        self.name = name  # "float32"
        self.short = short  # "f32", the printed form
        self.kind = kind  # b bool, u unsigned, i signed, f float, c complex, x index, v void
        self.bits = bits  # of one lane, as stored
        self.lanes = 1
        self.scalar: DType = self
        self.serial = serial  # position in the list below: stable, used in keys
        self._vectors: dict[int, DType] = {1: self}

    @property
    def itemsize(self) -> int:
        """Bytes of one stored lane."""
        return max(1, self.bits // 8)

    def vec(self, lanes: int) -> DType:
        """The vector of ``lanes`` such elements."""
        root = self.scalar
        found = root._vectors.get(lanes)
        if found is None:
            found = DType(f"{root.name}x{lanes}", root.short, root.kind, root.bits, root.serial)
            found.lanes = lanes
            found.scalar = root
            found = root._vectors.setdefault(lanes, found)
        return found

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_int(self) -> bool:
        return self.kind in ("i", "u", "x")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("i", "x")

    def __repr__(self) -> str:
        return self.short if self.lanes == 1 else f"{self.short}x{self.lanes}"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """The same object; or NumPy's dtype or scalar type of this name, so that
        ``x.dtype == np.float32`` says what its reader expects."""
        if self is other:
            return True
        if isinstance(other, DType):
            return False
        kind = type(other) if not isinstance(other, type) else other
        if kind.__module__.partition(".")[0] not in ("numpy", "ml_dtypes"):
            return NotImplemented
        name = getattr(other, "__name__", None) or getattr(other, "name", None)
        return _NUMPY_NAMES.get(name) is self and getattr(other, "isnative", True) is not False

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return (by_name, (self.scalar.name, self.lanes))

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


bool_: Final = DType("bool", "bool", "b", 8, 0)
int8: Final = DType("int8", "i8", "i", 8, 1)
uint8: Final = DType("uint8", "u8", "u", 8, 2)
int16: Final = DType("int16", "i16", "i", 16, 3)
uint16: Final = DType("uint16", "u16", "u", 16, 4)
int32: Final = DType("int32", "i32", "i", 32, 5)
uint32: Final = DType("uint32", "u32", "u", 32, 6)
int64: Final = DType("int64", "i64", "i", 64, 7)
uint64: Final = DType("uint64", "u64", "u", 64, 8)
float8_e4m3: Final = DType("float8_e4m3", "f8e4m3", "f", 8, 9)  # finite-only, as in ml_dtypes "fn"
float8_e5m2: Final = DType("float8_e5m2", "f8e5m2", "f", 8, 10)
float16: Final = DType("float16", "f16", "f", 16, 11)
bfloat16: Final = DType("bfloat16", "bf16", "f", 16, 12)
float32: Final = DType("float32", "f32", "f", 32, 13)
float64: Final = DType("float64", "f64", "f", 64, 14)
index: Final = DType("index", "idx", "x", 64, 15)
void: Final = DType("void", "void", "v", 0, 16)
complex64: Final = DType("complex64", "c64", "c", 64, 17)  # of tensors; kernels see its floats
complex128: Final = DType("complex128", "c128", "c", 128, 18)

ALL: Final[tuple[DType, ...]] = (
    bool_, int8, uint8, int16, uint16, int32, uint32, int64, uint64,
    float8_e4m3, float8_e5m2, float16, bfloat16, float32, float64, index, void,
    complex64, complex128,
)  # fmt: skip
STORABLE: Final[tuple[DType, ...]] = ALL[:15]
COMPLEX: Final[tuple[DType, ...]] = (complex64, complex128)
FLOATS_OF: Final[dict[DType, DType]] = {complex64: float32, complex128: float64}
COMPLEX_OF: Final[dict[DType, DType]] = {float32: complex64, float64: complex128}
BY_NAME: Final[dict[str, DType]] = {d.name: d for d in ALL}
BY_SHORT: Final[dict[str, DType]] = {d.short: d for d in ALL}
_NUMPY_NAMES: Final[dict[object, DType]] = {
    **{name: d for name, d in BY_NAME.items() if d.kind not in "xv" and d is not float8_e4m3},
    "bool_": bool_,
    "float8_e4m3fn": float8_e4m3,
}


def by_name(name: str, lanes: int = 1) -> DType:
    """The dtype with this long or short name."""
    found = BY_NAME.get(name) or BY_SHORT.get(name)
    if found is None:
        raise KeyError(name)
    return found.vec(lanes)


def integer_limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool type; ``index`` counts as 64 bits."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    half = 1 << (dtype.bits - 1)
    return -half, half - 1
