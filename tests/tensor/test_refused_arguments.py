"""Arguments that make no sense are refused, with the class of error that torch's caller catches."""

from __future__ import annotations

import numpy as np
import pytest

import svod
import svod.nn.functional as F
from svod import Tensor, nn
from svod.base.errors import SvodError

X = svod.ones((2, 3))
LINE = svod.arange(6.0).reshape(1, 1, 6)
AT = svod.tensor([0])

REFUSED = {
    "cross_entropy of probabilities for one row": lambda: F.cross_entropy(X, svod.ones((1, 3))),
    "cross_entropy of probabilities without rows": lambda: F.cross_entropy(X, svod.ones(3)),
    "cross_entropy of a float for a vector": lambda: F.cross_entropy(svod.ones(3), X[:1]),
    "cross_entropy smoothed by more than 1": lambda: F.cross_entropy(
        X, svod.tensor([0, 1]), label_smoothing=1.5
    ),
    "nll_loss of float classes": lambda: F.nll_loss(X, svod.tensor([0.0, 1.0])),
    "multi_margin_loss of float classes": lambda: F.multi_margin_loss(X, svod.ones(2)),
    "binary_cross_entropy of other shapes": lambda: F.binary_cross_entropy(X, svod.ones(3)),
    "logits of other shapes": lambda: F.binary_cross_entropy_with_logits(X, svod.ones(3)),
    "an integer to a negative power": lambda: svod.tensor([2, 3]) ** -1,
    "a bool to a negative power": lambda: svod.pow(svod.tensor([True]), -2),
    "one shift for two axes": lambda: X.roll(1, (0, 1)),
    "two shifts for one axis": lambda: X.roll((1, 2), 0),
    "two shifts of the flattened tensor": lambda: X.roll((1, 2)),
    "roll of an axis that a scalar has not": lambda: svod.tensor(1.0).roll(0, 0),
    "flipud of a scalar": lambda: svod.tensor(1.0).flipud(),
    "narrow from beyond the end": lambda: X.narrow(1, 4, 0),
    "fft of a scalar": lambda: svod.fft.fft(svod.tensor(1.0)),
    "a mask of integers": lambda: X.masked_scatter(X.int(), X),
    "a negative standard deviation": lambda: svod.normal(0.0, -1.0, (2,)),
    "a negative standard deviation in place": lambda: svod.ones(2).normal_(0, -1),
    "a negative deviation of starting values": lambda: nn.init.normal_(svod.ones(2), 0, -1),
    "a range that ends before it begins": lambda: svod.ones(2).uniform_(3, -1),
    "starting values of such a range": lambda: nn.init.uniform_(svod.ones(2), 3, -1),
    "bernoulli above 1": lambda: svod.bernoulli(1.5),
    "multinomial of no samples": lambda: svod.multinomial(svod.ones(2), 0),
    "multinomial of integer weights": lambda: svod.multinomial(svod.tensor([1, 2]), 1),
    "cov with counts that are floats": lambda: svod.cov(X, fweights=svod.ones(3)),
    "hardtanh upside down": lambda: F.hardtanh(X, 1.0, -1.0),
    "softshrink by less than nothing": lambda: F.softshrink(X, -0.5),
    "isclose with a negative tolerance": lambda: X.isclose(X, rtol=-1.0),
    "same padding with a stride": lambda: nn.Conv2d(1, 1, 3, padding="same", stride=2),
    "a padding of no meaning": lambda: nn.Conv1d(1, 1, 3, padding="full"),
    "reflection by the whole axis": lambda: F.pad(LINE, (6, 0), "reflect"),
    "a cut of more than there is": lambda: F.pad(LINE, (-4, -3), "replicate"),
    "windows without a step": lambda: svod.arange(4.0).unfold(0, 2, 0),
    "windows of less than nothing": lambda: svod.arange(4.0).unfold(0, -1, 1),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_torch_refuses_is_refused(what):
    with pytest.raises(SvodError) as caught:
        REFUSED[what]()
    assert isinstance(caught.value, (ValueError, TypeError))
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("p", [1.5, -0.1])
@pytest.mark.parametrize(
    "name",
    ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"],
)
def test_dropout_layers_take_probabilities(name, p):
    with pytest.raises(ValueError, match="probability"):
        getattr(nn, name)(p)


WRITES = {
    "scatter": lambda x, y: x.scatter(0, AT, y),
    "scatter_add": lambda x, y: x.scatter_add(0, AT, y),
    "scatter_reduce": lambda x, y: x.scatter_reduce(0, AT, y, "amax"),
    "scatter_reduce sum": lambda x, y: x.scatter_reduce(0, AT, y, "sum"),
    "index_add": lambda x, y: x.index_add(0, AT, y),
    "index_copy": lambda x, y: x.index_copy(0, AT, y),
    "index_put": lambda x, y: x.index_put((AT,), y),
    "index_reduce": lambda x, y: x.index_reduce(0, AT, y, "prod"),
    "masked_scatter": lambda x, y: x.masked_scatter(svod.tensor([True, False, False]), y),
}


@pytest.mark.parametrize("name", list(WRITES))
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int64"])
def test_values_written_by_index_have_the_dtype_of_their_target(name, dtype):
    with pytest.raises(TypeError, match=f"{dtype} into float32"):
        WRITES[name](svod.ones(3), svod.ones(1, dtype=dtype))
    assert WRITES[name](svod.ones(3), svod.ones(1)).dtype.name == "float32"


def test_powers_with_exponents_in_a_tensor_are_cut_off():
    assert (svod.tensor([2, 1, 0, -1]) ** svod.tensor(-1)).tolist() == [0, 1, 0, -1]
    assert (2 ** svod.tensor([-1, 2])).tolist() == [0, 4]
    assert (svod.tensor([2.0]) ** -1).tolist() == [0.5]
    assert svod.tensor([2, 4]).float_power(-1).tolist() == [0.5, 0.25]


def test_a_slice_of_floats_is_a_type_error():
    with pytest.raises(TypeError, match="whole numbers"):
        svod.ones(3)[0.0:2.0]
    with pytest.raises(IndexError):  # which it is too, as before
        svod.ones(3)[0:2:1.0]


def test_index_tensors_that_do_not_broadcast_are_an_index_error():
    x = svod.ones((3, 3))
    for read in (lambda: x[[0, 1], [0, 1, 2]], lambda: x.index_put((AT, AT), svod.ones(2))):
        with pytest.raises((IndexError, ValueError)):
            read()
    with pytest.raises(IndexError, match=r"\(2,\) and \(3,\)"):
        x[[0, 1], [0, 1, 2]]
    with pytest.raises(IndexError, match=r"\(2,\) and \(3,\)"):
        x[[0, 1], [0, 1, 2]] = 1.0


def test_roll_may_name_an_axis_twice():
    x, a = svod.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3)
    assert x.roll((1, 1), (1, 1)).tolist() == np.roll(a, 2, 1).tolist()
    assert x.roll((1, 2), (0, 1)).tolist() == np.roll(a, (1, 2), (0, 1)).tolist()


