"""nn.utils: parametrizations, norms of weights, vectors of parameters, sequences of lengths."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.nn.utils import parametrizations, parametrize, rnn


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    def right_inverse(self, x: Tensor) -> Tensor:
        return x / 2


def test_a_parametrized_weight_is_computed_when_it_is_read() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.numpy()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    weight = layer.weight.numpy()
    assert np.array_equal(weight, weight.T) and np.array_equal(np.triu(weight), np.triu(before))
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert parametrize.is_parametrized(layer, "weight") and type(layer) is not nn.Linear
    assert isinstance(layer, nn.Linear)
    x = Tensor(normal(2, 3))
    layer(x).sum().backward()
    assert layer.parametrizations.weight.original.grad.shape == (3, 3)
    twin = copy.deepcopy(layer)
    np.testing.assert_array_equal(twin(x).numpy(), layer(x).numpy())
    with pytest.raises(ValueError, match="right_inverse"):
        layer.weight = svod.zeros(3, 3)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and list(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_array_equal(layer.weight.numpy(), weight)


def test_parametrizations_follow_each_other_and_can_be_set() -> None:
    layer = nn.Linear(3, 3, bias=False)
    start = layer.weight.numpy()
    parametrize.register_parametrization(layer, "weight", Doubled())
    np.testing.assert_allclose(layer.weight.numpy(), start, rtol=1e-6)
    layer.weight = Tensor(normal(3, 3))
    np.testing.assert_allclose(layer.weight.numpy(), normal(3, 3), rtol=1e-6)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    found = layer.weight.numpy()
    assert np.array_equal(found, found.T)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    np.testing.assert_allclose(layer.weight.numpy() * 2, normal(3, 3), rtol=1e-6)


def test_a_parametrization_is_refused_where_it_does_not_fit() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten()

    layer = nn.Linear(3, 2)
    for name, how in (("weight", Wide()), ("colour", Doubled())):
        with pytest.raises(ValueError):
            parametrize.register_parametrization(layer, name, how)
    assert type(layer) is nn.Linear and "weight" in dict(layer.named_parameters())
    with pytest.raises(ValueError):
        parametrize.remove_parametrizations(layer, "weight")


def test_a_weight_norm_is_trained_and_removed() -> None:
    x, y = Tensor(normal(8, 4)), Tensor(normal(8, 3, seed=1))
    for wrapped in (parametrizations.weight_norm, nn.utils.weight_norm):
        layer = wrapped(nn.Linear(4, 3))
        optimizer = nn.optim.SGD(layer.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(layer(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        found = layer(x).numpy()
        if wrapped is nn.utils.weight_norm:
            assert {"weight_g", "weight_v"} < set(layer.state_dict())
            nn.utils.remove_weight_norm(layer)
        else:
            parametrize.remove_parametrizations(layer, "weight")
        assert set(layer.state_dict()) == {"weight", "bias"}
        np.testing.assert_allclose(layer(x).numpy(), found, rtol=1e-5, atol=1e-6)


def test_a_spectral_norm_has_a_largest_singular_value_of_one() -> None:
    svod.manual_seed(3)
    for wrapped in (parametrizations.spectral_norm, nn.utils.spectral_norm):
        layer = wrapped(nn.Linear(6, 5), n_power_iterations=3)
        for _ in range(20):
            layer(Tensor(normal(2, 6)))
        largest = np.linalg.svd(layer.eval().weight.numpy(), compute_uv=False)[0]
        np.testing.assert_allclose(largest, 1.0, rtol=1e-2)
    nn.utils.remove_spectral_norm(layer)
    assert set(layer.state_dict()) == {"weight", "bias"}


def test_a_norm_is_refused_twice_and_without_a_weight() -> None:
    layer = nn.utils.weight_norm(nn.Linear(3, 2))
    for call in (
        lambda: nn.utils.weight_norm(layer),
        lambda: nn.utils.remove_spectral_norm(layer),
        lambda: nn.utils.spectral_norm(nn.Linear(3, 2), "bias"),
        lambda: parametrizations.spectral_norm(nn.Linear(3, 2), n_power_iterations=0),
        lambda: parametrizations.weight_norm(nn.ReLU()),
    ):
        with pytest.raises(ValueError):
            call()


def test_parameters_as_a_vector_and_back() -> None:
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    vector = nn.utils.parameters_to_vector(one.parameters())
    assert vector.shape == (8,)
    nn.utils.vector_to_parameters(vector, two.parameters())
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    with pytest.raises(ValueError):
        nn.utils.vector_to_parameters(vector[:7], two.parameters())


def test_sequences_are_padded_and_cut_again() -> None:
    given = [Tensor(normal(n, 2)) for n in (3, 1, 2)]
    found = rnn.pad_sequence(given, batch_first=True, padding_value=9.0)
    assert found.shape == (3, 3, 2) and (found.numpy()[1, 1:] == 9).all()
    left = rnn.pad_sequence(given, padding_side="left").numpy()
    np.testing.assert_array_equal(left[2, 1], normal(1, 2)[0])
    for before, after in zip(given, rnn.unpad_sequence(found, [3, 1, 2], True), strict=True):
        np.testing.assert_array_equal(before.numpy(), after.numpy())


def test_sequences_are_packed_time_by_time() -> None:
    given = [Tensor(normal(n, 2)) for n in (3, 2, 1)]
    packed = rnn.pack_sequence(given)
    assert packed.batch_sizes.tolist() == [3, 2, 1] and packed.sorted_indices is None
    np.testing.assert_array_equal(packed.data.numpy()[3], given[0].numpy()[1])
    spread, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == [3, 2, 1]
    np.testing.assert_array_equal(spread.numpy(), rnn.pad_sequence(given, True).numpy())
    shuffled = rnn.pack_sequence([given[2], given[0]], enforce_sorted=False)
    assert shuffled.sorted_indices.tolist() == [1, 0]
    assert rnn.pad_packed_sequence(shuffled)[1].tolist() == [1, 3]
    for call in (
        lambda: rnn.pack_sequence([given[2], given[0]]),
        lambda: rnn.pack_padded_sequence(spread, [3, 2], True),
        lambda: rnn.pack_padded_sequence(spread, [4, 2, 1], True),
        lambda: rnn.pack_padded_sequence(spread, [3, 2, 0], True),
        lambda: rnn.pad_packed_sequence(packed, total_length=2),
        lambda: rnn.pad_sequence(given, padding_side="middle"),
    ):
        with pytest.raises(ValueError):
            call()


def test_one_sequence_packed_is_the_sequence_alone() -> None:
    layer = nn.LSTM(2, 3, bidirectional=True)
    given = [Tensor(normal(n, 2)) for n in (4, 2)]
    found, (hidden, _) = layer(rnn.pack_sequence(given))
    spread, _ = rnn.pad_packed_sequence(found)
    for i, x in enumerate(given):
        alone, (last, _) = layer(x)
        np.testing.assert_allclose(
            spread.numpy()[: x.shape[0], i], alone.numpy(), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(hidden.numpy()[:, i], last.numpy(), rtol=1e-5, atol=1e-6)


def test_lists_and_dicts_of_modules_shrink_and_grow_inside() -> None:
    parts = nn.ModuleList([nn.ReLU(), nn.Linear(2, 3)])
    parts.insert(1, nn.Tanh())
    assert [type(m).__name__ for m in parts] == ["ReLU", "Tanh", "Linear"]
    assert isinstance(parts.pop(0), nn.ReLU) and list(parts.state_dict()) == ["1.weight", "1.bias"]
    del parts[-1]
    assert len(parts) == 1
    with pytest.raises(IndexError):
        parts.pop(4)
    with pytest.raises(TypeError):
        parts.insert(0, 3)
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    del net[1:]
    assert net(svod.ones(3, 2)).shape == (3, 2)
    named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    assert isinstance(named.pop("a"), nn.ReLU) and list(named) == ["b"]
    with pytest.raises(LookupError):
        del named["a"]
    named.clear()
    assert not len(named)
