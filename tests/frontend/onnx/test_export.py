"""Exported functions and modules: valid files that onnxruntime and our own reader run alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import svod
from svod import nn
from svod.frontend.onnx import exporting

F = nn.functional
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def check(
    folder: Path, function: Any, inputs: Any, *others: Any, dynamic: Any = None
) -> dict[str, int]:
    """Export, validate, run on inputs of several sizes; how often each operator is there."""
    path = folder / "m.onnx"
    svod.onnx.export(function, inputs, path, dynamic=dynamic)
    made = onnx.load(path)
    onnx.checker.check_model(made, full_check=True)
    loaded = svod.onnx.load(path)
    for arrays in (inputs, *others):
        feeds = dict(zip([i.name for i in loaded.inputs], arrays, strict=True))
        wanted = function(*[svod.Tensor(a) for a in arrays])
        wanted = [w.numpy() for w in (wanted if isinstance(wanted, tuple) else (wanted,))]
        _compare(loaded.run(feeds), wanted)
        _compare(_by_onnxruntime(path, feeds), wanted)
    counts: dict[str, int] = {}
    for each in made.graph.node:
        counts[each.op_type] = counts.get(each.op_type, 0) + 1
    return counts


def _by_onnxruntime(path: Path, feeds: Any) -> Any:
    """The results of onnxruntime, or of onnx's own evaluator where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(str(path)).run(None, feeds)
    return onnxruntime.InferenceSession(str(path)).run(None, feeds)


def _compare(found: Any, wanted: Any) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_perceptron(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.GELU())
    counts = check(tmp_path, net, [floats(3, 8)])
    assert counts["Einsum"] == 2 and "Expand" not in counts
    check(tmp_path, net, [floats(3, 8)], [floats(7, 8)], dynamic={"x": {0: "batch"}})
    made = onnx.load(tmp_path / "m.onnx")
    shapes = [v.type.tensor_type.shape.dim for v in (*made.graph.input, *made.graph.output)]
    assert [s[0].dim_param for s in shapes] == ["batch", "batch"]


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        return self.head(self.second(x).relu().mean((2, 3)))


def test_a_convolution_network(tmp_path: Path) -> None:
    net = Convolutions()
    net.eval()
    assert check(tmp_path, net, [floats(2, 3, 16, 16)])["Conv"] == 2
    image, images = floats(1, 3, 16, 16), floats(5, 3, 16, 16)
    check(tmp_path, net, [image], [images], dynamic={"x": {0: ("n", 1, 8)}})


class Transformer(nn.Module):
    def __init__(self, words: int = 50, width: int = 16, heads: int = 2, length: int = 32) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, ids: Any) -> Any:
        batch, length = ids.shape
        x = self.tokens(ids) + self.places(svod.arange(self.length)[:length])
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        shape = (batch, length, self.heads, x.shape[2] // self.heads)
        q, k, v = [p.reshape(*shape).transpose(1, 2) for p in parts]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, x.shape[2]))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.norms[2](x) @ self.tokens.weight.T


def test_a_small_gpt_with_batch_and_length_that_vary(tmp_path: Path) -> None:
    net = Transformer()
    ids = [[RNG.integers(0, 50, shape)] for shape in ((2, 7), (3, 11), (1, 1))]
    check(tmp_path, net, ids[0])
    check(tmp_path, net, *ids, dynamic={"ids": {0: "batch", 1: ("length", 1, 32)}})


