"""Modules: what they are, and values against NumPy; `test_torch_results` compares with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import ShapeError
from svod.nn.module import StateError
from svod.testing import assert_close


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def test_attention_masks() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = Tensor(normal(2, 4, 8))
    causal = np.triu(np.ones((4, 4), bool), 1)
    padding = np.array([[False, False, False, True], [False] * 4])
    _, weights = attention(x, x, x, Tensor(padding), attn_mask=Tensor(causal))
    shown = weights.numpy()
    assert_close(weights.sum(-1), np.ones((2, 4), np.float32), rtol=1e-5)
    assert not shown[:, causal].any() and not shown[0, :, 3].any()
    for needed in (True, False):
        hinted = attention(x, x, x, need_weights=needed, is_causal=True)[0]
        masked = attention(x, x, x, need_weights=needed, attn_mask=Tensor(causal))[0]
        assert_close(hinted, masked, rtol=1e-5, atol=1e-6)
    apart = attention(x[:1, :2], x[:1, :2], x[:1, :2])[0]
    assert_close(hinted[:1, 1:2], apart[:, 1:2], rtol=1e-4, atol=1e-5)


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
        (TypeError, r"GELU\(\) got an unexpected .*'slope'", lambda: nn.GELU(slope=1)),
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


def test_parameters_in_lists_and_dicts() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.several = nn.ParameterList([svod.ones(2), nn.Parameter(svod.zeros(3))])
            self.named = nn.ParameterDict({"scale": svod.ones(1)})
            self.several.append(svod.ones(1))

    module = Mixed()
    names = ["several.0", "several.1", "several.2", "named.scale"]
    assert [k for k, _ in module.named_parameters()] == names == list(module.state_dict())
    assert len(module.several) == 3 and list(module.named) == ["scale"]
    assert all(p.requires_grad for p in module.several)
    module.several[1] = svod.ones(3)
    assert module.several[-2].tolist() == [1, 1, 1] and len(module.several[:2]) == 2
    assert module.get_parameter("named.scale") is module.named["scale"]
    assert module.get_submodule("several") is module.several
    with pytest.raises(IndexError):
        module.several[3]
    with pytest.raises(StateError, match=r"no parameter 'named\.size'"):
        module.get_parameter("named.size")


def test_hooks_see_and_change_what_goes_through() -> None:
    layer = nn.Linear(3, 2)
    seen = []
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    after = layer.register_forward_hook(lambda module, args, out: seen.append(out) or out + 1)
    assert_close(layer(svod.ones(1, 3)), layer.bias.numpy()[None] + 1)
    assert len(seen) == 1
    before.remove(), after.remove()
    x = normal(1, 3)
    assert_close(layer(Tensor(x)), x @ layer.weight.numpy().T + layer.bias.numpy(), rtol=1e-5)


def test_initialisers() -> None:
    svod.manual_seed(0)
    for shape in ((4, 7), (7, 4), (5, 2, 3)):
        flat = nn.init.orthogonal_(svod.zeros(*shape), 2.0).numpy().reshape(shape[0], -1)
        square = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
        np.testing.assert_allclose(square, 4 * np.eye(len(square)), atol=1e-4)
    kernel = nn.init.dirac_(svod.zeros(4, 2, 3, 3), groups=2)
    x = normal(1, 4, 5, 5)
    assert_close(Tensor(x).conv2d(kernel, padding=1, groups=2), x, rtol=1e-6)
    sparse = nn.init.sparse_(svod.zeros(10, 6), 0.35).numpy()
    assert ((sparse == 0).sum(0) == 4).all()


def test_rows_that_are_too_long_are_shortened_in_the_table() -> None:
    table = nn.Embedding(4, 2, max_norm=1.0)
    table.load_state_dict({"weight": np.float32([[3, 4], [0.1, 0], [6, 8], [0, 2]])})
    found = table(Tensor(np.array([0, 1, 3])))
    assert_close(found, np.float32([[0.6, 0.8], [0.1, 0], [0, 1]]), rtol=1e-5)
    wanted = np.float32([[0.6, 0.8], [0.1, 0], [6, 8], [0, 1]])
    assert_close(table.weight, wanted, rtol=1e-5)
    frozen = nn.Embedding.from_pretrained(svod.ones(3, 2))
    assert not frozen.weight.requires_grad and frozen(Tensor([1])).tolist() == [[1, 1]]


def test_parameters_of_one_module_alone_and_shared_ones() -> None:
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, nn.BatchNorm1d(2), shared)
    assert not list(net.parameters(recurse=False)) and not list(net.buffers(recurse=False))
    assert [n for n, _ in shared.named_parameters(recurse=False)] == ["weight", "bias"]
    once = [n for n, _ in net.named_parameters(prefix="net")]
    assert once == ["net.0.weight", "net.0.bias", "net.1.weight", "net.1.bias"]
    assert [n for n, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1", "2"]
    twice = [n for n, _ in net.named_parameters(remove_duplicate=False)]
    assert twice == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]


def test_a_state_with_a_prefix_and_by_assignment() -> None:
    one, two = nn.Linear(2, 3), nn.Linear(2, 3)
    state = one.state_dict(prefix="layer.")
    assert list(state) == ["layer.weight", "layer.bias"]
    kept = one.state_dict(destination={"a": 1}, keep_vars=True)
    assert kept["weight"] is one.weight and kept["a"] == 1
    halves = {k: v.half() for k, v in one.state_dict().items()}
    assert two.load_state_dict(halves, assign=True) == ([], [])
    assert two.weight.dtype is svod.float16 and two.weight.requires_grad
    found = two.load_state_dict({"weight": one.weight, "colour": one.bias}, strict=False)
    assert found.missing_keys == ["bias"] and found.unexpected_keys == ["colour"]


def test_hooks_with_options_and_in_front() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, by: float = 1.0) -> Tensor:
            return x * by

    module, seen = Scaled(), []
    module.register_forward_pre_hook(lambda m, args: seen.append("second"))
    module.register_forward_pre_hook(lambda m, args: seen.append("first"), prepend=True)
    module.register_forward_pre_hook(
        lambda m, args, options: (args, {**options, "by": 3.0}), with_kwargs=True
    )
    module.register_forward_hook(
        lambda m, args, options, found: found + options["by"], with_kwargs=True
    )
    assert module(Tensor([1.0, 2.0]), by=2.0).tolist() == [6.0, 9.0]
    assert seen == ["first", "second"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(64, 64),
        lambda: nn.Bilinear(8, 8, 8),
        lambda: nn.Conv2d(8, 8, 3),
        lambda: nn.ConvTranspose1d(8, 8, 3),
        lambda: nn.LSTM(8, 8),
        lambda: nn.GRUCell(8, 8),
        lambda: nn.Embedding(16, 16, padding_idx=2),
        lambda: nn.EmbeddingBag(16, 16),
    ],
)
def test_parameters_are_drawn_again(make: Callable[[], Any]) -> None:
    module = make()
    before = {k: v.numpy() for k, v in module.state_dict().items()}
    parameters = list(module.parameters())
    module.reset_parameters()
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    for key, old in before.items():
        new = module.state_dict()[key].numpy()
        assert not np.array_equal(old, new) and new.dtype == old.dtype
        np.testing.assert_allclose(new.std(), old.std(), rtol=0.5)
        if isinstance(module, nn.Embedding):
            assert not new[2].any()
    assert all(p.requires_grad for p in module.parameters())


def test_norms_start_again() -> None:
    norm = nn.BatchNorm1d(3)
    norm(Tensor(normal(5, 3)))
    norm.weight.assign(svod.zeros(3)).realize()
    norm.reset_parameters()
    assert norm.weight.tolist() == [1.0] * 3 and norm.running_mean.tolist() == [0.0] * 3
    assert norm.running_var.tolist() == [1.0] * 3 and norm.num_batches_tracked.item() == 0
    norm(Tensor(normal(5, 3)))
    assert norm.num_batches_tracked.item() == 1
    for other in (nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.RMSNorm(3)):
        other.weight.assign(svod.zeros(3)).realize()
        other.reset_parameters()
        assert other.weight.tolist() == [1.0] * 3


def test_a_part_is_put_in_the_place_of_another() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 3)))
    net.set_submodule("1.0", nn.Tanh())
    assert isinstance(net[1][0], nn.Tanh)
    with pytest.raises(StateError):
        net.set_submodule("1.5", nn.Tanh())


def test_a_property_of_a_module_may_be_set() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.half = 1.0

        @property
        def side(self) -> float:
            return self.half * 2

        @side.setter
        def side(self, value: float) -> None:
            self.half = value / 2

    module = Square()
    module.side = 6.0
    assert module.half == 3.0 and module.type("float64").cpu().side == 6.0
