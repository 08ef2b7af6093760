"""A broad set of small programs, for every target: what the digests of kernels are made of.

In: a function that makes tensors of memory nobody touches. Out: lists of tensors to compute, by
name. Sizes are such that the forms which matter are chosen: tiles, panels, bands, rests, splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import svod
from svod import Tensor
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.nn import functional as F
from svod.tensor.core.tensor_core import wrap
from svod.tensor.gradients.reverse_mode import gradient
from svod.tensor.layers.attention import Call, attention_gradients


class New(Protocol):
    """Makes a tensor of a shape and a dtype."""

    def __call__(self, *shape: int, dtype: DType = dt.float32) -> Tensor: ...


Program = Callable[[], list[Tensor]]
FLOATS = (dt.float32, dt.bfloat16, dt.float16, dt.float64)


def forms(new: New) -> Iterator[tuple[str, Program]]:
    """Every program, by name."""
    for family in (
        _elementwise, _reductions, _norms, _products, _operands, _convolutions, _attention,
        _orders, _scatters, _models,
    ):  # fmt: skip
        yield from family(new)


def _elementwise(new: New) -> Iterator[tuple[str, Program]]:
    x, y, row = new(65, 130), new(65, 130), new(130)
    large = new(2048, 4100)
    yield "add", lambda: [x + y]
    yield "broadcast", lambda: [(x + row) * 2 - y.flip(0)]
    yield "stream", lambda: [large * 2 + 1]
    yield "functions", lambda: [x.exp() + y.log(), x.sin() * y.tanh(), x.erf(), x**y, x.sqrt()]
    yield "gelu", lambda: [F.gelu(x), F.silu(y)]
    for kind in (dt.float64, dt.bfloat16, dt.float16, dt.int8, dt.int32, dt.uint16, dt.bool_):
        z = new(333, 64, dtype=kind)
        yield f"casts of {kind.name}", lambda z=z: [z.cast(dt.float32) + 1, z.cast(dt.float16)]
    whole = new(100, 7, dtype=dt.int64)
    yield "divisions", lambda: [whole // 7, whole.remainder(whole + 1), whole >> 3]
    yield "transpose", lambda: [x.T.contiguous(), new(3, 40, 50, 6).permute(2, 0, 3, 1) + 1]
    yield "pad and slice", lambda: [F.pad(x, (1, 2, 3, 4)), x[:, ::3] + 1, x[5:, 7:].flip(1)]
    yield "joined", lambda: [svod.cat([x, y * 2], 1), svod.stack([x, y], 2)]
    yield "gather", lambda: [new(500, 64)[new(33, dtype=dt.int64)] + 1]
    yield "noise", lambda: [_dropped(x)]


def _dropped(x: Tensor) -> Tensor:
    """x without the elements that an integer hash of their places says."""
    place = wrap(B.reshape(B.iota(x.numel(), dt.uint32), x.shape), x._device)
    mixed = (place * 747796405) ^ ((place * 747796405) >> 15)
    return svod.where((mixed * 277803737) >> 8 < 1 << 22, 0.0, x * 1.25)


def _reductions(new: New) -> Iterator[tuple[str, Program]]:
    x, long, wide, tall = new(64, 257), new(1 << 20), new(4, 1 << 17), new(1 << 15, 48)
    yield "sum of rows", lambda: [x.sum(1), x.amax(1), x.prod(1)]
    yield "sum of columns", lambda: [x.sum(0), x.mean(0), x.amin(0)]
    yield "sum of all", lambda: [long.sum(), (long * long).mean()]
    yield "long rows", lambda: [wide.sum(1), wide.amax(1)]
    yield "tall columns", lambda: [tall.sum(0), (tall * 2).amax(0)]
    yield "odd sum", lambda: [new(1000, 1003).sum(), new(7, 99_991).sum(1)]
    yield "middle", lambda: [new(8, 300, 33).sum(1), new(3, 4, 5, 6, 7).sum((1, 3))]
    yield "outputs", lambda: [x.sum(0), x.sum(1), x.amax(), x.var(1)]
    yield "argmax", lambda: [x.argmax(1), x.argmin(0)]
    yield "logic", lambda: [(x > 0).all(1), (x > 1).any(0), (x > 0).sum()]
    yield "half sum", lambda: [new(512, 512, dtype=dt.bfloat16).sum(1)]
    yield "integer sum", lambda: [new(512, 100, dtype=dt.int8).sum(1)]


def _norms(new: New) -> Iterator[tuple[str, Program]]:
    x, g, b = new(128, 768), new(768), new(768)
    image = new(4, 32, 14, 14)
    c = new(32)
    yield "softmax", lambda: [x.softmax(-1), x.log_softmax(-1), x.softmax(0)]
    yield "long softmax", lambda: [new(32, 50_257).softmax(-1)]
    yield "half softmax", lambda: [new(64, 4096, dtype=dt.bfloat16).softmax(-1)]
    yield "layer norm", lambda: [F.layer_norm(x, (768,), g, b)]
    yield "rms norm", lambda: [F.rms_norm(x, (768,), g)]
    yield "residual norm", lambda: [F.layer_norm(x + new(128, 768), (768,), g, b) * 2]
    yield "batch norm", lambda: [F.batch_norm(image, None, None, c, new(32), True)]
    yield "group norm", lambda: [F.group_norm(image, 8, c, new(32))]
    yield "cross entropy", lambda: [F.cross_entropy(new(64, 1000), new(64, dtype=dt.int64))]
    yield (
        "gradients of norms",
        lambda: _gradients((F.layer_norm(x, (768,), g, b) * new(128, 768)).sum(), [x, g, b]),
    )
    yield "gradient of softmax", lambda: _gradients((x.softmax(-1) * new(128, 768)).sum(), [x])
    yield "gradient of loss", lambda: _loss_gradient(new)


def _loss_gradient(new: New) -> list[Tensor]:
    scores = new(64, 1000)
    return _gradients(F.cross_entropy(scores, new(64, dtype=dt.int64)), [scores])


def _products(new: New) -> Iterator[tuple[str, Program]]:
    for kind in FLOATS:
        a, b = new(192, 256, dtype=kind), new(256, 320, dtype=kind)
        at, bt = new(256, 192, dtype=kind), new(320, 256, dtype=kind)
        name = kind.name
        yield f"matmul {name}", lambda a=a, b=b: [a @ b]
        yield f"matmul {name} turned right", lambda a=a, bt=bt: [a @ bt.T]
        yield f"matmul {name} turned left", lambda at=at, b=b: [at.T @ b]
        yield f"matmul {name} turned both", lambda at=at, bt=bt: [at.T @ bt.T]
        yield (
            f"stack of products {name}",
            lambda k=kind: [new(6, 65, 64, dtype=k) @ new(6, 64, 72, dtype=k)],
        )
        yield f"odd matmul {name}", lambda k=kind: [new(65, 130, dtype=k) @ new(130, 33, dtype=k)]
    for left, right in ((dt.int8, dt.int8), (dt.uint8, dt.int8), (dt.int16, dt.int16)):
        a, b = new(128, 256, dtype=left), new(128, 256, dtype=right)
        yield (
            f"integer product {left.name} {right.name}",
            lambda a=a, b=b: [(a.cast(dt.int32) @ b.cast(dt.int32).T)],
        )
    big, other = new(1024, 1024), new(1024, 1024)
    halves = [new(2048, 2048, dtype=dt.bfloat16) for _ in range(2)]
    yield "large matmul", lambda: [big @ other]
    yield "large half matmul", lambda: [halves[0] @ halves[1]]
    yield "deep product", lambda: [new(64, 16384) @ new(16384, 64)]
    yield "vector product", lambda: [new(1024, 768) @ new(768), new(768) @ new(768, 1024)]
    yield "one row", lambda: [new(1, 768) @ new(768, 3072), new(1, 4096) @ new(1000, 4096).T]
    yield (
        "few half rows",
        lambda: [new(4, 1024, dtype=dt.bfloat16) @ new(2048, 1024, dtype=dt.bfloat16).T],
    )
    yield "outer", lambda: [new(100, 1) * new(1, 200), svod.einsum("bi,bj->ij", big, other)]
    yield (
        "float8",
        lambda: [
            new(256, 256, dtype=dt.float8_e4m3).cast(dt.float32)
            @ new(256, 256, dtype=dt.float8_e4m3).cast(dt.float32)
        ],
    )


def _operands(new: New) -> Iterator[tuple[str, Program]]:
    """Products with expressions for operands, and with what follows the sum."""
    for kind in (dt.float32, dt.bfloat16):
        a, b = new(256, 512, dtype=kind), new(512, 384, dtype=kind)
        g, bias = new(256, 384, dtype=kind), new(384, dtype=kind)
        name = kind.name
        yield f"bias and gelu {name}", lambda a=a, b=b, c=bias: [F.gelu(a @ b + c)]
        yield f"residual {name}", lambda a=a, b=b, g=g: [(a @ b) * 0.5 + g]
        yield f"activated operand {name}", lambda a=a, b=b: [F.gelu(a) @ b]
        yield f"scaled operand {name}", lambda a=a, b=b: [(a * 2 + 1) @ b]
        yield f"dropped operand {name}", lambda a=a, b=b: [_dropped(a) @ b]
        yield f"row sums of a product {name}", lambda a=a, b=b: [(a @ b).sum(1)]
        yield f"gathered rows {name}", lambda a=a, b=b: [a[new(64, dtype=dt.int64)] @ b]
        yield f"sliced operand {name}", lambda a=a, b=b: [a[:, ::2] @ b[:256]]
        yield (
            f"gradients of a product {name}",
            lambda a=a, b=b, g=g: _gradients((F.relu(a @ b) * g).sum(), [a, b]),
        )
    yield (
        "dequantised",
        lambda: [new(64, 512) @ (new(384, 512, dtype=dt.int8).cast(dt.float32) * new(384, 1)).T],
    )
    yield "several products", lambda: [_square(new)]
    yield "masked product", lambda: [(new(256, 256) @ new(256, 256)).tril() @ new(256, 64)]


def _square(new: New) -> Tensor:
    square = new(64, 64)
    return square @ (square + 1) + (square * 2) @ square - square.sum(0)


def _convolutions(new: New) -> Iterator[tuple[str, Program]]:
    for kind in (dt.float32, dt.bfloat16):
        x, w = new(4, 32, 28, 28, dtype=kind), new(64, 32, 3, 3, dtype=kind)
        name = kind.name
        yield f"convolution {name}", lambda x=x, w=w: [F.relu(F.conv2d(x, w, padding=1))]
        yield f"strided convolution {name}", lambda x=x, w=w: [F.conv2d(x, w, None, 2, 1)]
        yield (
            f"gradients of a convolution {name}",
            lambda x=x, w=w: _gradients((F.conv2d(x, w, padding=1) ** 2).sum(), [x, w]),
        )
        yield (
            f"gradients of a strided convolution {name}",
            lambda x=x, w=w: _gradients((F.conv2d(x, w, None, 2, 1) ** 2).sum(), [x, w]),
        )
    image = new(2, 3, 64, 64)
    yield "first convolution", lambda: [F.conv2d(image, new(32, 3, 7, 7), new(32), 2, 3)]
    yield "depthwise", lambda: [F.conv2d(new(2, 32, 28, 28), new(32, 1, 3, 3), None, 1, 1, 1, 32)]
    yield "pointwise", lambda: [F.conv2d(new(2, 64, 28, 28), new(128, 64, 1, 1))]
    yield "groups", lambda: [F.conv2d(new(2, 64, 14, 14), new(64, 16, 3, 3), None, 1, 1, 1, 4)]
    yield "dilated", lambda: [F.conv2d(new(2, 16, 20, 20), new(16, 16, 3, 3), None, 1, 2, 2)]
    yield "one axis", lambda: [F.conv1d(new(4, 80, 300), new(64, 80, 3), padding=1)]
    yield "three axes", lambda: [F.conv3d(new(1, 8, 8, 16, 16), new(16, 8, 3, 3, 3), padding=1)]
    yield "transposed", lambda: [F.conv_transpose2d(new(2, 32, 14, 14), new(32, 16, 4, 4), None, 2)]
    yield "pooling", lambda: [F.max_pool2d(image, 3, 2), F.avg_pool2d(image, 2)]


def _attention(new: New) -> Iterator[tuple[str, Program]]:
    call = F.scaled_dot_product_attention
    for kind in (dt.float32, dt.bfloat16):
        q, k, v, g = (new(2, 4, 256, 64, dtype=kind) for _ in range(4))
        name = kind.name
        yield f"attention {name}", lambda q=q, k=k, v=v: [call(q, k, v)]
        yield f"causal attention {name}", lambda q=q, k=k, v=v: [call(q, k, v, is_causal=True)]
        yield (
            f"masked attention {name}",
            lambda q=q, k=k, v=v: [call(q, k, v, attn_mask=new(2, 1, 1, 256, dtype=dt.bool_))],
        )
        yield (
            f"written attention {name}",
            lambda q=q, k=k, v=v: [(q @ k.transpose(-1, -2) * 0.125).softmax(-1) @ v],
        )
        yield f"one query {name}", lambda k=k, v=v, d=kind: [call(new(2, 4, 1, 64, dtype=d), k, v)]
        yield (
            f"gradient of attention {name}",
            lambda q=q, k=k, v=v, g=g: _gradients(
                (call(q, k, v, is_causal=True) * g).sum(), [q, k, v]
            ),
        )
        yield (
            f"kernels of the gradient {name}",
            lambda q=q, k=k, v=v, g=g, d=kind: attention_gradients(
                q, k, v, None, new(2, 4, 256, 64, dtype=d), g, Call(0.125, True)
            ),
        )


def _orders(new: New) -> Iterator[tuple[str, Program]]:
    x = new(64, 1000)
    yield "sort", lambda: [x.sort(-1).values, x.argsort(-1)]
    yield "long sort", lambda: [new(100_000).sort().values]
    yield "short sorts", lambda: [new(5000, 16).sort(-1).values]
    yield "topk", lambda: [*x.topk(10), *new(100_000).topk(5)]
    yield "cumsum", lambda: [x.cumsum(1), x.cumsum(0), new(100_000).cumsum(0)]
    yield "cumulative extremes", lambda: [*x.cummax(1), x.cumprod(1)]
    yield "gradient of cumsum", lambda: _gradients((x.cumsum(1) * new(64, 1000)).sum(), [x])


def _scatters(new: New) -> Iterator[tuple[str, Program]]:
    places, values = new(4096, dtype=dt.int64), new(4096, 64)
    long = new(1 << 16, dtype=dt.int64)
    yield "index add", lambda: [new(500, 64).index_add(0, places, values)]
    yield "scatter add", lambda: [new(500).scatter_add(0, places[:2000], values[:2000, 0])]
    yield (
        "scatter of rows",
        lambda: [new(200, 500).scatter(1, new(200, 300, dtype=dt.int64), new(200, 300))],
    )
    yield "many sums", lambda: [new(5000).scatter_add(0, long, new(1 << 16))]
    yield (
        "integer sums",
        lambda: [new(500, dtype=dt.int32).scatter_add(0, places, places.cast(dt.int32))],
    )
    yield "last write", lambda: [new(500).scatter(0, places, new(4096))]
    yield (
        "histogram",
        lambda: [new(500, dtype=dt.int32).scatter_add(0, *[new(1 << 20, dtype=dt.int32)] * 2)],
    )
    yield "embedding gradient", lambda: _embedding_gradient(new)
    yield "one hot", lambda: [F.one_hot(new(64, dtype=dt.int64), 100)]


def _embedding_gradient(new: New) -> list[Tensor]:
    weight = new(1000, 64)
    words = new(8, 128, dtype=dt.int64)
    return _gradients((F.embedding(words, weight) * new(8, 128, 64)).sum(), [weight])


def _models(new: New) -> Iterator[tuple[str, Program]]:
    yield "transformer block", lambda: [_block(new, dt.float32, False)[0]]
    yield "half transformer block", lambda: [_block(new, dt.bfloat16, False)[0]]
    yield "step of a transformer block", lambda: _step(*_block(new, dt.float32, True))
    yield "step of a half transformer block", lambda: _step(*_block(new, dt.bfloat16, True))
    yield "step of a convolutional network", lambda: _step(*_network(new))
    yield "recurrent step", lambda: [_recurrent(new)]


def _block(new: New, kind: DType, is_loss: bool) -> tuple[Tensor, list[Tensor]]:
    """A block of a small GPT: attention, a wide layer, norms, residuals."""
    width, heads, length = 256, 4, 256
    x = new(2, length, width, dtype=kind)
    shapes = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
    qkv, out, up, down = (new(*s, dtype=kind) for s in shapes)
    norms = [new(width, dtype=kind) for _ in range(4)]
    h = F.layer_norm(x, (width,), norms[0], norms[1])
    q, k, v = (
        t.reshape(2, length, heads, width // heads).transpose(1, 2)
        for t in (h @ qkv.T).split(width, -1)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(2, length, width) @ out.T
    h = F.layer_norm(x, (width,), norms[2], norms[3])
    x = x + F.gelu(h @ up.T) @ down.T
    weights = [qkv, out, up, down, *norms]
    return ((x.float() ** 2).mean() if is_loss else x), weights


def _network(new: New) -> tuple[Tensor, list[Tensor]]:
    """Two convolutions with norms and pooling, a linear layer, a loss."""
    x, labels = new(8, 3, 32, 32), new(8, dtype=dt.int64)
    first, second, last = new(16, 3, 3, 3), new(32, 16, 3, 3), new(10, 32 * 64)
    gains = [new(16), new(16), new(32), new(32)]
    h = F.relu(F.batch_norm(F.conv2d(x, first, padding=1), None, None, *gains[:2], True))
    h = F.relu(F.batch_norm(F.conv2d(h, second, None, 2, 1), None, None, *gains[2:], True))
    h = F.max_pool2d(h, 2)
    loss = F.cross_entropy(h.reshape(8, -1) @ last.T, labels)
    return loss, [first, second, last, *gains]


def _recurrent(new: New) -> Tensor:
    x, h = new(16, 64), new(16, 128)
    gates = x @ new(512, 64).T + h @ new(512, 128).T + new(512)
    i, f, g, o = gates.split(128, -1)
    return o.sigmoid() * (f.sigmoid() * h + i.sigmoid() * g.tanh()).tanh()


def _step(loss: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """One step of gradient descent."""
    found = []
    for weight, grad in zip(weights, _gradients(loss, weights), strict=True):
        found.append(weight - 0.01 * grad.cast(weight.dtype))
    return [loss, *found]


def _gradients(loss: Tensor, targets: list[Tensor]) -> list[Tensor]:
    found = gradient(loss.uop, B.full((), 1.0, loss.dtype), [t.uop for t in targets])
    return [wrap(g, t._device) for g, t in zip(found, targets, strict=True) if g is not None]
