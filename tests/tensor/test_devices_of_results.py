"""Results that the host computes come back on the device of their arguments."""

from __future__ import annotations

import numpy as np
import pytest

import svod
from svod import nn
from svod.nn import functional as F

X = np.array([2, 0, 1, 2])
FUNCTIONS = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero by axis": lambda x: x.nonzero(as_tuple=True)[0],
    "standard nonzero": lambda x: svod.nonzero(x)[0],
    "unique": lambda x: x.unique(),
    "standard unique": lambda x: svod.unique_values(x),
    "inverse of unique": lambda x: x.unique(return_inverse=True)[1],
    "unique consecutive": lambda x: x.unique_consecutive(),
    "mask": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "bincount": lambda x: x.bincount(),
    "one_hot": lambda x: F.one_hot(x),
    "repeat_interleave": lambda x: x.repeat_interleave(x),
    "singular values": lambda x: svod.linalg.svdvals(svod.outer(x, x).float()),
    "quantile": lambda x: x.float().quantile(0.5),
    "array index": lambda x: x[np.array([0, 2])],
    "zeta": lambda x: svod.special.zeta(x.double() + 2, 1.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_result_is_where_the_argument_is(name):
    here, there = (FUNCTIONS[name](svod.Tensor(X).to(d).realize()) for d in ("CPU", "REF"))
    assert (here.device, there.device) == ("CPU", "REF")
    np.testing.assert_allclose(here.numpy(), there.numpy(), rtol=1e-6)


def test_packed_sequences_stay_on_the_device_of_their_data():
    rows = [svod.Tensor(np.ones((n, 3), np.float32)).to("REF") for n in (2, 4)]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(
        padded, svod.Tensor([2, 4]), batch_first=True, enforce_sorted=False
    )
    out, _ = nn.GRU(3, 5, batch_first=True).to("REF")(packed)
    found, lengths = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    assert found.device == "REF" and lengths.device == "CPU" and lengths.tolist() == [2, 4]
    assert found[0, 2:].abs().sum().item() == 0


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Lion"])
def test_a_parameter_without_axes_is_trained(kind):
    scale = nn.Parameter(svod.Tensor(2.0))
    row = nn.Parameter(svod.Tensor([2.0]))
    optimizer = getattr(svod.optim, kind)([scale, row], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (scale**2 + (row**2).sum()).backward()
        optimizer.step()
    assert scale.shape == () and scale.item() == row.item() < 2.0


def test_values_and_indices_of_the_host_reach_tensors_of_other_devices():
    x = svod.zeros(4, 3, device="REF").realize()
    x[1] = svod.Tensor([1.0, 2.0, 3.0])
    x[svod.Tensor([2, 3])] = svod.Tensor([[5.0], [6.0]])
    x[svod.Tensor(np.arange(12).reshape(4, 3) == 0)] = 9.0
    assert x.device == "REF"
    assert x.tolist() == [[9, 0, 0], [1, 2, 3], [5, 5, 5], [6, 6, 6]]
    assert x[svod.Tensor([1]), svod.Tensor([2])].tolist() == [3]
    with pytest.raises(svod.errors.DeviceError):
        svod.Tensor([1.0, 2.0])[svod.Tensor([0]).to("REF")]
