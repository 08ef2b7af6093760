"""The op list, on one screen, in the order the pipeline meets them.

An op is a small integer. ``NAMES[op]`` is its printed name.

Shapes: in the tensor graph every node has a shape; in kernels everything is a scalar or vector.
Elementwise operands have equal shapes, except that rank-0 operands broadcast.
"""

from __future__ import annotations

from typing import Final

# -- tensor graph: structure ----------------------------------------------------------------
SINK: Final = 0  # src: roots. The graph to realise, or a kernel's stores
CONTIGUOUS: Final = 1  # src: (x). Value of x, stored in a buffer of its own
BUFFER: Final = 2  # src: (DEVICE). arg BufferRef: 1-d storage, the reference holds the memory;
#   in a cached schedule src is (LUNIQUE, DEVICE) and arg is BufferArg(size)
BUFFER_VIEW: Final = 3  # src: (BUFFER). arg ViewArg(size, offset) in elements of dtype
COPY: Final = 4  # src: (x, DEVICE). x on another device
UNIQUE: Final = 5  # arg int: identity of a buffer
LUNIQUE: Final = 6  # arg int: identity local to a cached schedule
DEVICE: Final = 7  # arg str: "CPU", "CPU:1"
PARAM: Final = (
    8  # src: () or (DEVICE). arg ParamArg(slot, shape): kernel argument; marked: placeholder
)
ASSIGN: Final = 9  # src: (target, value). target (a BUFFER behind movement ops) takes value
# -- tensor graph: movement ------------------------------------------------------------------
RESHAPE: Final = 10  # arg: new shape
PERMUTE: Final = 11  # arg: tuple of axes
EXPAND: Final = 12  # arg: new shape; axes of size 1 grow
PAD: Final = 13  # arg: ((before, after), ...); pads with zero
SHRINK: Final = 14  # arg: ((start, stop), ...)
FLIP: Final = 15  # arg: tuple of axes
REDUCE_AXIS: Final = 16  # arg ReduceArg(op, axes); reduced axes stay with size 1
CUSTOM_FUNCTION: Final = 17  # arg CustomArg(kind, attrs, ...)
MSELECT: Final = 18  # src: (stack). arg int: which shard
MSTACK: Final = 19  # src: shards
SHARD: Final = 110  # src: (x). arg Placement: x, split over the mesh it is on as the placement says
IOTA: Final = 37  # arg int n: 0, 1, .. n-1 as a tensor of shape (n,)
GATHER: Final = 38  # src: (x, *indices). indices share a shape I and address the leading axes of
#   x: out[I.., rest..] = x[i0[I], .., rest..]; an index outside its axis reads 0
SCATTER: Final = 39  # src: (x, values, *indices). arg "set", "add" or "max": x with values[I..,
#   rest..] written at x[i0[I], .., rest..] in row-major order of I (the last one wins), added to
#   what is there, or the larger one kept (whole numbers); outside: dropped
SORT: Final = 108  # src: (x). Words (uint64) of the last axis in ascending order. arg SortArg: how
#   many are kept, which bits may be out of order, and which are given
RADIX: Final = 109  # src: (x), (counts) or (x, starts). arg RadixArg: one step of a sort of a long
#   axis by some bits of its words: count them by blocks, add the counts up, or put words in place
COMPLEX: Final = 104  # src: (x). Pairs of floats, x[.., 2], as complex numbers. Only tensors hold
#   one, on top of their graph: whatever is computed or stored is the floats
CAT: Final = 48  # src: pieces. arg int: the axis along which they follow each other
SCAN: Final = 79  # src: (body, value, *inputs). arg ScanArg: a loop over time; see svod.ir.scan
# -- kernels: loops and memory ---------------------------------------------------------------
CALL: Final = 20  # src: (body, *args). One kernel launch
RANGE: Final = 21  # src: (size). arg RangeArg(id, kind). A loop counter 0..size-1
INDEX: Final = 22  # src: (memory, offset[, gate]). A place in memory, offset in elements
LOAD: Final = 23  # src: (INDEX[, alternative]). alternative is the value where the gate is false
STORE: Final = 24  # src: (INDEX, value)
REDUCE: Final = 25  # src: (*values, *ranges). arg: op. Values folded over the ranges, in order;
#   once lowered: (ACC, next value, *ranges)
END: Final = 26  # src: (body, *ranges). Closes loops around stores
AFTER: Final = 27  # src: (value, *effects). value, once the effects have happened; in a kernel
#   also *indices: memory as it is in this step of the loops they count
BARRIER: Final = 28
DEFINE_VAR: Final = 29  # arg VarArg(name, lo, hi): a run-time integer
BIND: Final = 30  # src: (DEFINE_VAR, CONST or RANGE)
DEFINE_LOCAL: Final = 31  # arg LocalArg(size, id): scratch memory
SPECIAL: Final = 32  # src: (size). arg str: hardware index
# -- programs ---------------------------------------------------------------------------------
PROGRAM: Final = 33
LINEAR: Final = 34
SOURCE: Final = 35
BINARY: Final = 36
# -- values -----------------------------------------------------------------------------------
CONST: Final = 40  # arg: int, float or bool of the dtype
CAST: Final = 41  # dtype is the target; defined for every value
BITCAST: Final = 42  # src: (x). In the tensor graph one to its own dtype is a mark for gradients:
#   arg says what it means; further sources are what gradients need, no part of the value
BROADCAST: Final = 43  # scalar to all lanes
LANES: Final = 44  # vector 0, 1, .. n-1
GEP: Final = 45  # arg int: one lane of a vector
VECTORIZE: Final = 46  # src: scalars, one per lane
SHUFFLE: Final = 103  # src: (a[, b]), vectors alike. arg tuple: lanes of a, then of b; -1 is any
LANE_REDUCE: Final = 47  # vector folded to a scalar in a fixed tree order. arg: op
ACC: Final = 49  # src: (initial value, *ranges). An accumulator carried by those loops
# -- unary ------------------------------------------------------------------------------------
NEG: Final = 50
NOT: Final = 51  # bitwise; logical for bool
RECIP: Final = 52
SQRT: Final = 53
TRUNC: Final = 54  # toward zero, float to float
FLOOR: Final = 55
CEIL: Final = 56
ROUND: Final = 57  # half to even
EXP: Final = 58
EXP2: Final = 59
LOG: Final = 60
LOG2: Final = 61
SIN: Final = 62
COS: Final = 63
TAN: Final = 64
TANH: Final = 65
ERF: Final = 66
RSQRT: Final = 67
ABS: Final = 68
EXPM1: Final = 69
LOG1P: Final = 70
ASIN: Final = 71
ACOS: Final = 72
ATAN: Final = 73
SINH: Final = 74
COSH: Final = 75
ASINH: Final = 76
ACOSH: Final = 77
ATANH: Final = 78
# -- binary -----------------------------------------------------------------------------------
ADD: Final = 80
SUB: Final = 81
MUL: Final = 82
DIV: Final = 83  # float division; IEEE
IDIV: Final = 84  # integer, toward -inf; by zero gives 0
MOD: Final = 85  # sign of the divisor; by zero gives 0
MAX: Final = (
    86  # NaN wins. In the tensor graph arg says which source has the gradient of equal ones
)
MIN: Final = 87  # NaN wins. arg as for MAX
POW: Final = 88
ATAN2: Final = 89
LT: Final = 90
LE: Final = 91
EQ: Final = 92
NE: Final = 93
AND: Final = 94
OR: Final = 95
XOR: Final = 96
SHL: Final = 97  # past the width gives 0
SHR: Final = 98  # arithmetic for signed; past the width gives 0 or -1
FMOD: Final = 99  # float, C remainder: sign of the dividend
# -- ternary ----------------------------------------------------------------------------------
WHERE: Final = 100  # src: (condition, a, b). arg "rare" in lowered kernels: seldom a
FMA: Final = 101  # a*b+c, one rounding
# -- words of narrow values, in kernels ----------------------------------------------------------
DOT: Final = 102  # src: (a, b[, c]). a and b are uint32 words of narrow values; arg says of which:
#   "bf16" and "i16" hold two, "u8s8", "s8u8", "s8s8" and "u8u8" four. The sum of products, plus c
# -- instructions that some machines have --------------------------------------------------------
LDEXP: Final = 105  # src: (x, n), floats alike. x * 2**n for a whole n, rounded once
EXPONENT: Final = 106  # src: (x). The largest whole n with 2**n <= |x|; -inf for 0, inf for inf
SIGNIFICAND: Final = 107  # src: (x). x > 0 times the power of two that puts it into [1, 2);
#   1 for 0 and infinity, NaN for what is negative

MOVEMENT: Final = frozenset({RESHAPE, PERMUTE, EXPAND, PAD, SHRINK, FLIP})
VIEWS: Final = MOVEMENT | {COMPLEX}
UNARY: Final = frozenset(range(50, 79))
BINARY_OPS: Final = frozenset(range(80, 100))
COMPARE: Final = frozenset({LT, LE, EQ, NE})
TERNARY: Final = frozenset({WHERE, FMA})
ALU: Final = UNARY | BINARY_OPS | TERNARY
# Functions that take dozens of instructions.
HEAVY: Final = frozenset(range(EXP, ERF + 1)) | frozenset(range(EXPM1, ATANH + 1)) | {POW}
ELEMENTWISE: Final = ALU | {CAST, BITCAST, DOT, LDEXP, EXPONENT, SIGNIFICAND}
COMMUTATIVE: Final = frozenset({ADD, MUL, MAX, MIN, EQ, NE, AND, OR, XOR})
REDUCTIONS: Final = frozenset({ADD, MUL, MAX, MIN, AND, OR, XOR})

NAMES: Final[dict[int, str]] = {
    value: name
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, int)
}
BY_NAME: Final[dict[str, int]] = {name: op for op, name in NAMES.items()}
