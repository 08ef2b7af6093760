"""Modules: names of parameters and values, against torch where it is installed, else NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import DTypeError, ShapeError
from svod.nn.module import StateError
from svod.testing import assert_close

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


INTEGERS = np.array([[1, 2, 0], [3, 3, 1]])

# name: arguments, options, inputs; the class has this name in both libraries
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = {
    "linear": ("Linear", (4, 3), {}, (normal(2, 4),)),
    "linear without bias": ("Linear", (4, 3), {"bias": False}, (normal(2, 5, 4),)),
    "bilinear": ("Bilinear", (4, 3, 2), {}, (normal(5, 4), normal(5, 3))),
    "conv1d": ("Conv1d", (3, 4, 3), {"stride": 2, "padding": 1}, (normal(2, 3, 8),)),
    "conv2d": ("Conv2d", (2, 4, 3), {"padding": 1, "groups": 2}, (normal(2, 2, 6, 5),)),
    "same conv2d": ("Conv2d", (2, 3, (3, 2)), {"padding": "same"}, (normal(1, 2, 5, 6),)),
    "circular conv2d": (
        "Conv2d", (2, 3, 3), {"padding": 1, "padding_mode": "circular"}, (normal(1, 2, 5, 6),),
    ),
    "conv3d": ("Conv3d", (2, 3, 2), {"dilation": 2}, (normal(1, 2, 4, 4, 4),)),
    "transposed 1d": ("ConvTranspose1d", (3, 2, 3), {"stride": 2}, (normal(2, 3, 4),)),
    "transposed 2d": (
        "ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
        (normal(1, 4, 3, 3),),
    ),
    "transposed 3d": ("ConvTranspose3d", (2, 2, 2), {}, (normal(1, 2, 2, 3, 2),)),
    "batch norm 1d": ("BatchNorm1d", (4,), {}, (normal(6, 4),)),
    "batch norm 2d": ("BatchNorm2d", (3,), {"momentum": 0.3}, (normal(2, 3, 4, 4),)),
    "batch norm 3d": ("BatchNorm3d", (2,), {"affine": False}, (normal(2, 2, 2, 3, 2),)),
    "average of batches": ("BatchNorm1d", (4,), {"momentum": None}, (normal(6, 4),)),
    "layer norm": ("LayerNorm", ((3, 4),), {}, (normal(2, 3, 4),)),
    "layer norm without bias": ("LayerNorm", (4,), {"bias": False}, (normal(2, 4),)),
    "rms norm": ("RMSNorm", (4,), {"eps": 1e-6}, (normal(2, 3, 4),)),
    "group norm": ("GroupNorm", (2, 4), {}, (normal(2, 4, 3),)),
    "instance norm": ("InstanceNorm2d", (3,), {"affine": True}, (normal(2, 3, 4, 4),)),
    "embedding": ("Embedding", (5, 3), {"padding_idx": 0}, (INTEGERS,)),
    "max pool": ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, (normal(1, 2, 6, 6),)),
    "avg pool": ("AvgPool2d", (3, 2), {"count_include_pad": False}, (normal(1, 2, 6, 6),)),
    "adaptive avg pool": ("AdaptiveAvgPool2d", ((2, 3),), {}, (normal(1, 2, 5, 6),)),
    "adaptive max pool": ("AdaptiveMaxPool1d", (2,), {}, (normal(1, 2, 5),)),
    "prelu": ("PReLU", (3,), {}, (normal(2, 3, 4),)),
    "gelu": ("GELU", (), {"approximate": "tanh"}, (normal(3, 4),)),
    "leaky relu": ("LeakyReLU", (0.2,), {}, (normal(3, 4),)),
    "softmax": ("Softmax", (), {"dim": 1}, (normal(3, 4),)),
    "glu": ("GLU", (), {}, (normal(3, 4),)),
    "cross entropy": (
        "CrossEntropyLoss", (), {"label_smoothing": 0.1}, (normal(3, 4), np.array([0, 3, 1])),
    ),
    "smooth l1": ("SmoothL1Loss", (), {"beta": 0.5}, (normal(3, 4), normal(3, 4, seed=1))),
    "bce": ("BCEWithLogitsLoss", (), {}, (normal(3, 4), np.abs(np.tanh(normal(3, 4, seed=1))))),
    "rnn": ("RNN", (3, 4), {"num_layers": 2, "nonlinearity": "relu"}, (normal(5, 2, 3),)),
    "lstm": ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True}, (normal(4, 2, 3),)),
    "lstm batch first": ("LSTM", (3, 4), {"batch_first": True}, (normal(2, 4, 3),)),
    "gru": ("GRU", (3, 4), {}, (normal(5, 2, 3), normal(1, 2, 4))),
    "lstm of one sequence": ("LSTM", (3, 4), {}, (normal(5, 3),)),
    "lstm cell": ("LSTMCell", (3, 4), {}, (normal(2, 3),)),
    "gru cell": ("GRUCell", (3, 4), {"bias": False}, (normal(2, 3), normal(2, 4))),
    "attention": (
        "MultiheadAttention", (8, 2), {"batch_first": True},
        (normal(2, 3, 8), normal(2, 5, 8), normal(2, 5, 8, seed=1)),
    ),
    "attention of other sizes": (
        "MultiheadAttention", (8, 2), {"kdim": 6, "vdim": 4},
        (normal(3, 2, 8), normal(5, 2, 6), normal(5, 2, 4)),
    ),
}  # fmt: skip


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [v for part in value for v in flat(part)]
    return [value]


def load_from(ours: nn.Module, theirs: Any) -> None:
    """Equal random parameters on both sides."""
    state = {}
    for i, (key, value) in enumerate(theirs.state_dict().items()):
        array = value.detach().numpy()
        if array.dtype.kind == "f" and "running" not in key:
            array = normal(*array.shape, seed=i) * np.float32(0.5)
        state[key] = array
    theirs.load_state_dict({k: torch.tensor(v) for k, v in state.items()})
    ours.load_state_dict(state)


@needs_torch
@pytest.mark.parametrize("name", CASES)
def test_values_gradients_and_state_equal_torch(name: str) -> None:
    kind, args, options, inputs = CASES[name]
    ours, theirs = getattr(nn, kind)(*args, **options), getattr(torch.nn, kind)(*args, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    shapes = {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    assert {k: v.shape for k, v in ours.state_dict().items()} == shapes
    load_from(ours, theirs)
    mine = [Tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    other = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    found, wanted = flat(ours(*mine)), flat(theirs(*other))
    sum([(f.float() ** 2).sum() for f in found], Tensor(0.0)).backward()
    sum((w**2).sum() for w in wanted).backward()
    pairs = [(f"output {i}", f, w) for i, (f, w) in enumerate(zip(found, wanted, strict=True))]
    for i, (a, b) in enumerate(zip(mine, other, strict=True)):
        if b.requires_grad and b.grad is not None:
            pairs.append((f"gradient of input {i}", a.grad, b.grad))
    theirs_by_name = dict(theirs.named_parameters())
    for key, p in ours.named_parameters():
        pairs.append((f"gradient of {key}", p.grad, theirs_by_name[key].grad))
    for key, b in ours.named_buffers():
        pairs.append((key, b, dict(theirs.named_buffers())[key]))
    svod.realize(*[f for _, f, _ in pairs])
    for label, f, w in pairs:
        assert_close(f, w, rtol=2e-4, atol=2e-5, name=f"{name}: {label}")
    if "norm" in name or name == "average of batches":
        ours.eval(), theirs.eval()
        assert_close(ours(mine[0]), theirs(other[0]), rtol=2e-4, atol=2e-5, name=f"{name}: eval")


@needs_torch
def test_attention_masks_equal_torch() -> None:
    ours = nn.MultiheadAttention(8, 2, batch_first=True)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    load_from(ours, theirs)
    x = normal(2, 4, 8)
    causal = np.triu(np.ones((4, 4), bool), 1)
    padding = np.array([[False, False, False, True], [False] * 4])
    found, weights = ours(*[Tensor(x)] * 3, Tensor(padding), attn_mask=Tensor(causal))
    wanted, theirs_weights = theirs(
        *[torch.tensor(x)] * 3, torch.tensor(padding), attn_mask=torch.tensor(causal)
    )
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert_close(weights, theirs_weights, rtol=1e-4, atol=1e-5)
    found, weights = ours(*[Tensor(x)] * 3, need_weights=False, is_causal=True)
    assert weights is None
    wanted, _ = theirs(*[torch.tensor(x)] * 3, attn_mask=torch.tensor(causal))
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)


# -- without torch -----------------------------------------------------------------------------


def test_linear_and_layer_norm_equal_numpy() -> None:
    linear, norm = nn.Linear(4, 3), nn.LayerNorm(3)
    x = normal(5, 4)
    w, b = linear.weight.numpy(), linear.bias.numpy()
    y = x @ w.T + b
    z = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    assert_close(norm(linear(Tensor(x))), z, rtol=1e-4, atol=1e-5)


def test_batch_norm_learns_running_values() -> None:
    norm = nn.BatchNorm1d(3)
    x = normal(8, 3) * 2 + 1
    norm(Tensor(x)).realize()
    assert_close(norm.running_mean, 0.1 * x.mean(0), rtol=1e-4, atol=1e-6)
    assert_close(norm.running_var, 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-4)
    assert norm.num_batches_tracked.item() == 1
    norm.eval()
    mean, variance = norm.running_mean.numpy(), norm.running_var.numpy()
    assert_close(norm(Tensor(x)), (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5)
    assert norm.num_batches_tracked.item() == 1


def test_lstm_equals_numpy() -> None:
    lstm = nn.LSTM(3, 2)
    x = normal(4, 1, 3)
    found, (hidden, cell) = lstm(Tensor(x))

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    p = {k: v.numpy() for k, v in lstm.state_dict().items()}
    h = c = np.zeros((1, 2), np.float32)
    for t in range(4):
        gates = x[t] @ p["weight_ih_l0"].T + p["bias_ih_l0"] + h @ p["weight_hh_l0"].T
        i, f, g, o = np.split(gates + p["bias_hh_l0"], 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        assert_close(found[t], h, rtol=1e-4, atol=1e-6)
    assert_close(hidden[0], h, rtol=1e-4, atol=1e-6)
    assert_close(cell[0], c, rtol=1e-4, atol=1e-6)


def test_embedding_does_not_train_its_padding() -> None:
    table = nn.Embedding(4, 2, padding_idx=1)
    assert_close(table.weight[1], np.zeros(2, np.float32))
    table(Tensor(np.array([1, 1, 3]))).sum().backward()
    assert_close(table.weight.grad, np.float32([[0, 0], [0, 0], [0, 0], [1, 1]]))


def test_dropout_only_in_training() -> None:
    svod.manual_seed(0)
    drop = nn.Dropout(0.25)
    found = drop(svod.ones(4000)).numpy()
    assert set(np.round(np.unique(found), 5)) == {0.0, np.float32(1.33333)}
    assert abs(found.mean() - 1) < 0.1
    drop.eval()
    assert_close(drop(svod.ones(5)), np.ones(5, np.float32))


# -- what a module is --------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.named = nn.ModuleDict({"out": nn.Linear(4, 2, bias=False)})
        self.scale = nn.Parameter(svod.ones(2))
        self.register_buffer("steps", svod.zeros(1).contiguous())
        self.register_buffer("cache", svod.zeros(1).contiguous(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for part in self.parts:
            x = part(x)
        return self.named["out"](x) * self.scale


def test_parameters_buffers_and_names() -> None:
    block = Block()
    names = [
        "scale", "first.weight", "first.bias", "parts.0.weight", "parts.0.bias", "named.out.weight",
    ]  # fmt: skip
    assert [k for k, _ in block.named_parameters()] == names
    assert [k for k, _ in block.named_buffers()] == ["steps", "cache"]
    assert list(block.state_dict()) == ["scale", "steps", *names[1:]]
    assert len(list(block.modules())) == 7
    assert all(p.requires_grad and p.is_leaf for p in block.parameters())
    assert block(Tensor(normal(5, 3))).shape == (5, 2)
    assert "(first): Linear(3, 4, bias=True)" in repr(block)


def test_a_shared_parameter_is_one_parameter() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert len(list(model.parameters())) == 3
    assert len(model.state_dict()) == 4
    model(svod.ones(1, 3)).sum().backward()
    assert model[0].weight.grad is model[1].weight.grad


def test_state_goes_from_one_module_to_another() -> None:
    a, b = Block(), Block().realize()
    x = Tensor(normal(2, 3))
    before = [p.uop for p in b.parameters()]
    b.load_state_dict(a.state_dict())
    assert [p.uop for p in b.parameters()] == before  # the memory stays
    assert_close(b(x), a(x))
    assert all(p.requires_grad for p in b.parameters())
    state = a.state_dict()
    state["more"] = state.pop("scale")
    with pytest.raises(StateError, match=r"missing \['scale'\], unexpected \['more'\]"):
        b.load_state_dict(state)
    assert b.load_state_dict(state, strict=False) == (["scale"], ["more"])
    with pytest.raises(StateError, match="shape"):
        b.load_state_dict({**a.state_dict(), "scale": svod.ones(3)})


def test_train_and_eval_reach_all_parts() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2)))
    assert model.training and model[1][0].training
    model.eval()
    assert not model.training and not model[1][0].training


def test_to_changes_floats_only() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model.to(svod.float16)
    assert {p.dtype for p in model.parameters()} == {svod.float16}
    assert model[1].num_batches_tracked.dtype is svod.int64
    assert all(p.requires_grad for p in model.parameters())
    out = model(svod.ones(4, 2, dtype=svod.float16))
    out.sum().backward()
    assert model[0].weight.grad.dtype is svod.float16


def test_frozen_parameters_get_no_gradient() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    model(svod.ones(4, 2)).sum().backward()
    assert model[0].weight.grad is None
    assert model[1].weight.grad is not None
    model.zero_grad()
    assert model[1].weight.grad is None


def test_mistakes_are_explained() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.x = nn.Linear(1, 1)

    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (AttributeError, "super", Forgetful),
        (ShapeError, "groups", lambda: nn.Conv2d(3, 4, 1, groups=2)),
        (ShapeError, "heads", lambda: nn.MultiheadAttention(5, 2)),
        (ShapeError, "probability", lambda: nn.Dropout(2.0)),
        (ShapeError, "channels", lambda: nn.BatchNorm2d(3)(svod.ones(1, 2, 4, 4))),
        (DTypeError, "takes", lambda: nn.GELU(slope=1)),
        (AttributeError, "no attribute 'weights'", lambda: nn.Linear(1, 1).weights),
        (IndexError, "out of range", lambda: nn.Sequential(nn.ReLU())[3]),
        (NotImplementedError, "forward", lambda: nn.Module()(1)),
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()


# -- initialisers ------------------------------------------------------------------------------


def test_initialisers_have_the_right_spread() -> None:
    svod.manual_seed(1)
    w = svod.zeros(300, 200)
    checks = [
        (nn.init.xavier_uniform_, np.sqrt(2 / 500)),
        (nn.init.xavier_normal_, np.sqrt(2 / 500)),
        (nn.init.kaiming_uniform_, np.sqrt(2 / 200)),
        (nn.init.kaiming_normal_, np.sqrt(2 / 200)),
    ]
    for function, spread in checks:
        values = function(w).numpy()
        assert abs(values.mean()) < 0.05 * spread * 3, function.__name__
        assert abs(values.std() / spread - 1) < 0.03, function.__name__
    values = nn.init.trunc_normal_(w, std=0.5, a=-0.6, b=0.6).numpy()
    assert values.min() >= -0.6 and values.max() <= 0.6
    assert abs(values.std() - 0.312) < 0.01  # of a normal cut at 1.2 deviations
    assert_close(nn.init.eye_(svod.zeros(2, 3)), np.eye(2, 3, dtype=np.float32))
    assert_close(nn.init.constant_(svod.zeros(2), 3.0), np.float32([3, 3]))


def test_the_seed_decides_the_parameters() -> None:
    values = []
    for _ in range(2):
        svod.manual_seed(5)
        values.append(nn.Linear(3, 2).weight.numpy())
    assert_close(values[0], values[1])
