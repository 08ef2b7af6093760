"""Forms of contraction: operands, epilogues and dtypes that products meet in real programs.

``FORMS`` maps a name to a function of a maker of tensors in memory that is never touched;
`tests.optimize.contractions` compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import svod
from svod import Tensor
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import wrap

F32, BF16, F16, I8, U8 = dt.float32, dt.bfloat16, dt.float16, dt.int8, dt.uint8
ROWS, DEPTH, COLUMNS = 1024, 512, 768

Maker = Callable[..., Tensor]
Form = Callable[[Maker], Any]
FORMS: dict[str, Form] = {}


def _form(name: str, build: Form) -> None:
    assert name not in FORMS, name
    FORMS[name] = build


def _pair(m: Maker, dtype: dt.DType, *lead: int) -> tuple[Tensor, Tensor]:
    return m(*lead, ROWS, DEPTH, dtype=dtype), m(*lead, DEPTH, COLUMNS, dtype=dtype)


def _operand(change: Callable[[Maker, Tensor], Tensor], dtype: dt.DType) -> Form:
    """A product whose left operand is an expression."""

    def build(m: Maker) -> Tensor:
        x, w = _pair(m, dtype)
        return change(m, x) @ w

    return build


def _weight(change: Callable[[Maker, Tensor], Tensor], dtype: dt.DType) -> Form:
    """A product whose right operand is an expression."""

    def build(m: Maker) -> Tensor:
        x, w = _pair(m, dtype)
        return x @ change(m, w)

    return build


def _epilogue(change: Callable[[Maker, Tensor], Tensor], dtype: dt.DType) -> Form:
    def build(m: Maker) -> Tensor:
        x, w = _pair(m, dtype)
        return change(m, x @ w)

    return build


def gradients(build: Callable[..., Tensor], *of: Tensor) -> list[Tensor]:
    """The gradients of a number, which is made of these tensors."""
    for t in of:
        t.requires_grad_()
    build(*of).backward()
    return [t.grad for t in of if t.grad is not None]


def _dropped(x: Tensor) -> Tensor:
    """Dropout with bits hashed from the number of each element, as a generator does it."""
    number = wrap(B.reshape(B.iota(prod(x.shape), dt.uint32), x.shape), x.device)
    for factor, shift in ((2654435761, 16), (2246822519, 13), (3266489917, 16)):
        number = (number * factor) ^ (number >> shift)
    return (number < 429496729).where(0.0, x * (1 / 0.9))


def _conv(dtype: dt.DType, which: str, size: int = 3, **options: int) -> Form:
    def build(m: Maker) -> Any:
        x, w = m(32, 64, 28, 28, dtype=dtype), m(128, 64, size, size, dtype=dtype)
        shape = x.conv2d(w, **options).shape
        if which == "forward":
            return x.conv2d(w, **options)
        g = m(*shape, dtype=dtype)
        if which == "input":
            return gradients(lambda x: (x.conv2d(w, **options) * g).sum(), x)
        return gradients(lambda w: (x.conv2d(w, **options) * g).sum(), w)

    return build


def _cross_entropy(dtype: dt.DType, which: str, tokens: int = 8192) -> Form:
    def build(m: Maker) -> Any:
        x, w = m(tokens, 768, dtype=dtype), m(50304, 768, dtype=dtype)
        labels = m(tokens, dtype=dt.int64)

        def loss(x: Tensor, w: Tensor) -> Tensor:
            return (x @ w.permute(1, 0)).float().cross_entropy(labels)

        if which == "x":
            return gradients(lambda x: loss(x, w), x)
        if which == "w":
            return gradients(lambda w: loss(x, w), w)
        return gradients(loss, x, w) if which == "both" else loss(x, w)

    return build


def _mlp(dtype: dt.DType, activation: str) -> Form:
    """The gradients of two layers with an activation between them."""

    def build(m: Maker) -> Any:
        x, first, second = (
            m(2048, 768, dtype=dtype), m(3072, 768, dtype=dtype), m(768, 3072, dtype=dtype)
        )  # fmt: skip
        g = m(2048, 768, dtype=dtype)

        def loss(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
            hidden = getattr(x.linear(first), activation)()
            return (hidden.linear(second) * g).sum()

        return gradients(loss, x, first, second)

    return build


def _int4(dtype: dt.DType) -> Callable[[Maker], Tensor]:
    """A weight of two 4-bit codes per byte with a scale per group of 32."""

    def build(m: Maker) -> Tensor:
        codes = m(COLUMNS, DEPTH // 2, dtype=U8)
        low, high = codes & 15, codes >> 4
        both = svod.stack([low, high], dim=-1).reshape(COLUMNS, DEPTH // 32, 32)
        scale = m(COLUMNS, DEPTH // 32, 1, dtype=dtype)
        weight = (both.cast(dtype) - 8) * scale
        return m(ROWS, DEPTH, dtype=dtype) @ weight.reshape(COLUMNS, DEPTH).permute(1, 0)

    return build


def _int8_product(change_x: Any = None, change_w: Any = None) -> Form:
    def build(m: Maker) -> Tensor:
        x, w = _pair(m, I8)
        a = x if change_x is None else change_x(m, x)
        b = w if change_w is None else change_w(m, w)
        return a.matmul(b, dtype=dt.int32)

    return build


def _attention(dtype: dt.DType, backward: bool, causal: bool = True) -> Form:
    def build(m: Maker) -> Any:
        q, k, v, g = (m(2, 12, 1024, 64, dtype=dtype) for _ in range(4))

        def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return q.scaled_dot_product_attention(k, v, is_causal=causal)

        if not backward:
            return attended(q, k, v)
        return gradients(lambda q, k, v: (attended(q, k, v) * g).sum(), q, k, v)

    return build


def _like(m: Maker, x: Tensor, rows: int | None = None, columns: int | None = None) -> Tensor:
    """Other memory like that of a matrix."""
    return m(rows or x.shape[0], columns or x.shape[1], dtype=x.dtype)


def _transposed(m: Maker, x: Tensor) -> Tensor:
    return m(*x.shape[::-1], dtype=x.dtype).permute(1, 0)


def _codes(m: Maker, w: Tensor) -> Tensor:
    return m(*w.shape, dtype=I8).cast(w.dtype)


FLOATS = {"f32": F32, "bf16": BF16, "f16": F16}
_OPERANDS: dict[str, tuple[Callable[[Maker, Tensor], Tensor], str]] = {
    "plain": (lambda m, x: x, "f32 bf16 f16"),
    "transposed": (lambda m, x: _transposed(m, x), "f32 bf16 f16"),
    "relu": (lambda m, x: x.relu(), "f32 bf16"),
    "gelu": (lambda m, x: x.gelu(), "f32 bf16 f16"),
    "silu": (lambda m, x: x.silu(), "bf16"),
    "tanh of transposed": (lambda m, x: _transposed(m, x).tanh(), "f32 bf16"),
    "mask": (lambda m, x: m(*x.shape, dtype=dt.bool_).where(x, 0), "f32 bf16"),
    "causal mask": (lambda m, x: x.tril(), "f32 bf16"),
    "dropout": (lambda m, x: _dropped(x), "f32 bf16"),
    "bias": (lambda m, x: x + m(x.shape[-1], dtype=x.dtype), "f32 bf16"),
    "scale per row": (lambda m, x: x * m(x.shape[0], 1, dtype=x.dtype), "f32 bf16"),
    "scale per column": (lambda m, x: x * m(x.shape[1], dtype=x.dtype), "bf16"),
    "gather": (lambda m, x: _like(m, x, 5000)[m(x.shape[0], dtype=dt.int64)], "f32 bf16"),
    "layer norm": (lambda m, x: x.layer_norm([x.shape[1]]), "f32 bf16"),
    "softmax": (lambda m, x: x.softmax(-1), "f32 bf16"),
    "sum of two": (lambda m, x: x + m(*x.shape, dtype=x.dtype), "f32 bf16"),
    "slice with a step": (lambda m, x: _like(m, x, columns=1024)[:, ::2], "f32 bf16"),
    "joined": (lambda m, x: svod.cat([x[:, :256], _like(m, x, columns=256)], dim=1), "f32 bf16"),
    "padded": (lambda m, x: x[:, :500].pad(((0, 0), (0, 12))), "f32 bf16"),
    "flipped": (lambda m, x: x.flip(0), "f32 bf16"),
    "product of two": (lambda m, x: x.silu() * m(*x.shape, dtype=x.dtype), "bf16"),
}  # fmt: skip
for _name, (_change, _kinds) in _OPERANDS.items():
    for _kind in _kinds.split():
        _form(f"{_name} {_kind}", _operand(_change, FLOATS[_kind]))
_WEIGHTS: dict[str, tuple[Callable[[Maker, Tensor], Tensor], str]] = {
    "transposed": _OPERANDS["transposed"],
    "gelu": _OPERANDS["gelu"],
    "scale": (lambda m, w: w * m(w.shape[1], dtype=w.dtype), "f32 bf16"),
    "int8 codes": (lambda m, w: _codes(m, w) * m(w.shape[1], dtype=w.dtype), "f32 bf16 f16"),
    "int8 codes without a scale": (lambda m, w: _codes(m, w), "f32 bf16"),
    "int8 codes transposed": (
        lambda m, w: (_codes(m, w.permute(1, 0)) * m(w.shape[1], 1, dtype=w.dtype)).permute(1, 0),
        "f32 bf16",
    ),
}  # fmt: skip
for _name, (_change, _kinds) in _WEIGHTS.items():
    for _kind in _kinds.split():
        _form(f"weight: {_name} {_kind}", _weight(_change, FLOATS[_kind]))
for _kind in ("f32", "bf16"):
    _form(f"weight: int4 codes {_kind}", _int4(FLOATS[_kind]))
_form("cast f32 to bf16", lambda m: m(ROWS, DEPTH).bfloat16() @ m(DEPTH, COLUMNS, dtype=BF16))
_form("cast bf16 to f32", lambda m: m(ROWS, DEPTH, dtype=BF16).float() @ m(DEPTH, COLUMNS))
_form("cast of both to f16", lambda m: m(ROWS, DEPTH).half() @ m(DEPTH, COLUMNS).half())
_form("bf16 by f32", lambda m: m(ROWS, DEPTH, dtype=BF16) @ m(DEPTH, COLUMNS))
_form("f16 by bf16", lambda m: (m(ROWS, DEPTH, dtype=F16) @ m(DEPTH, COLUMNS, dtype=BF16)).float())


def _by_itself(dtype: dt.DType) -> Form:
    def build(m: Maker) -> Tensor:
        x = m(ROWS, DEPTH, dtype=dtype)
        return x @ x.permute(1, 0)

    return build


def _batched(dtype: dt.DType, left: tuple[int, ...], right: tuple[int, ...]) -> Form:
    return lambda m: m(*left, dtype=dtype) @ m(*right, dtype=dtype)


def _heads(dtype: dt.DType) -> Form:
    def build(m: Maker) -> Tensor:
        heads = m(4, 8, 256, 64, dtype=dtype).permute(0, 2, 1, 3)
        return heads.reshape(1024, 512) @ m(512, 512, dtype=dtype)

    return build


for _kind in ("f32", "bf16"):
    _form(f"by its own transpose {_kind}", _by_itself(FLOATS[_kind]))
    _form(f"batched {_kind}", _batched(FLOATS[_kind], (8, 256, 256), (8, 256, 256)))
    _form(f"shared heads {_kind}", _batched(FLOATS[_kind], (8, 4, 256, 128), (8, 1, 128, 256)))
    _form(f"heads to rows {_kind}", _heads(FLOATS[_kind]))
_form("int8", _int8_product())
_form("int8 transposed", _int8_product(None, _transposed))
_form("int8 with a zero point", _int8_product(lambda m, x: x.cast(dt.int32) - 3))
_form(
    "int8 with zero points",
    _int8_product(
        lambda m, x: x.cast(dt.int32) - m(ROWS, 1, dtype=dt.int32),
        lambda m, w: w.cast(dt.int32) + m(COLUMNS, dtype=dt.int32),
    ),
)
_form(
    "int8 by int16",
    lambda m: m(ROWS, DEPTH, dtype=I8).matmul(m(DEPTH, COLUMNS, dtype=dt.int16), dtype=dt.int32),
)
_form("int8 relu", _int8_product(lambda m, x: x.relu()))
_form("int8 bias and scale", lambda m: _int8_product()(m).float() * m(COLUMNS) + m(COLUMNS))
_EPILOGUES: dict[str, tuple[Callable[[Maker, Tensor], Tensor], str]] = {
    "bias": (lambda m, y: y + m(y.shape[1], dtype=y.dtype), "f32 bf16"),
    "bias gelu": (lambda m, y: (y + m(y.shape[1], dtype=y.dtype)).gelu(), "f32 bf16"),
    "residual": (lambda m, y: y + m(*y.shape, dtype=y.dtype), "f32 bf16"),
    "row sums": (lambda m, y: y.sum(1), "f32 bf16"),
    "softmax": (lambda m, y: y.softmax(-1), "f32 bf16"),
    "layer norm": (lambda m, y: y.layer_norm([y.shape[1]]), "bf16"),
    "mean": (lambda m, y: (y * y).mean(), "bf16"),
    "transposed": (lambda m, y: y.permute(1, 0) * 2, "f32 bf16"),
    "heads": (lambda m, y: y.reshape(4, 256, 12, 64).permute(0, 2, 1, 3), "bf16"),
    "product": (lambda m, y: y.relu() @ m(y.shape[1], 256, dtype=y.dtype), "f32 bf16"),
    "two uses": (lambda m, y: y * y.sigmoid(), "bf16"),
    "flat": (lambda m, y: y.reshape(-1) + m(ROWS * COLUMNS, dtype=y.dtype), "f32 bf16"),
    "half rows": (lambda m, y: y.reshape(-1, 384) * m(384, dtype=y.dtype), "f32 bf16"),
    "repeats": (lambda m, y: y.unsqueeze(-1) * m(7, dtype=y.dtype), "f32 bf16"),
    "scan": (lambda m, y: y.cumsum(1), "f32"),
    "gather": (lambda m, y: y[m(ROWS, dtype=dt.int64)], "bf16"),
    "sort": (lambda m, y: y.sort(1)[0], "f32"),
}  # fmt: skip
for _name, (_change, _kinds) in _EPILOGUES.items():
    for _kind in _kinds.split():
        _form(f"then {_name} {_kind}", _epilogue(_change, FLOATS[_kind]))
for _kind in ("f32", "bf16"):
    for _which in ("forward", "input", "weight"):
        _form(f"conv {_which} {_kind}", _conv(FLOATS[_kind], _which, padding=1))
        _form(f"conv stride 2 {_which} {_kind}", _conv(FLOATS[_kind], _which, padding=1, stride=2))
        _form(f"conv 1x1 {_which} {_kind}", _conv(FLOATS[_kind], _which, size=1))
        _form(f"conv 1x1 stride 2 {_which} {_kind}", _conv(FLOATS[_kind], _which, size=1, stride=2))
    _form(f"gradients of gelu {_kind}", _mlp(FLOATS[_kind], "gelu"))
    _form(f"gradients of relu {_kind}", _mlp(FLOATS[_kind], "relu"))
    for _which in ("forward", "x", "w", "both"):
        _form(f"cross entropy {_which} {_kind}", _cross_entropy(FLOATS[_kind], _which))
for _kind in ("f32", "bf16", "f16"):
    _form(f"attention {_kind}", _attention(FLOATS[_kind], False))
    _form(f"attention gradient {_kind}", _attention(FLOATS[_kind], True))
_form("attention in full bf16", _attention(BF16, False, causal=False))