@pytest.mark.parametrize(
    ("pad", "reflected", "replicated"),
    [
        ((-1, 2), [1, 2, 3, 4, 5, 4, 3], [1, 2, 3, 4, 5, 5, 5]),
        ((-3, 4), [3, 4, 5, 4, 3, 2, 1], [3, 4, 5, 5, 5, 5, 5]),
        ((-6, 2), [4, 3], [5, 5]),
        ((2, -5), [2, 1, 0], [0, 0, 0]),
        ((-1, -2), [1, 2, 3], [1, 2, 3]),
    ],
)
def test_negative_sizes_of_reflected_and_replicated_borders_cut_the_padded_axis(
    pad, reflected, replicated
):
    assert F.pad(LINE, pad, "reflect").tolist() == [[reflected]]
    assert F.pad(LINE, pad, "replicate").tolist() == [[replicated]]


def test_interpolation_of_bytes_stays_bytes():
    x = (svod.arange(16).reshape(1, 1, 4, 4) * 15).cast("uint8")
    wanted = {
        "bilinear": [[18, 48], [98, 128], [178, 208]],
        "bicubic": [[14, 47], [96, 129], [178, 211]],
    }
    for mode, values in wanted.items():
        found = F.interpolate(x, size=(3, 2), mode=mode)
        assert found.dtype.name == "uint8"
        assert found.tolist() == [[values]]
    sharp = Tensor(np.array([[[[0, 255, 0, 255]]]], np.uint8)).expand(1, 1, 4, 4)
    assert F.interpolate(sharp, size=(4, 8), mode="bicubic").numpy()[0, 0, 0].tolist() == [
        0, 67, 224, 215, 40, 31, 188, 255,
    ]  # fmt: skip


def test_averages_of_bytes_do_not_overflow():
    x = svod.full((1, 1, 4), 200, dtype="uint8")
    assert F.interpolate(x, size=2, mode="area").tolist() == [[[200.0, 200.0]]]
    assert F.adaptive_avg_pool1d(x, 3).tolist() == [[[200.0, 200.0, 200.0]]]
    assert F.avg_pool1d(x, 2).tolist() == [[[200, 200]]]


def test_windows_of_no_elements_are_counted():
    x = svod.arange(12.0).reshape(3, 4)
    assert x.unfold(1, 0, 1).shape == (3, 5, 0)
    assert x.unfold(0, 0, 2).shape == (2, 4, 0)
    assert svod.tensor(4.0).unfold(0, 1, 1).tolist() == [4.0]
    assert svod.tensor(4.0).unfold(0, 0, 1).shape == (0,)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": -1}),
        ("SGD", {"weight_decay": -1}),
        ("Adam", {"eps": -1}),
        ("AdamW", {"weight_decay": -1}),
        ("RMSprop", {"alpha": -1}),
        ("RMSprop", {"momentum": -1}),
        ("Adagrad", {"lr_decay": -1}),
        ("Adagrad", {"initial_accumulator_value": -1}),
        ("NAdam", {"momentum_decay": -1}),
        ("Adafactor", {"eps": (-1, 1e-3)}),
        ("ASGD", {"lr": float("nan")}),
    ],
)
def test_optimizers_take_no_negative_options(name, options):
    (option,) = options
    x = svod.ones(2).requires_grad_()
    with pytest.raises(ValueError, match=f"{name}: {option} is 0 or more"):
        getattr(nn.optim, name)([x], **options)
    with pytest.raises(ValueError, match=f"{name}: {option} is 0 or more"):
        getattr(nn.optim, name)([{"params": [x], **options}])


def test_class_numbers_of_a_margin_loss_are_integers():
    with pytest.raises(TypeError, match="multilabel_margin_loss: targets are integers"):
        svod.ones(2, 3).multilabel_margin_loss(svod.ones(2, 3))