FUNCTIONS = {
    "reductions": lambda x: (
        x.sum(0), x.mean(), x.amax(1), x.amin(0), x.var(1), x.prod(1), x.softmax(-1),
        (x > 0).any(1), (x > -9).all(), x.argmax(1), x.argmin(0), (x > 0).sum(),
    ),
    "indexing": lambda x: (
        x[1:3], x[:, ::2], x[0], x.flip(1), x[:, [0, 2]], x[svod.Tensor(np.array([0, -1, 2]))],
        x.roll(1, 0), x.gather(1, svod.Tensor(np.zeros((4, 2), np.int64))), x.tril(),
    ),
    "comparisons": lambda x: (
        x > 0, x == x, x != 0, x <= 0.5, (x > 0) & (x < 1), ~(x > 0), svod.where(x > 0, x, -x),
        x.maximum(0.5), x.clip(-1, 1),
    ),
    "casts": lambda x: (
        x.cast(svod.int32), x.cast(svod.float64), x.cast(svod.bool), x.cast(svod.int8),
        (x * 10).cast(svod.int64) // 3, (x * 10).cast(svod.int64) % 3,
        x.cast(svod.float16).cast(svod.float32), (x * 9).cast(svod.int32) & 6,
    ),
    "functions": lambda x: (
        x.exp(), x.abs().log(), x.tanh(), x.sigmoid(), x.sin(), x.abs().sqrt(), x.abs().rsqrt(),
        x.floor(), x.round(), x.trunc(), x.expm1(), x.abs().log1p(), x.exp2(), x.erf(), x**2,
        x.abs().log2(), x.abs() ** 0.5,
    ),
    "shapes": lambda x: (
        svod.cat([x, x * 2], 0), svod.stack([x, x], 1), F.pad(x, (1, 2)), x.T @ x, x.cumsum(1),
        x.reshape(2, 2, 6).transpose(0, 2), x.flatten(), x.expand(3, 4, 6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_tensors(tmp_path: Path, name: str) -> None:
    check(tmp_path, FUNCTIONS[name], [floats(4, 6)])


def test_small_numbers_keep_their_digits(tmp_path: Path) -> None:
    x = np.array([1e-6, -1e-6, 1e-3, 0, 20, 80], np.float32)
    svod.onnx.export(lambda x: (x.expm1(), x.log1p()), [x], tmp_path / "m.onnx")
    found = _by_onnxruntime(tmp_path / "m.onnx", {"x": x})
    np.testing.assert_allclose(found[0], np.expm1(x), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.log1p(x), rtol=1e-5)


def test_a_long_chain_needs_no_deep_stack(tmp_path: Path) -> None:
    def chain(x: Any) -> Any:
        for _ in range(2000):
            x = (x * 0.5).sin()
        return x

    svod.onnx.export(chain, [floats(3)], tmp_path / "m.onnx")
    assert len(onnx.load(tmp_path / "m.onnx").graph.node) == 4001


def test_weights_in_a_file_of_their_own(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(exporting, "INSIDE_LIMIT", 1000)
    net = nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 3))
    check(tmp_path, net, [floats(2, 40)])
    assert (tmp_path / "m.onnx").stat().st_size < 3000
    assert (tmp_path / "m.onnx.data").stat().st_size >= 4 * 40 * 50


def test_a_weight_used_twice_is_written_once(tmp_path: Path) -> None:
    net = Transformer(words=1000)
    check(tmp_path, net, [RNG.integers(0, 50, (1, 4))])
    assert (tmp_path / "m.onnx").stat().st_size < 1000 * 16 * 4 * 1.5


def test_what_has_no_onnx_form_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(svod.onnx.UnsupportedError) as caught:
        svod.onnx.export(
            lambda x: (x.sort(1)[0], svod.atan2(x, x * 2)), [floats(3, 4)], tmp_path / "m.onnx"
        )
    assert "BITCAST from float32 to uint32" in str(caught.value)
    assert "ATAN2 of float32" in str(caught.value)
    assert not (tmp_path / "m.onnx").exists()


def test_wrong_calls(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(svod.onnx.OnnxError, match="the inputs are x"):
        svod.onnx.export(lambda x: x, [floats(3)], path, dynamic={"z": {0: "n"}})
    with pytest.raises(svod.onnx.OnnxError, match="no axis 3"):
        svod.onnx.export(lambda x: x, [floats(3)], path, dynamic={"x": {3: "n"}})
    with pytest.raises(svod.onnx.OnnxError, match="not a tensor"):
        svod.onnx.export(lambda x: 3, [floats(3)], path)
    with pytest.raises(svod.onnx.OnnxError, match="2 names for 1 outputs"):
        svod.onnx.export(lambda x: x + 1, [floats(3)], path, outputs=["a", "b"])
